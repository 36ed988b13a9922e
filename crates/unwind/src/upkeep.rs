//! Who knows the modules, and when they are looked for.
//!
//! ```text
//! any thread, in a sample:  Unwinder: modules as they were, a walk ─▶ frames, or WANTED and a copy of the stack
//! the writer thread:        keep_up: Watch: /proc/self/maps, files ─▶ new modules ─▶ Unwinder; stacks completed
//! ```
//!
//! A sample is taken inside of `malloc`, and holds the session's lock. So it reads no files: the writer thread does, which
//! holds no lock meanwhile. The lock is taken to put the new modules in place, and to complete the stacks that
//! waited for them.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use nthbyte_host::clock::monotonic_nanos;
use nthbyte_host::process::Probe;
use nthbyte_host::threads::in_own_thread;
use nthbyte_profile::event::{LostKind, NodeId};
use nthbyte_session::{Recording, RecordingCell, Session, guarded, native, record_now};

use crate::bounds;
use crate::copied::UnfinishedWalk;
use crate::looks;
use crate::modules::Modules;
use crate::processor::IS_KNOWN;
use crate::walker::Unwinder;

/// After this time, in nanoseconds, there is a look for modules that were unloaded and replaced, if there was a walk.
const LOOK_AFTER: u64 = 1_000_000_000;

static UNWINDER: RecordingCell<Option<Unwinder>> = RecordingCell::new(None);

/// The watch, for the thread that has put its process's number into `user`.
struct Watched {
    user: AtomicI32,
    watch: UnsafeCell<Option<Watch>>,
}

// SAFETY: only the thread that has set `user` uses the content.
unsafe impl Sync for Watched {}

static WATCH: Watched = Watched {
    user: AtomicI32::new(0),
    watch: UnsafeCell::new(None),
};

/// The loaded modules, as far as the last look knows.
struct Watch {
    modules: Modules,
    own: Vec<usize>,
    looked: u64,
    /// Whether the unwinder has older modules.
    is_ahead: bool,
    /// Whether stacks may wait that need nothing but the last look. A new one may find a library gone that they need.
    is_needed: bool,
}

/// Whether the system allows a process to read itself through the kernel, so that there are native stacks.
#[must_use]
pub fn is_possible() -> bool {
    IS_KNOWN && Probe::new().is_some()
}

/// Begins to know the modules in a session: looks at all that are loaded. Frames of the library that has this crate, and of
/// the one for native memory, count as nthbyte's own. Returns false where native stacks are not possible.
pub fn begin(session: &Session) -> bool {
    let mut own = vec![begin as fn(&Session) -> bool as usize];
    own.extend(native::interface().map(|library| library.connect as usize));
    learn_modules(session, own)
}

/// Does the same in a program that has this crate in itself: no module is nthbyte's own, and each walk is told how far
/// nthbyte's frames reach ([`Unwinder::place_from`]).
pub fn begin_in_program(session: &Session) -> bool {
    learn_modules(session, Vec::new())
}

/// Looks at all that is loaded, for the session's unwinder and the looks after this one.
fn learn_modules(session: &Session, own: Vec<usize>) -> bool {
    let Some(memory) = Probe::new().filter(|_| IS_KNOWN) else {
        return false;
    };
    // Not later, in the writer thread: the program may be interrupted inside `malloc` and end then.
    in_own_thread(bounds::learn);
    let mut modules = Modules::new();
    modules.refresh(memory, &own);
    let unwinder = Unwinder::with(memory, modules.clone());
    let watch = Watch {
        modules,
        own,
        looked: monotonic_nanos(),
        is_ahead: false,
        is_needed: false,
    };
    // An earlier session's writer thread has ended, unless it waits for a disk.
    if with_watch(|place| *place = Some(watch)).is_none() {
        return false;
    }
    let Some(mut recording) = session.record(LostKind::Other) else {
        return false;
    };
    *UNWINDER.with(&mut recording) = Some(unwinder);
    true
}

/// The unwinder of the session. `None` without one.
///
/// # Safety
/// There is a recording as long as the reference is used, and no other reference from this function.
#[must_use]
pub unsafe fn unwinder() -> Option<&'static mut Unwinder> {
    // SAFETY: by the contract.
    unsafe { UNWINDER.beside_recording() }.as_mut()
}

/// Looks at the loaded modules, if there is a reason, and completes the stacks that wait for it. A host with native stacks
/// calls it in [`Host::prepare`](nthbyte_session::Host::prepare). The thread that ends the session calls it, too, which may
/// have been interrupted inside `malloc`.
pub fn keep_up() {
    let wanted = looks::take_wanted();
    if !wanted && !looks::has_walked() {
        return;
    }
    guarded(|| with_watch(|watch| look(watch.as_mut()?, wanted)));
}

fn look(watch: &mut Watch, wanted: bool) -> Option<()> {
    let now = monotonic_nanos();
    if !wanted && now.wrapping_sub(watch.looked) < LOOK_AFTER {
        return None;
    }
    if !watch.is_needed {
        watch.looked = now;
        // Before the look: a module loaded from here on may be missing in it.
        looks::begin();
        watch.is_ahead |= watch.modules.refresh(Probe::new()?, &watch.own);
    }
    let mut new = watch.is_ahead.then(|| watch.modules.clone());
    if new.is_none() && !wanted {
        return None;
    }
    watch.is_needed = true;
    let Some(mut recording) = record_now() else {
        looks::want();
        return None;
    };
    // SAFETY: there is a recording, and the reference is not used after this statement.
    let is_there = unsafe { unwinder() }.map(|unwinder| {
        if let Some(new) = &mut new {
            unwinder.exchange(new);
        }
        unwinder.has_looked(looks::last());
    });
    is_there?;
    watch.is_ahead = false;
    watch.is_needed = !native::complete(&mut recording);
    if native::are_waiting(&mut recording) {
        looks::want();
    }
    drop(recording);
    // Unused tables are unmapped without the lock.
    drop(new);
    Some(())
}

/// Calls `work` with the watch. `None` if another thread uses it.
///
/// In the child of a fork, a thread that used it at the fork is not there any more. It has left the watch half changed,
/// so another one begins, and nothing of the old one is touched.
fn with_watch<T>(work: impl FnOnce(&mut Option<Watch>) -> T) -> Option<T> {
    let process = std::process::id().cast_signed();
    let user = WATCH.user.load(Relaxed);
    if user == process
        || WATCH
            .user
            .compare_exchange(user, process, Acquire, Relaxed)
            .is_err()
    {
        return None;
    }
    let place = WATCH.watch.get();
    if user != 0 {
        // SAFETY: this thread has set `user`. `own` does not change after the watch was made.
        unsafe {
            let own = (*place).as_ref().map(|watch| watch.own.clone());
            let fresh = own.map(|own| Watch {
                modules: Modules::new(),
                own,
                looked: 0,
                is_ahead: true,
                is_needed: false,
            });
            place.write(fresh);
        }
    }
    // SAFETY: this thread has set `user`.
    let result = work(unsafe { &mut *place });
    WATCH.user.store(0, Release);
    Some(result)
}

impl native::UnfinishedStack for UnfinishedWalk {
    fn is_ready(&self, _: &mut Recording<'_>) -> bool {
        // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
        unsafe { unwinder() }.is_none_or(|unwinder| unwinder.knows(self))
    }

    fn bytes(&self) -> usize {
        Self::bytes(self)
    }

    fn stack(self: Box<Self>, recording: &mut Recording<'_>) -> Option<NodeId> {
        // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
        let unwinder = unsafe { unwinder() }?;
        unwinder.resume(&self);
        unwinder.stack(recording)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use nthbyte_profile::Method;
    use nthbyte_session::{Config, Host};

    use super::*;
    use crate::maps::{self, CodeMapping};

    struct Plain;

    impl Host for Plain {}

    /// Whether the watch knows the code at this address, and the number of changes that the unwinder has seen.
    fn known(session: &Session, address: usize) -> (bool, u64) {
        let is_known =
            with_watch(|watch| watch.as_ref().unwrap().modules.find(address, 0).is_some());
        let _recording = session.record(LostKind::Other).unwrap();
        // SAFETY: there is a recording, and the reference is not used after this statement.
        let generation = unsafe { unwinder() }.unwrap().generation();
        (is_known.unwrap(), generation)
    }

    #[test]
    fn nothing_new_is_looked_at_before_the_last_look_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("looks.nthb");
        let text =
            format!(r#"{{"output": {output:?}, "period": 512, "distances": "exponential"}}"#);
        let config = Config::parse(&text).unwrap();
        let meta = config.meta(Method::NurseryLimit, 1, Vec::new());
        let session = Session::start(&config, meta, &Plain).unwrap();
        if !learn_modules(&session, Vec::new()) {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        }
        let load = |name: &str| {
            let name = CString::new(name).unwrap();
            // SAFETY: mathematical functions, whose library may be loaded at any time, and twice.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            assert!(!handle.is_null(), "{name:?}");
            handle
        };
        let mapping = |path: &str| {
            let of_path = |one: &CodeMapping| one.path.ends_with(path);
            maps::read().into_iter().find(of_path).unwrap()
        };
        load("libm.so.6");
        let copied = folder.path().join("copied.so");
        std::fs::copy(mapping("/libm.so.6").path, &copied).unwrap();
        let handle = load(copied.to_str().unwrap());
        let address = mapping(copied.to_str().unwrap()).range.start;
        let look = || {
            looks::walked(false);
            keep_up();
        };
        assert_eq!(known(&session, address), (false, 0));
        // There is no recording now, for another one is under way.
        let recording = session.record(LostKind::Other).unwrap();
        look();
        drop(recording);
        assert_eq!(known(&session, address), (true, 0));
        // SAFETY: nothing of the library is used.
        assert_eq!(unsafe { libc::dlclose(handle) }, 0);
        // What waits for the first look may need the library.
        look();
        assert_eq!(known(&session, address), (true, 1));
        look();
        assert_eq!(known(&session, address), (false, 2));
        // A library that comes where an address was looked up in vain: the next look finds it, a second later, and the
        // address is not in vain any more.
        load(copied.to_str().unwrap());
        let address = mapping(copied.to_str().unwrap()).range.start;
        let in_vain = || {
            let _recording = session.record(LostKind::Other).unwrap();
            // SAFETY: there is a recording, and the reference is not used after this statement.
            unsafe { unwinder() }.unwrap().in_vain().clone()
        };
        {
            let _recording = session.record(LostKind::Other).unwrap();
            // SAFETY: as above.
            unsafe { unwinder() }.unwrap().in_vain().push(address >> 16);
        }
        looks::walked(true);
        with_watch(|watch| watch.as_mut().unwrap().looked = 0);
        keep_up();
        assert_eq!(known(&session, address), (true, 3));
        assert!(in_vain().is_empty());
        session.finish(None);
    }
}
