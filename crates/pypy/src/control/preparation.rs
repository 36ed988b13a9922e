//! Changes around PyPy's `_vmprof` during a session: its system calls are redirected to nthbyte, and the previous
//! action of SIGPROF is kept.

use std::ffi::c_int;

use nthbyte_session::RUNNING_ALREADY;

use crate::binary::{Library, MemoryMap, Redirect};
use crate::bounded_lock::BoundedLock;
use crate::stacks::{DESCRIPTOR, Vmprof, lseek_hook, mmap_hook, write_hook};

/// The redirected imports, and the previous action of SIGPROF.
#[derive(Debug)]
struct Preparation {
    redirects: Vec<Redirect>,
    /// Those of `mmap`, which are on only until `_vmprof` has its buffers: other mappings are the program's.
    mappings: Vec<Redirect>,
    sigprof: Disposition,
}

/// The action of a signal: a handler, `SIG_DFL` or `SIG_IGN`; and flags.
#[derive(Debug)]
struct Disposition(usize, c_int);

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

/// `_vmprof` is about to get its buffers (`on`), or has them.
pub fn await_buffers(on: bool) {
    // In the child of a fork, the lock may be held by a thread that does not exist there.
    if let Some(place) = PREPARATION.try_lock()
        && let Some(preparation) = place.as_ref()
    {
        for redirect in &preparation.mappings {
            // If it fails, the buffers are not found, or the hook stays and only calls the original.
            let _ = redirect.turn(on);
        }
    }
}

impl Preparation {
    fn new() -> Result<Self, String> {
        let library = Library::of_this_process().ok_or("this interpreter is not PyPy")?;
        // SAFETY: zero is a valid value of the struct, which the call fills in.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only reads the current action.
        unsafe { libc::sigaction(libc::SIGPROF, std::ptr::null(), &raw mut action) };
        if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN {
            return Err("another profiler is using SIGPROF; stop it first".to_owned());
        }
        Vmprof::prepare()?;
        let mut preparation = Self {
            redirects: Vec::new(),
            mappings: Vec::new(),
            sigprof: Disposition(action.sa_sigaction, action.sa_flags),
        };
        let map = MemoryMap::read()?;
        for (name, function) in [
            (c"write", write_hook as *const () as usize),
            (c"lseek", lseek_hook as *const () as usize),
            (c"lseek64", lseek_hook as *const () as usize),
            (c"mmap", mmap_hook as *const () as usize),
            (c"mmap64", mmap_hook as *const () as usize),
        ] {
            let slots = library.import_slots(name);
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
        Ok(preparation)
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

    fn undo(self) {
        self.turn_off();
        let Disposition(handler, flags) = self.sigprof;
        if !Vmprof::is_taken_away() {
            // SAFETY: restores the action that `prepare` found: the default, or to ignore the signal.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                (action.sa_sigaction, action.sa_flags) = (handler, flags);
                libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut());
            }
        }
    }
}
