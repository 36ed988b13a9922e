//! The agent of a process: it starts and ends sessions, and the patches call it.
//!
//! A process has one [`Agent`]. It exists until the process ends, and only the holder of the main interpreter's GIL may
//! use it; without a GIL, the holder of a [lock](agent_lock). [`Gil::agent`] is the only access; it borrows the token, so no Python
//! code runs meanwhile.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

use nthbyte_heap::{Heap, HeapObserver, HugePages, NOT_INTERESTED, SampledBlock};
use nthbyte_host::process::Probe;
use nthbyte_mimalloc::ThreadedObserver;
use nthbyte_profile::event::{LostKind, Nanos};
use nthbyte_profile::holders::Reason;
use nthbyte_profile::meta::READS_ARE_FORBIDDEN;
use nthbyte_profile::{Distances, Method};
use nthbyte_sampling::{Period, SamplePoints};
use nthbyte_session::config::SnapshotMode;
use nthbyte_session::snapshots::due;
use nthbyte_session::{
    Config, Mark, RUNNING_ALREADY, Session, SessionOutcome, native, record_for, record_waiting,
};

use crate::api::{FREE_THREADED, Gil};
use crate::heap::{accounts, huge_pages};
use crate::holders;
use crate::host::HOST;
use crate::layout::Layout;
use crate::patches::allocators::{self, Installed};
use crate::patches::gc_callbacks::{self, Entry};
use crate::patches::{
    allocated_blocks, attribute_cache, dealloc, forks, raw_calloc, thread_starts,
};
use crate::sampling::allocation_sites::AllocationSites;
use crate::sampling::tracker::{self, Tracker};
use crate::{agent_lock, labels, pending, ticks, verify};

static AGENT: AtomicPtr<AgentCell> = AtomicPtr::new(std::ptr::null_mut());

/// Whether CPython has been finalized since the patches were installed.
static IS_FINALIZED: AtomicBool = AtomicBool::new(false);

extern "C" fn finalized() {
    IS_FINALIZED.store(true, Release);
}

const FINALIZED: &str = "this process has finalized CPython, and nthbyte works until then only: start it before the first Py_Finalize";
/// In the child of a fork.
const HALF_CHANGED: &str = "this process was forked while another thread recorded, which did not end in a second: it has no samples of Python's memory";
const BUSY: &str = "nthbyte is busy; start it outside of its own callbacks";

/// The patches in this process, and the state of the session.
pub struct Agent {
    installed: Installed,
    tracker: Tracker,
    /// The session's entry in `gc.callbacks`.
    gc_entry: Option<Entry>,
    /// The collection in progress: its start time, and the bytes in use at that time.
    collection: Option<(Nanos, u64)>,
    /// Whether snapshots of who holds what are taken, and whether they have the keys of dictionaries.
    holders: (SnapshotMode, bool),
}

/// The agent, and whether it is borrowed. Only the holder of the main interpreter's GIL, or of the lock, uses it.
struct AgentCell {
    is_borrowed: Cell<bool>,
    /// Number of samples that arrived while the agent was borrowed.
    missed: AtomicU64,
    agent: UnsafeCell<Agent>,
}

/// The borrowed agent. It also borrows the token of the GIL.
pub struct AgentRef<'gil> {
    cell: &'static AgentCell,
    _gil: PhantomData<&'gil mut Gil>,
}

impl Deref for AgentRef<'_> {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        // SAFETY: there is one `AgentRef` at a time, by `is_borrowed`.
        unsafe { &*self.cell.agent.get() }
    }
}

impl DerefMut for AgentRef<'_> {
    fn deref_mut(&mut self) -> &mut Agent {
        // SAFETY: as above.
        unsafe { &mut *self.cell.agent.get() }
    }
}

impl Drop for AgentRef<'_> {
    fn drop(&mut self) {
        if FREE_THREADED {
            agent_lock::release();
        } else {
            self.cell.is_borrowed.set(false);
        }
    }
}

/// The cell, if an agent exists and this thread holds the main interpreter's GIL, or there is no GIL.
fn cell() -> Option<&'static AgentCell> {
    let cell = AGENT.load(Acquire);
    // SAFETY: the agent is never freed, and only the holder of the main GIL uses it; without a GIL, that of the lock.
    (!cell.is_null() && (FREE_THREADED || raw_calloc::under_main_gil())).then(|| unsafe { &*cell })
}

impl Gil {
    /// The agent. `None` if there is none, if this is not the main interpreter's GIL, or if the agent is already
    /// borrowed: an allocation inside the agent's own code may have led here. Costs a read and a write of one byte.
    pub fn agent(&mut self) -> Option<AgentRef<'_>> {
        let cell = cell()?;
        let is_ours = if FREE_THREADED {
            agent_lock::acquire()
        } else {
            !cell.is_borrowed.replace(true)
        };
        is_ours.then_some(AgentRef {
            cell,
            _gil: PhantomData,
        })
    }
}

/// Installs the heap, with the default huge pages, if it is not installed yet. Earlier allocations lie in CPython's own
/// arenas, whose remaining space stays unused.
///
/// # Errors
/// One line that says what prevents it.
pub fn prepare(gil: &mut Gil) -> Result<(), String> {
    create(gil, HugePages::default())
}

/// Starts a session.
///
/// # Errors
/// One line that says what prevents it.
pub fn start(gil: &mut Gil, config: &Config) -> Result<(), String> {
    refuse_what_is_not_offered(config)?;
    create(gil, huge_pages::from_config(config)?)?;
    if gil.agent().ok_or(BUSY)?.tracker.is_on() {
        return Err(RUNNING_ALREADY.to_owned());
    }
    if config.cpu_hz.is_some()
        && let Some(layout) = gil.agent().map(|agent| *agent.tracker.layout())
    {
        // SAFETY: the layout was verified.
        unsafe { thread_starts::install(gil, &layout, ticks::thread_has_started) };
    }
    if !FREE_THREADED {
        attribute_cache::prepare(gil);
    }
    let entry = Entry::install(gil, GC_HANDLERS)
        .map_err(|why| format!("cannot watch the garbage collector: {why}"))?;
    let begun = gil
        .agent()
        .ok_or_else(|| BUSY.to_owned())
        .and_then(|mut agent| agent.begin(config));
    if begun.is_err() {
        entry.remove(gil);
        return begun;
    }
    if let Some(mut agent) = gil.agent() {
        agent.gc_entry = Some(entry);
    }
    if FREE_THREADED {
        // After the session's own functions, so that ours runs before them: a thread with the agent may wait for the session.
        agent_lock::watch_forks();
    }
    Ok(())
}

/// Takes a snapshot of who holds what, if a session is running. `whatever`: whatever it costs.
///
/// # Errors
/// One clause that says why there is none.
pub fn snapshot(gil: &mut Gil, reason: Reason, whatever: bool) -> Result<(), String> {
    refuse_sub_interpreters(gil)?;
    if FREE_THREADED {
        return Err("who holds what is not recorded in a build without the GIL".to_owned());
    }
    let mut agent = gil.agent().ok_or("no recording is running")?;
    let (settings, with_keys) = agent.holders;
    let (layout, heap) = (*agent.tracker.layout(), agent.installed.heap().cast());
    let time = agent.tracker.now().ok_or("no recording is running")?;
    let numbers = agent.tracker.numbers().ok_or("it cannot be recorded now")?;
    drop(agent);
    let asked = holders::Asked {
        layout,
        heap,
        samples: &|token| numbers.get(token),
        settings: if whatever {
            SnapshotMode::Always
        } else {
            settings
        },
        with_keys,
        time,
        reason,
    };
    // SAFETY: the heap is in use, and the layout was verified when it was put in place.
    unsafe { holders::take(gil, &asked) }
}

/// Does the work that is due. Called where Python code may run.
pub fn do_due(gil: &mut Gil) {
    if attribute_cache::is_due() {
        forget_looked_up_names(gil);
    }
    let is_wanted = |agent: AgentRef<'_>| agent.holders.0 != SnapshotMode::Never;
    if let Some(reason) = due::take_due()
        && gil.agent().is_some_and(is_wanted)
    {
        // If there is none, the profile says why.
        let _ = snapshot(gil, reason, due::take_urgency());
    }
}

/// What the interpreter calls in its main thread, at the next point at which Python code may run.
extern "C" fn do_what_is_due(_: *mut c_void) -> c_int {
    pending::begun();
    if let Some(mut gil) = gil() {
        nthbyte_session::guarded(|| do_due(&mut gil));
    }
    0
}

/// Names that the cache of attributes keeps count as alive no longer.
fn forget_looked_up_names(gil: &mut Gil) {
    if let Some(heap) = gil.agent().map(|agent| agent.installed.heap()) {
        attribute_cache::look(gil, heap);
    }
}

/// Ends the session. `None` if no session is running.
pub fn stop(gil: &mut Gil) -> Option<SessionOutcome> {
    refuse_sub_interpreters(gil).ok()?;
    if FREE_THREADED && agent_lock::is_broken() {
        // The profile of this process has what other sources recorded, and says what is missing.
        let _ = nthbyte_session::flush();
        return None;
    }
    if attribute_cache::is_due_at_end() {
        forget_looked_up_names(gil);
    }
    if gil.agent()?.holders.0 != SnapshotMode::Never {
        // If there is none, the profile says why.
        let _ = snapshot(gil, Reason::End, false);
    }
    let mut agent = gil.agent()?;
    if !agent.tracker.is_on() {
        return None;
    }
    // Before native memory: ticks may wait for their stacks as its samples do.
    ticks::stop_timers();
    record_waiting(&HOST);
    native::disconnect();
    // SAFETY: the main GIL is held, and the heap is not further up the stack: this is a function of the module.
    let totals = unsafe { agent.installed.stop_sampling() };
    // From here on, the heap does not report when a sampled block is freed.
    agent.tracker.before_collection();
    agent.collection = None;
    let entry = agent.gc_entry.take();
    drop(agent);
    if let Some(entry) = entry {
        entry.remove(gil);
    }
    let mut agent = gil.agent()?;
    record_waiting(&HOST);
    ticks::end();
    agent.tracker.record_memory();
    let (session, own) = agent.tracker.end(&totals)?;
    let lost = own.as_ref().map_or(totals.lost, |own| own.lost);
    let missed = agent.cell.missed.swap(0, Relaxed);
    session.lost(LostKind::Allocations, lost + missed);
    drop(agent);
    Some(session.finish(own.map(|own| own.counted)))
}

/// What the running session has recorded so far. `None` if there is none, or none that has begun in this process.
pub fn mark(gil: &mut Gil) -> Option<Mark> {
    // What timers have sent up to now belongs to the part that ends here.
    record_waiting(&HOST);
    gil.agent()?.tracker.mark()
}

/// Refuses options of the command line that this agent does not support.
fn refuse_what_is_not_offered(config: &Config) -> Result<(), String> {
    if config.distances == Distances::Fixed {
        return Err("--fixed works on PyPy only; leave it out".to_owned());
    }
    if FREE_THREADED {
        for (is_wanted, option) in [
            (config.holders == SnapshotMode::Always, "--holders"),
            (
                config.snapshot_every.is_some() || config.snapshot_signal.is_some(),
                "--snapshot",
            ),
            (
                huge_pages::from_config(config)? == HugePages::Hugetlb,
                "--huge-pages hugetlb",
            ),
        ] {
            if is_wanted {
                return Err(format!(
                    "{option} does not work in a build of CPython without the GIL yet; leave it out"
                ));
            }
        }
    }
    Ok(())
}

fn refuse_sub_interpreters(gil: &Gil) -> Result<(), String> {
    let api = gil.api();
    // SAFETY: the GIL is held, so that there is a thread state.
    let is_main = unsafe {
        (api.PyThreadState_GetInterpreter)((api.PyThreadState_GetUnchecked)())
            == (api.PyInterpreterState_Main)()
    };
    if is_main {
        Ok(())
    } else {
        Err("cannot start in a sub-interpreter; start in the main one".to_owned())
    }
}

/// Checks the interpreter, then installs all permanent patches, if they are not installed yet.
fn create(gil: &mut Gil, huge_pages: HugePages) -> Result<(), String> {
    refuse_sub_interpreters(gil)?;
    if IS_FINALIZED.load(Acquire) {
        // A new CPython has its own allocators again.
        return Err(FINALIZED.to_owned());
    }
    if cell().is_some() {
        return Ok(());
    }
    let _only = if FREE_THREADED {
        Some(agent_lock::Creation::begin().ok_or(BUSY)?)
    } else {
        None
    };
    let api = gil.api();
    let layout = Layout::of(api)?;
    verify::verify(gil, &layout).map_err(|what| {
        format!(
            "cannot profile CPython {}: {what} are not laid out as in the release; is it a modified or a debug build?",
            api.version_text()
        )
    })?;
    allocators::refuse_other_tracers(gil)?;
    // SAFETY: this is the main interpreter, and the layout was verified.
    let installed = unsafe { Installed::install(gil, &layout, huge_pages)? };
    accounts::publish(installed.heap());
    let hooks = installed.has_debug_hooks();
    // With debug hooks, every allocation has the hooks as its call site.
    let sites = if hooks {
        AllocationSites::default()
    } else {
        // SAFETY: the heap is in place, and no session has begun.
        unsafe { AllocationSites::learn(gil, &layout, installed.heap().cast()) }
    };
    let tracker = Tracker::new(gil, layout, installed.heap(), hooks, sites);
    let cell = Box::into_raw(Box::new(AgentCell {
        is_borrowed: Cell::new(false),
        missed: AtomicU64::new(0),
        agent: UnsafeCell::new(Agent {
            installed,
            tracker,
            gc_entry: None,
            collection: None,
            holders: (SnapshotMode::Never, false),
        }),
    }));
    AGENT.store(cell, Release);
    // SAFETY: the function is never unloaded. It cannot be registered if there are 32 of them already.
    unsafe { (gil.api().Py_AtExit)(finalized) };
    // SAFETY: the layout was verified.
    unsafe {
        dealloc::install(gil, &layout, code_freed, type_freed);
        allocated_blocks::install(gil, &layout, blocks_in_use);
        forks::install(gil, &layout);
    }
    Ok(())
}

/// Continues a session in the child of a fork: its sample points differ from its parent's and other children's.
pub fn forked(gil: &mut Gil) {
    // The calls that wait are the parent's.
    pending::begun();
    if let Some(cell) = cell() {
        // The parent counts them itself.
        cell.missed.store(0, Relaxed);
    }
    if FREE_THREADED {
        // That was done when the C library forked: there may be no Python code that calls this.
        return;
    }
    guarded(gil, (), |agent| {
        // SAFETY: the GIL is held, and the heap is not further up the stack: this is a function of the module.
        unsafe { agent.installed.diverge(nthbyte_session::forks()) };
    });
}

impl Agent {
    /// Opens the profile and starts sampling.
    fn begin(&mut self, config: &Config) -> Result<(), String> {
        let seed = config.seed();
        let period = Period::new(config.period).unwrap_or(Period::EVERY);
        let points = SamplePoints::new(period, config.distances, seed);
        let mut notes = Vec::new();
        notes.extend(self.installed.huge_page_note());
        notes.extend(labels::note().map(str::to_owned));
        if !self.tracker.can_tell_types() {
            notes.push(format!("types are not known: {READS_ARE_FORBIDDEN}"));
        }
        let mut config = config.clone();
        if let Some(hz) = config.cpu_hz {
            let rate = ticks::begin(self.tracker.layout(), hz, seed, config.native_frames)?;
            config.cpu_hz = Some(rate.hz());
            notes.extend(rate.note());
        }
        let mut meta = config.meta(Method::CutFreeLists, seed, notes);
        if config.native && native::is_available() {
            native::add_sources(&mut meta, Method::Preload, config.native_period());
        }
        if config.native_frames && !self.tracker.can_tell_types() {
            meta.notes.push(format!(
                "native frames are not known: {READS_ARE_FORBIDDEN}"
            ));
        }
        let session = Session::start(&config, meta, &HOST).inspect_err(|_| ticks::end())?;
        self.tracker.begin(session, points.period());
        self.collection = None;
        let holders = if FREE_THREADED {
            SnapshotMode::Never
        } else {
            config.holders
        };
        self.holders = (holders, !config.no_names);
        if !FREE_THREADED {
            pending::set(do_what_is_due);
        }
        self.tracker.record_memory();
        if FREE_THREADED {
            let observer = ThreadedObserver {
                context: SAMPLING.fetch_add(1, Relaxed).wrapping_add(1),
                sampled: sampled_by_any,
                freed: freed_by_any,
            };
            // SAFETY: the agent was created, so that the functions are installed.
            unsafe { nthbyte_mimalloc::start(points, observer) };
        } else {
            let observer = HeapObserver {
                context: std::ptr::null_mut(),
                sampled,
                freed,
            };
            // SAFETY: the agent is borrowed, so the GIL is held; the observer needs no context.
            unsafe { self.installed.start_sampling(points, observer) };
        }
        native::count_whole_mappings(config.whole_mappings);
        self.tracker.begin_native(seed, config.native_frames);
        Ok(())
    }
}

/// Calls `work` with the agent. Returns `otherwise` if the agent is not available, or if `work` panics, which ends the
/// session ([`nthbyte_session::guarded`]).
fn guarded<T>(gil: &mut Gil, otherwise: T, work: impl FnOnce(&mut Agent) -> T) -> T {
    nthbyte_session::guarded(|| {
        let mut agent = gil.agent()?;
        #[cfg(feature = "test-seams")]
        crate::seams::enter();
        Some(work(&mut agent))
    })
    .flatten()
    .unwrap_or(otherwise)
}

/// The token for the observer.
fn gil() -> Option<Gil> {
    // SAFETY: the heap calls its observer with the main GIL held. The token is used only for the agent.
    unsafe { Gil::of_caller() }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn sampled(_: *mut c_void, sample: &SampledBlock) -> u32 {
    let Some(mut gil) = gil() else {
        return NOT_INTERESTED;
    };
    pending::ask(gil.api(), true);
    let token = guarded(&mut gil, None, |agent| Some(agent.tracker.sampled(sample)));
    token.unwrap_or_else(|| {
        missed();
        NOT_INTERESTED
    })
}

/// Counts a sample for which the agent could not be had.
fn missed() {
    if FREE_THREADED && agent_lock::is_broken() {
        // Nobody else says so in this process.
        if let Some(mut recording) = record_for(LostKind::Allocations) {
            if agent_lock::is_first_to_say() {
                recording.note(HALF_CHANGED);
            }
            recording.lost(LostKind::Allocations, 1);
        }
        return;
    }
    if let Some(cell) = cell() {
        cell.missed.fetch_add(1, Relaxed);
    }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn freed(_: *mut c_void, contents: *const c_void, token: u32) {
    if let Some(mut gil) = gil() {
        guarded(&mut gil, (), |agent| {
            agent.tracker.freed(contents as usize, token);
        });
    }
}

/// The number of the session that samples without a GIL: a thread may still be at one of the session before.
static SAMPLING: AtomicUsize = AtomicUsize::new(0);

/// As [`sampled`], without a GIL.
#[unsafe(link_section = "nthbyte_hot")]
fn sampled_by_any(session: usize, sample: &SampledBlock, period: Period) -> u32 {
    let Some(mut gil) = gil().filter(|_| session == SAMPLING.load(Relaxed)) else {
        return NOT_INTERESTED;
    };
    // SAFETY: the block is new.
    unsafe { tracker::clear(sample) };
    let token = guarded(&mut gil, None, |agent| {
        Some(agent.tracker.sampled_under(sample, period))
    });
    token.unwrap_or_else(|| {
        missed();
        NOT_INTERESTED
    })
}

/// As [`freed`], without a GIL.
#[unsafe(link_section = "nthbyte_hot")]
fn freed_by_any(session: usize, contents: usize, token: u32) {
    let Some(mut gil) = gil().filter(|_| session == SAMPLING.load(Relaxed)) else {
        return;
    };
    // A free that is not told would leave the block alive.
    agent_lock::insist(|| {
        guarded(&mut gil, false, |agent| {
            agent.tracker.freed(contents, token);
            true
        })
    });
}

fn code_freed(gil: &mut Gil, code: usize) {
    nthbyte_session::guarded(|| ticks::before_code_is_freed(code));
    let is_forgotten = agent_lock::insist(|| {
        guarded(gil, false, |agent| {
            agent.tracker.forget_code(code);
            true
        })
    });
    if !is_forgotten {
        nthbyte_session::guarded(|| ticks::forget_code(code));
    }
}

fn type_freed(gil: &mut Gil, class: usize) {
    agent_lock::insist(|| {
        guarded(gil, false, |agent| {
            agent.tracker.forget_type(class);
            true
        })
    });
}

/// Where a thread state has its interpreter.
const INTERPRETER: usize = 16;

fn blocks_in_use(gil: &mut Gil) -> Option<isize> {
    if FREE_THREADED {
        let probe = Probe::new()?;
        // SAFETY: the caller has a thread state.
        let own = unsafe {
            (gil.api().PyThreadState_GetInterpreter)((gil.api().PyThreadState_GetUnchecked)())
        };
        // Another thread's state may be gone.
        let is_counted = |state| probe.read::<usize>(state + INTERPRETER) == Some(own as usize);
        return Some(-nthbyte_mimalloc::held(&is_counted).cast_signed());
    }
    // Not `guarded`: the blocks must be counted even after a panic.
    let agent = gil.agent()?;
    // SAFETY: the agent is borrowed, so the main GIL is held.
    Some(unsafe { Heap::blocks_in_use(agent.installed.heap().cast()) }.cast_signed())
}

const GC_HANDLERS: gc_callbacks::Handlers = gc_callbacks::Handlers {
    start: |gil, generation| {
        guarded(gil, (), |agent| {
            agent.collection = agent.tracker.before_collection();
        });
        if let Some(layout) = gil.agent().map(|agent| *agent.tracker.layout()) {
            ticks::collection_started(gil, &layout, generation);
        }
    },
    stop: |gil, generation, freed_objects| {
        ticks::collection_ended();
        guarded(gil, (), |agent| {
            let before = agent.collection.take();
            agent
                .tracker
                .after_collection(before, generation, freed_objects);
        });
        // The main thread may wait for something, and run no pending calls.
        nthbyte_session::guarded(|| do_due(gil));
    },
};
