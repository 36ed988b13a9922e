//! One session with the collector hooked, from start to stop.

use std::ffi::CStr;
use std::sync::{Mutex, TryLockError};

use nthbyte_profile::holders::Reason;
use nthbyte_profile::{Distances, Method};
use nthbyte_sampling::{Period, Sampler};

use nthbyte_session::snapshots::due;
use nthbyte_session::{
    Config, Counted, Mark, RUNNING_ALREADY, Rate, Session, SessionOutcome, native, record_now,
    record_waiting, snapshots, timers,
};

use super::python::{self, PypySettings, Wanted, allocate};
use crate::collector::{
    Engine, Remains, Statistics, calloc_hook, find_sites, free_hook, hooks, malloc_hook,
};
use crate::compiler;
use crate::gil_trap::GilTrap;
use crate::holders::{self, Asked};
use crate::host::HOST;
use crate::stacks::{FrameList, Vmprof, keep_names, native as native_stacks, ticks};
use nthbyte_rpython::binary::{
    CallSite, Collector, Detour, MappedLibrary, MemoryMap, Redirect, debug_sections, entry,
};
use nthbyte_rpython::{HookedFunction, Majors, Nursery};

/// The search refuses a larger nursery.
const LARGEST_NURSERY: usize = 1 << 32;

const NO_TYPES: &str =
    "the types have no names: another thread held them when this process was forked";

const NO_COMPILER: &str =
    "what this PyPy's JIT compiler does was not found; the profile has nothing of it";

/// A running session.
#[derive(Debug)]
struct Running {
    hooks: Vec<Detour>,
    /// The calls that allocate large objects; empty if one of them cannot be changed.
    calls: Vec<CallSite>,
    /// The library's imports of `malloc` and `calloc`. They are redirected until the calls are changed, or else for
    /// the whole session. The redirection is short because a call of a Python function in the interpreter costs PyPy a
    /// `malloc` and a `free` (`rvmprof.enter_code`).
    allocators: Vec<Redirect>,
    /// Sentences for the reader of the profile.
    notes: Vec<String>,
    /// The seed of the distances of native memory; `None` if it is not recorded.
    native_seed: Option<u64>,
}

/// Locked while a session is started or stopped. Starting and stopping run Python code, so a signal handler in the same
/// thread may start or stop a session meanwhile. Therefore no thread waits for the lock.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Starts the session of this process.
///
/// # Errors
/// One line that says why the hook cannot be placed, with the library's build id.
pub fn start(config: &Config) -> Result<(), String> {
    let mut place = RUNNING.try_lock().map_err(|why| match why {
        TryLockError::WouldBlock => "a session is being started or stopped; try again later",
        TryLockError::Poisoned(_) => "an earlier start failed halfway",
    })?;
    if place.is_some() {
        return Err(RUNNING_ALREADY.to_owned());
    }
    *place = Some(Running::start(config)?);
    Ok(())
}

/// Stops the session of this process and returns its result. `None` if there is no session, or one is being started
/// or stopped.
pub fn stop() -> Option<SessionOutcome> {
    let mut place = RUNNING.try_lock().ok()?;
    let running = place.take()?;
    Some(running.stop())
}

/// What the session of this process has recorded so far. `None` if there is no session, or one is being started or stopped.
pub fn mark() -> Option<Mark> {
    RUNNING.try_lock().ok()?.as_ref()?;
    record_waiting(&HOST);
    let mut mark = None;
    with_lock(|| mark = Engine::mark());
    mark
}

/// Takes a snapshot of who holds what: see [`holders::take`]. `bytes` are in use by objects.
///
/// # Errors
/// One clause that says why there is none.
pub fn snapshot(reason: Reason, whatever: bool, bytes: u64) -> Result<(), String> {
    // Until the copy is made: nothing else asks Python for an allocation meanwhile.
    let place = RUNNING
        .try_lock()
        .map_err(|_| "a session is being started or stopped")?;
    if place.is_none() {
        return Err("no recording is running".to_owned());
    }
    let time = record_now().map(|recording| recording.now());
    let asked = Asked {
        time: time.ok_or("it cannot be recorded now")?,
        reason,
        whatever,
        bytes,
    };
    let taken = holders::take(asked, |action| {
        GilTrap::run(|size| allocate(Wanted::Snapshot, size), action)
    });
    if let Err(why) = &taken
        && due::is_worth_a_remark(asked.time, reason)
    {
        snapshots::not_taken(asked.time, reason, why);
    }
    taken
}

impl Running {
    fn start(config: &Config) -> Result<Self, String> {
        let library = MappedLibrary::of_this_process().ok_or("this interpreter is not PyPy")?;
        let refuse = |why: String| {
            let build = if library.build_id.is_empty() {
                "none"
            } else {
                &library.build_id
            };
            format!(
                "cannot sample inside {} (build id {build}): {why}",
                config.interpreter
            )
        };
        let period = match config.distances {
            Distances::Every => Period::EVERY,
            _ => Period::new(config.period)
                .ok_or_else(|| format!("a period of {} is not possible", config.period))?,
        };
        let settings = PypySettings::read(&config.pypy);
        let mut collector = Collector::find(&library).map_err(refuse)?;
        check(&collector, &settings).map_err(refuse)?;
        let map = MemoryMap::read().map_err(refuse)?;
        let detour = |function: HookedFunction, target| function.detour(&library, &map, target);
        let mut hooks = vec![
            detour(hooks::reserve(), collector.reserve).map_err(refuse)?,
            detour(hooks::minor(), collector.minor).map_err(refuse)?,
        ];
        if let Some(major) = collector.major {
            match detour(hooks::major_step(), major.step) {
                Ok(detour) => hooks.push(detour),
                // The session continues without major collections, and a note says so.
                Err(_) => collector.major = None,
            }
        }
        let sections = library.functions.as_ref().and_then(|functions| {
            debug_sections(library.code(), library.text.start, &collector, functions)
        });
        let mut compiler = Vec::new();
        if let Some(sections) = sections {
            for (target, function) in [
                (sections.start, compiler::start_function()),
                (sections.stop, compiler::stop_function()),
            ] {
                compiler.extend(detour(function, target));
            }
        }
        // Both or none.
        let knows_compiler = compiler.len() == 2;
        if knows_compiler {
            hooks.append(&mut compiler);
        }
        let free = free_hook as *const () as usize;
        let frees = imports(&library, c"free", free, &map).map_err(refuse)?;
        let mut running = Self {
            hooks,
            calls: Vec::new(),
            allocators: allocators(&library, &map).map_err(refuse)?,
            notes: Vec::new(),
            native_seed: None,
        };
        if !knows_compiler {
            running.notes.push(NO_COMPILER.to_owned());
        }
        let started = running
            .prepare(&library, &map)
            .map_err(refuse)
            .and_then(|()| {
                let seed = config.seed();
                running.native_seed = config.native.then_some(seed);
                native_stacks::set_library(&library);
                let rate = config.cpu_hz.map(Rate::possible);
                let config = &Config {
                    cpu_hz: rate.map(Rate::hz),
                    ..config.clone()
                };
                let mut meta = config.meta(Method::NurseryLimit, seed, settings.notes);
                meta.notes.extend(rate.and_then(Rate::note));
                if config.native {
                    native::add_sources(&mut meta, Method::Preload, config.native_period());
                }
                let session = Session::start(config, meta, &HOST)?;
                let vmprof = Vmprof::attach(
                    config.cpu_hz.is_some(),
                    FrameList::sought(library.thread_local.clone()),
                )?;
                if let Some(rate) = rate {
                    ticks::begin(rate, seed)?;
                }
                let sampler = Sampler::new(period, config.distances, seed);
                running
                    .begin(
                        &collector,
                        session,
                        vmprof,
                        sampler,
                        settings.nursery_size,
                        frees,
                    )
                    .map_err(refuse)
            });
        if let Err(why) = started {
            timers::end();
            running.restore_imports();
            return Err(why);
        }
        Ok(running)
    }

    /// Finds the calls that allocate large objects.
    fn prepare(&mut self, library: &MappedLibrary, map: &MemoryMap) -> Result<(), String> {
        let sites = find_sites(|size| allocate(Wanted::LargeOfEachKind, size))?;
        self.calls = calls(library, sites, &self.allocators, map).unwrap_or_default();
        Ok(())
    }

    /// Places the hooks and starts sampling, with the interpreter's lock held.
    fn begin(
        &mut self,
        collector: &Collector,
        session: Session,
        vmprof: Vmprof,
        sampler: Sampler,
        nursery_size: Option<usize>,
        frees: Vec<Redirect>,
    ) -> Result<(), String> {
        let mut placed = Ok(());
        let mut has_types = true;
        let held = with_lock(|| {
            compiler::forget();
            placed = self.place_hooks();
            if placed.is_err() {
                self.remove_hooks();
                return;
            }
            if !self.calls.is_empty() {
                // Not later: when the engine has begun, threads with the lock redirect `free`, perhaps in the same page.
                self.restore_imports();
            }
            // SAFETY: the search found the struct's address and the fields' offsets, and `check` saw
            // the pointers move.
            let nursery = unsafe {
                Nursery::begin(
                    (collector.gc + collector.nursery_free) as *mut usize,
                    (collector.gc + collector.nursery_top) as *mut usize,
                    sampler,
                )
            };
            let types = python::take_types();
            has_types = types.is_some();
            if let Some(seed) = self.native_seed {
                native::connect(&session, seed, &[]);
            }
            Engine::begin(
                nursery,
                session,
                vmprof,
                types.unwrap_or_default(),
                Statistics::new(nursery_size),
                collector
                    .major
                    .and_then(|major| Majors::new(collector.gc + major.state)),
                frees,
            );
        });
        if !has_types {
            self.notes.push(NO_TYPES.to_owned());
        }
        if !held {
            return Err("it did not allocate where it was expected to".to_owned());
        }
        placed
    }

    /// Places the hooks, with the interpreter's lock held, inside the `malloc` call for a large object.
    fn place_hooks(&self) -> Result<(), String> {
        for hook in &self.hooks {
            // SAFETY: the collector's functions are called with the lock held, so no other thread is about to enter
            // them, and this thread is in none of them.
            unsafe { hook.place() }?;
        }
        for call in &self.calls {
            // SAFETY: large objects are allocated with the lock held, so no other thread is about to make these calls.
            unsafe { call.place() }?;
        }
        Ok(())
    }

    fn stop(mut self) -> SessionOutcome {
        timers::end();
        native::disconnect();
        let mut remains = None;
        if !with_lock(|| remains = self.end()) {
            // The interpreter does not allocate any more: it is about to exit, and this is its last thread.
            remains = self.end();
        }
        self.restore_imports();
        let Some(mut remains) = remains else {
            return SessionOutcome::default();
        };
        // Before `_vmprof` is given up, which has the names.
        record_waiting(&HOST);
        if let Some(mut recording) = record_now() {
            keep_names(&mut recording);
        }
        drop(remains.vmprof);
        python::keep_types(std::mem::take(&mut remains.types));
        let mut outcome = remains.session.finish(Some(Counted {
            allocated: remains.allocated,
            blocks: Some(remains.allocated),
        }));
        outcome.notes.extend(remains.notes);
        outcome.notes.append(&mut self.notes);
        outcome
    }

    /// Stops sampling and removes the hooks, with the interpreter's lock held.
    fn end(&self) -> Option<Remains> {
        let remains = Engine::end(python::take_thread_names());
        self.remove_hooks();
        remains
    }

    /// Removes the placed hooks, with the interpreter's lock held.
    fn remove_hooks(&self) {
        for hook in &self.hooks {
            // SAFETY: as in `place_hooks`. If it fails, the hook stays and only calls the original.
            let _ = unsafe { hook.remove() };
        }
        for call in &self.calls {
            // SAFETY: as in `place_hooks`. If it fails, the hook stays and only calls the original.
            let _ = unsafe { call.remove() };
        }
    }

    /// Restores the imports of `malloc` and `calloc`.
    fn restore_imports(&mut self) {
        for redirect in self.allocators.drain(..) {
            // If it fails, the import stays redirected, and the hook only calls the original.
            let _ = redirect.turn(false);
        }
    }
}

/// Runs `action` with the interpreter's lock held. Returns whether that was possible.
fn with_lock(action: impl FnOnce()) -> bool {
    GilTrap::run(|size| allocate(Wanted::OneLarge, size), action)
}

/// Compares the results of the search with values that can be observed.
fn check(collector: &Collector, settings: &PypySettings) -> Result<(), String> {
    let read = |offset: usize| {
        // SAFETY: the address lies in the library's writable memory (`search` looked).
        unsafe { ((collector.gc + offset) as *const usize).read_volatile() }
    };
    let most = settings.nursery_size.unwrap_or(LARGEST_NURSERY);
    let mut checked = Ok(());
    // The lock is not held: another thread may be in a collection, which sets nursery_free to 0 meanwhile.
    for _ in 0..GilTrap::TRIES {
        let (free, top) = (read(collector.nursery_free), read(collector.nursery_top));
        allocate(Wanted::Small, 0);
        let moved = read(collector.nursery_free);
        checked = if moved == free {
            Err("nursery_free does not move when Python allocates".to_owned())
        } else {
            check_nursery(free, top, moved, most)
        };
        if checked.is_ok() {
            break;
        }
    }
    checked
}

/// Checks the nursery's two pointers, the first one also after an allocation.
fn check_nursery(free: usize, top: usize, moved: usize, most: usize) -> Result<(), String> {
    if free == 0
        || !free.is_multiple_of(8)
        || !top.is_multiple_of(8)
        || free > top
        || moved.abs_diff(free) > LARGEST_NURSERY
    {
        return Err(format!(
            "implausible nursery: nursery_free {free:#x}, nursery_top {top:#x}"
        ));
    }
    if top - free > most {
        return Err(format!(
            "nursery_top is further from nursery_free than the nursery's {most} bytes"
        ));
    }
    Ok(())
}

/// Redirects the library's `malloc` and `calloc`.
fn allocators(library: &MappedLibrary, map: &MemoryMap) -> Result<Vec<Redirect>, String> {
    let mut redirects = imports(library, c"malloc", entry::malloc(malloc_hook), map)?;
    redirects.extend(imports(
        library,
        c"calloc",
        entry::calloc(calloc_hook),
        map,
    )?);
    for (turned, redirect) in redirects.iter().enumerate() {
        if let Err(why) = redirect.turn(true) {
            redirects[..turned]
                .iter()
                .for_each(|one| _ = one.turn(false));
            return Err(why);
        }
    }
    Ok(redirects)
}

/// The calls with these return addresses. `None` if one of them is a kind of call that cannot be changed.
fn calls(
    library: &MappedLibrary,
    sites: &[usize],
    allocators: &[Redirect],
    map: &MemoryMap,
) -> Option<Vec<CallSite>> {
    let (code, text) = (library.code(), library.text.start);
    let prepare = |&site| CallSite::prepare(code, text, site, allocators, map);
    sites.iter().map(prepare).collect()
}

/// The library's imports of a function, prepared for a redirection to `function`, which has the
/// same type.
fn imports(
    library: &MappedLibrary,
    name: &CStr,
    function: usize,
    map: &MemoryMap,
) -> Result<Vec<Redirect>, String> {
    let slots = library.import_slots(name);
    if slots.is_empty() {
        return Err(format!(
            "the library does not import {}",
            name.to_string_lossy()
        ));
    }
    // SAFETY: the slots are the library's imports of `name`, and the callers pass a function of the same type.
    unsafe { Redirect::prepare(&slots, function, map) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_that_are_no_nursery_are_refused() {
        const MOST: usize = 4 << 20;
        let start = 0x7f00_0000_1000;
        let check = |free, top, moved| check_nursery(free, top, moved, MOST);
        assert_eq!(check(start, start + MOST, start + 16), Ok(()));
        // The nursery was full, and the collection began again at another place.
        assert_eq!(check(start, start, start - LARGEST_NURSERY), Ok(()));
        for (free, top, moved) in [
            (0, MOST, 16),
            (start + 4, start + MOST, start + 16),
            (start, start + MOST - 4, start + 16),
            (start + 16, start + 8, start + 32),
            (start, start + MOST, start + LARGEST_NURSERY + 8),
        ] {
            let refused = check(free, top, moved).unwrap_err();
            assert!(refused.contains("implausible"), "{refused}");
        }
        let refused = check(start, start + MOST + 8, start + 16).unwrap_err();
        assert!(refused.contains("further"), "{refused}");
    }
}
