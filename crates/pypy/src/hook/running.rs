//! One session on PyPy, from start to stop.

use std::ffi::{CStr, c_int};
use std::sync::{Mutex, OnceLock, TryLockError};

use nthbyte_profile::{Distances, Method};
use nthbyte_sampling::{Period, Sampler};

use super::chain::Chain;
use super::engine::hooks::Hooked;
use super::engine::{Engine, Remains};
use super::exports;
use super::large;
use super::library::Library;
use super::majors::Majors;
use super::nursery::Nursery;
use super::patch::{CallSite, Detour, Redirect};
use super::search::{Collector, LARGE_OBJECT, search};
use super::statistics::Statistics;
use super::trap::Trap;
use super::vmprof::Vmprof;
use nthbyte_session::{Config, Outcome, Session};

/// What Python is asked to do: `kind` is one of the constants below, `size` in bytes.
type Allocate = unsafe extern "C" fn(kind: c_int, size: usize);

/// Allocate a few small objects.
const SMALL: c_int = 0;
/// Allocate large objects of each kind, of `size` bytes, and one that is [`Trap::ROOM`] larger; drop them.
const LARGE_KINDS: c_int = 1;
/// Allocate one object of `size` bytes, and drop it.
const ONE_LARGE: c_int = 2;

/// No nursery is larger than this.
const LARGEST_NURSERY: usize = 1 << 32;

/// A session that is on.
#[derive(Debug)]
struct Running {
    allocate: Allocate,
    hooks: Vec<Detour>,
    /// The calls that allocate large objects; none if one of them could not be made out.
    calls: Vec<CallSite>,
    /// `malloc` and `calloc` as the library imports them: redirected until the calls are, or for the whole session. An
    /// interpreted call costs PyPy a `malloc` and a `free` (`rvmprof.enter_code`).
    allocators: Vec<Redirect>,
}

std::arch::global_asm!(
    // What is not about large objects passes at two instructions. The hooks get the place that the call returns to
    // as one more argument.
    ".p2align 4",
    ".hidden nthbyte_malloc_entry",
    ".globl nthbyte_malloc_entry",
    "nthbyte_malloc_entry:",
    "cmp rdi, {large}",
    "jb 2f",
    "mov rsi, [rsp]",
    "jmp {malloc}",
    "2:",
    "jmp qword ptr [rip + malloc@GOTPCREL]",
    ".p2align 4",
    ".hidden nthbyte_calloc_entry",
    ".globl nthbyte_calloc_entry",
    "nthbyte_calloc_entry:",
    "mov rax, rdi",
    "mul rsi",
    "jo 2f",
    "cmp rax, {large}",
    "jb 2f",
    "mov rdx, [rsp]",
    "jmp {calloc}",
    "2:",
    "jmp qword ptr [rip + calloc@GOTPCREL]",
    large = const LARGE_OBJECT,
    malloc = sym large::malloc_hook,
    calloc = sym large::calloc_hook,
);

unsafe extern "C" {
    fn nthbyte_malloc_entry();
    fn nthbyte_calloc_entry();
}

/// Held while a session is started or stopped, which runs Python: a signal handler may ask for either meanwhile, in the
/// same thread. So nobody waits for it.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Starts the session of this process.
///
/// # Errors
/// One line: why the hook cannot be placed, with the library's build id.
pub fn start(config: &Config) -> Result<(), String> {
    let mut place = RUNNING.try_lock().map_err(|why| match why {
        TryLockError::WouldBlock => "a session is being started or stopped; try again later",
        TryLockError::Poisoned(_) => "an earlier start failed halfway",
    })?;
    if place.is_some() {
        return Err("a session is on already; stop it first".to_owned());
    }
    *place = Some(Running::start(config)?);
    Ok(())
}

/// Stops the session of this process: what came of it. `None` if there
/// is none, or another is being started or stopped.
pub fn stop() -> Option<Outcome> {
    let mut place = RUNNING.try_lock().ok()?;
    let running = place.take()?;
    Some(running.stop())
}

impl Running {
    fn start(config: &Config) -> Result<Self, String> {
        let library = Library::of_this_process().ok_or("this interpreter is not PyPy")?;
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
        let distances = match config.distances {
            Distances::Exponential => nthbyte_sampling::Distances::Exponential,
            Distances::Fixed | Distances::Every => nthbyte_sampling::Distances::Fixed,
        };
        let settings = exports::Settings::read(&config.pypy);
        let mut collector = collector(&library).map_err(refuse)?;
        check(&collector, &settings).map_err(refuse)?;
        let mut hooks = vec![
            detour(&library, collector.reserve, &Hooked::reserve()).map_err(refuse)?,
            detour(&library, collector.minor, &Hooked::minor()).map_err(refuse)?,
        ];
        if let Some(major) = collector.major {
            match detour(&library, major.step, &Hooked::major_step()) {
                Ok(detour) => hooks.push(detour),
                // There is a session all the same.
                Err(_) => collector.major = None,
            }
        }
        let free = large::free_hook as *const () as usize;
        let frees = imports(&library, c"free", free).map_err(refuse)?;
        let mut running = Self {
            allocate: settings.allocate,
            hooks,
            calls: Vec::new(),
            allocators: allocators(&library).map_err(refuse)?,
        };
        let started = running.prepare(&library).map_err(refuse).and_then(|()| {
            let seed = config.seed();
            let session = Session::start(
                config,
                config.meta(Method::NurseryLimit, seed, settings.notes),
            )?;
            let vmprof = Vmprof::attach(
                config.cpu_hz.is_some(),
                Chain::sought(library.thread_local.clone()),
            )?;
            let sampler = Sampler::new(period, distances, seed);
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
            running.take_out();
            return Err(why);
        }
        if !running.calls.is_empty() {
            running.take_out();
        }
        Ok(running)
    }

    /// Makes out the calls that allocate large objects.
    fn prepare(&mut self, library: &Library) -> Result<(), String> {
        let sites = large::find_sites(|size| self.allocate(LARGE_KINDS, size))?;
        self.calls = calls(library, sites, &self.allocators).unwrap_or_default();
        Ok(())
    }

    /// Places the hooks and switches sampling on, with the interpreter's lock held.
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
        let held = self.with_lock(|| {
            placed = self.place();
            if placed.is_err() {
                self.unplace();
                return;
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
            Engine::begin(
                nursery,
                session,
                vmprof,
                exports::take_types(),
                Statistics::new(nursery_size),
                collector
                    .major
                    .and_then(|major| Majors::new(collector.gc + major.state)),
                frees,
            );
        });
        if !held {
            return Err("it did not allocate where it was expected to".to_owned());
        }
        placed
    }

    /// Puts the hooks in, with the interpreter's lock held, inside of the `malloc` that the allocation of a large object
    /// has called.
    fn place(&self) -> Result<(), String> {
        for hook in &self.hooks {
            // SAFETY: the collector's functions are entered with the lock held, so no other thread is about to enter them,
            // and this one is in none of them.
            unsafe { hook.place() }?;
        }
        for call in &self.calls {
            // SAFETY: large objects are allocated with the lock held, so no other thread is about to make these calls.
            unsafe { call.place() }?;
        }
        Ok(())
    }

    /// Stops the session.
    fn stop(mut self) -> Outcome {
        let mut remains = None;
        if !self.with_lock(|| remains = self.end()) {
            // The interpreter does not allocate any more: it is going away, with this thread alone.
            remains = self.end();
        }
        self.take_out();
        let Some(mut remains) = remains else {
            return Outcome::default();
        };
        drop(remains.vmprof);
        exports::keep_types(std::mem::take(&mut remains.types));
        let mut outcome = remains.session.finish(Some(remains.allocated));
        outcome.notes.extend(remains.notes);
        outcome
    }

    /// Switches sampling off and takes the hooks out, with the interpreter's lock held.
    fn end(&self) -> Option<Remains> {
        let remains = Engine::end();
        self.unplace();
        remains
    }

    /// Takes the hooks out, as far as they are in, with the interpreter's lock held.
    fn unplace(&self) {
        for hook in &self.hooks {
            // SAFETY: as in `place`. If it fails the hook stays, and calls the original from now on.
            let _ = unsafe { hook.remove() };
        }
        for call in &self.calls {
            // SAFETY: as in `place`. If it fails the call goes through the hook, which passes everything on.
            let _ = unsafe { call.remove() };
        }
    }

    /// Puts the import slots back.
    fn take_out(&mut self) {
        for redirect in self.allocators.drain(..) {
            redirect.turn(false);
        }
    }

    /// Calls `action` with the interpreter's lock held. Whether that was possible.
    fn with_lock(&self, action: impl FnOnce()) -> bool {
        Trap::run(|size| self.allocate(ONE_LARGE, size), action)
    }

    fn allocate(&self, kind: c_int, size: usize) {
        // SAFETY: the session is started and stopped from Python, which can be called then.
        unsafe { (self.allocate)(kind, size) };
    }
}

/// The collector; it is searched for once in the life of a process.
///
/// # Errors
/// See [`search`].
pub fn collector(library: &Library) -> Result<Collector, String> {
    static COLLECTOR: OnceLock<Collector> = OnceLock::new();
    if let Some(&known) = COLLECTOR.get() {
        return Ok(known);
    }
    let found = search(library.code(), library.text.start, &library.data)?;
    Ok(*COLLECTOR.get_or_init(|| found))
}

/// Holds what was found against what can be seen of it from outside.
fn check(collector: &Collector, settings: &exports::Settings) -> Result<(), String> {
    let read = |offset: usize| {
        // SAFETY: the address lies in the library's writable memory (`search` looked).
        unsafe { ((collector.gc + offset) as *const usize).read_volatile() }
    };
    let (free, top) = (read(collector.nursery_free), read(collector.nursery_top));
    let moved = (0..Trap::TRIES).find_map(|_| {
        // SAFETY: as in `allocate`.
        unsafe { (settings.allocate)(SMALL, 0) };
        let now = read(collector.nursery_free);
        (now != free).then_some(now)
    });
    let Some(moved) = moved else {
        return Err("nursery_free does not move when Python allocates".to_owned());
    };
    if free == 0
        || free % 8 != 0
        || top % 8 != 0
        || free > top
        || moved.abs_diff(free) > LARGEST_NURSERY
    {
        return Err(format!(
            "implausible nursery: nursery_free {free:#x}, nursery_top {top:#x}"
        ));
    }
    let most = settings.nursery_size.unwrap_or(LARGEST_NURSERY);
    if top - free > most {
        return Err(format!(
            "nursery_top is further from nursery_free than the nursery's {most} bytes"
        ));
    }
    Ok(())
}

/// The hook of a function at `target`, ready to be placed.
fn detour(library: &Library, target: usize, hooked: &Hooked) -> Result<Detour, String> {
    let detour = Detour::prepare(library.code(), library.text.start, target, hooked.hook)
        .map_err(|why| format!("{} cannot be hooked: {why}", hooked.name))?;
    hooked.moved_to(detour.original());
    Ok(detour)
}

/// Redirects the library's `malloc` and `calloc`.
fn allocators(library: &Library) -> Result<Vec<Redirect>, String> {
    let mut redirects = imports(
        library,
        c"malloc",
        nthbyte_malloc_entry as *const () as usize,
    )?;
    redirects.extend(imports(
        library,
        c"calloc",
        nthbyte_calloc_entry as *const () as usize,
    )?);
    redirects.iter().for_each(|redirect| redirect.turn(true));
    Ok(redirects)
}

/// The calls that return to these places. `None` if one of them is of another kind than those that can be changed.
fn calls(library: &Library, sites: &[usize], allocators: &[Redirect]) -> Option<Vec<CallSite>> {
    let (code, text) = (library.code(), library.text.start);
    let prepare = |&site| CallSite::prepare(code, text, site, allocators);
    sites.iter().map(prepare).collect()
}

/// The library's imports of a function, to be redirected to one that is called like it.
fn imports(library: &Library, name: &CStr, function: usize) -> Result<Vec<Redirect>, String> {
    let slots = library.import_slots(name);
    if slots.is_empty() {
        return Err(format!(
            "the library does not import {}",
            name.to_string_lossy()
        ));
    }
    // SAFETY: the slots are the library's imports of `name`; the functions of this module are called like what they
    // take the place of.
    unsafe { Redirect::prepare(&slots, function) }
}
