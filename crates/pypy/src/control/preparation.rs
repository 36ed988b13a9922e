//! Changes around PyPy's `_vmprof` during a session: its system calls are redirected to nthbyte. The action of SIGPROF and
//! the interval timer stay the program's: `_vmprof` sets both when it is switched on and off, which is undone or does not
//! happen.

use std::ffi::c_int;

use nthbyte_host::BoundedLock;
use nthbyte_session::RUNNING_ALREADY;

use crate::stacks::{
    Action, DESCRIPTOR, Vmprof, changes_here, lseek_hook, mmap_hook, setitimer_hook, write_hook,
};
use nthbyte_rpython::binary::{MappedLibrary, MemoryMap, Redirect};

/// The redirected imports.
struct Preparation {
    redirects: Vec<Redirect>,
    /// Of `mmap`, which are on only until `_vmprof` has its buffers: other mappings are the program's.
    mappings: Vec<Redirect>,
    /// The action of SIGPROF, while `_vmprof` is switched on or off.
    sigprof: Option<Action>,
}

static PREPARATION: BoundedLock<Option<Preparation>> = BoundedLock::new(None);

/// Prepares for `_vmprof.enable`. Returns the descriptor to which `_vmprof` must write.
///
/// # Errors
/// One line that says why a session is not possible now.
pub fn prepare() -> Result<c_int, String> {
    let mut place = PREPARATION
        .lock()
        .ok_or("a session is being started or stopped; try again later")?;
    if place.is_some() {
        return Err(RUNNING_ALREADY.to_owned());
    }
    *place = Some(Preparation::new()?);
    Ok(DESCRIPTOR)
}

/// Reverses [`prepare`], after `_vmprof.disable`.
pub fn undo() {
    if let Some(mut place) = PREPARATION.lock()
        && let Some(preparation) = place.take()
    {
        preparation.undo();
    }
}

/// `_vmprof` is about to be switched off and on again, in the child of a fork.
pub fn before_switching() {
    changed(|preparation| preparation.begin_switching());
}

/// `_vmprof` was switched on. `take_over` finds its handler of SIGPROF.
pub fn after_switching<T>(take_over: impl FnOnce() -> T) -> T {
    let taken = take_over();
    changed(|preparation| {
        preparation.turn_mappings(false);
        preparation.end_switching();
    });
    taken
}

/// `_vmprof` is about to be switched off, before [`undo`].
pub fn before_switching_off() {
    if !Vmprof::is_taken_away() {
        changed(|preparation| preparation.begin_switching());
    }
}

fn changed(change: impl FnOnce(&mut Preparation)) {
    // In the child of a fork, the lock may be held by a thread that does not exist there.
    if let Some(mut place) = PREPARATION.try_lock()
        && let Some(preparation) = place.as_mut()
    {
        change(preparation);
    }
}

impl Preparation {
    fn new() -> Result<Self, String> {
        let library = MappedLibrary::of_this_process().ok_or("this interpreter is not PyPy")?;
        let sigprof = Action::of_sigprof();
        if !sigprof.is_none() {
            return Err("another profiler is using SIGPROF; stop it first".to_owned());
        }
        Vmprof::prepare()?;
        let mut preparation = Self {
            redirects: Vec::new(),
            mappings: Vec::new(),
            sigprof: None,
        };
        let map = MemoryMap::read()?;
        for (name, function) in [
            (c"write", write_hook as *const () as usize),
            (c"lseek", lseek_hook as *const () as usize),
            (c"lseek64", lseek_hook as *const () as usize),
            (c"setitimer", setitimer_hook as *const () as usize),
            (c"mmap", mmap_hook as *const () as usize),
            (c"mmap64", mmap_hook as *const () as usize),
        ] {
            let slots = library.import_slots(name);
            if slots.is_empty() && name == c"setitimer" {
                return Err("this PyPy does not import setitimer".to_owned());
            }
            // SAFETY: the slots are the library's imports of `name`, and the hook has the same type.
            let redirects = unsafe { Redirect::prepare(&slots, function, &map) }?;
            let list = if name.to_bytes().starts_with(b"mmap") {
                &mut preparation.mappings
            } else {
                &mut preparation.redirects
            };
            list.extend(redirects);
        }
        if let Err(why) = preparation.turn_on() {
            preparation.turn_off();
            return Err(why);
        }
        preparation.begin_switching();
        Ok(preparation)
    }

    /// From here on, until [`Self::end_switching`], this thread's changes of SIGPROF and the interval timer are `_vmprof`'s.
    fn begin_switching(&mut self) {
        self.turn_mappings(true);
        if self.sigprof.is_none() {
            self.sigprof = Some(Action::of_sigprof());
            changes_here(true);
        }
    }

    fn end_switching(&mut self) {
        if let Some(before) = self.sigprof.take() {
            before.restore();
            changes_here(false);
        }
    }

    fn turn_mappings(&self, on: bool) {
        for redirect in &self.mappings {
            // If it fails, the buffers are not found, or the hook stays and only calls the original.
            let _ = redirect.turn(on);
        }
    }

    fn turn_on(&self) -> Result<(), String> {
        let mut all = self.mappings.iter().chain(&self.redirects);
        all.try_for_each(|one| one.turn(true))
    }

    fn turn_off(&self) {
        for redirect in self.redirects.iter().chain(&self.mappings) {
            // If it fails, the hook stays and only calls the original.
            let _ = redirect.turn(false);
        }
    }

    fn undo(mut self) {
        self.end_switching();
        self.turn_off();
    }
}
