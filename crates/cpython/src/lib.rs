//! CPython 3.11 to 3.15, builds with the GIL.
//!
//! ```text
//! api ─▶ layout ─▶ verify          what this interpreter is, and whether that is certain
//! install, interpreters            the heap in the place of the small-object allocator
//! tracker ─▶ frames, codes, types  a sampled block becomes events
//! collections                      the cycle collector, and memory totals
//! ```
//!
//! There is one [`Agent`] a process. It lives for ever, and belongs to whoever holds the GIL. Code
//! that calls into Python must not hold a borrow of it: Python allocates, and allocation leads back.

mod api;
mod attributes;
mod blocks;
mod callers;
mod codes;
mod collections;
mod deaths;
mod frames;
mod huge_pages;
mod install;
mod interpreters;
mod layout;
mod memory;
mod module;
mod strings;
mod tokens;
mod totals;
mod tracker;
mod types;
mod verify;

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use nthbyte_heap::HugePages;
use nthbyte_profile::event::LostKind;
use nthbyte_profile::{Distances, Method};
use nthbyte_sampling::{Period, SamplePoints};

use api::Api;
use callers::Callers;
use collections::Collections;
use install::Installed;
use layout::Layout;
use nthbyte_session::{Config, Outcome, Session};
use tracker::Tracker;

static AGENT: AtomicPtr<Agent> = AtomicPtr::new(std::ptr::null_mut());

/// The agent of this process.
pub struct Agent {
    api: Api,
    installed: Installed,
    tracker: Tracker,
    collections: Collections,
}

/// Puts the heap in place, if it is not, with huge pages as they are by default: what is allocated before
/// lies in arenas of CPython's own, which have room for more that nobody will use.
///
/// # Errors
/// One line that says why not.
///
/// # Safety
/// The GIL is held, in Python code.
pub unsafe fn prepare() -> Result<(), String> {
    if Agent::current().is_none() {
        // SAFETY: by the contract.
        unsafe { Agent::create(HugePages::default())? };
    }
    Ok(())
}

/// Starts a session.
///
/// # Errors
/// One line that says why not.
///
/// # Safety
/// The GIL is held, in Python code.
pub unsafe fn start(config: &Config) -> Result<(), String> {
    refuse_what_is_not_offered(config)?;
    let huge_pages = huge_pages::from_config(config)?;
    // SAFETY: by the contract; nobody else borrows the agent, for the GIL is held.
    unsafe {
        let agent = match Agent::current() {
            Some(agent) => agent,
            None => Agent::create(huge_pages)?,
        };
        if (*agent).tracker.is_on() {
            return Err("a session is running already; stop it first".to_owned());
        }
        install::refuse_other_tracers(&(*agent).api)?;
        let seed = config.seed();
        let period = Period::new(config.period).unwrap_or(Period::EVERY);
        let points = SamplePoints::new(period, config.distances, seed);
        let mut notes = Vec::new();
        notes.extend((*agent).installed.huge_page_note());
        if !(*agent).tracker.can_tell_types() {
            notes.push(
                "types are not known: this system forbids a process to read itself".to_owned(),
            );
        }
        let session = Session::start(config, config.meta(Method::CutFreeLists, seed, notes))?;
        (*agent).tracker.begin(session, points.period());
        (*agent).collections.reset();
        let api = (*agent).api;
        let watched = (*agent).collections.watch(&api);
        (*agent).tracker.record_memory();
        let observer = (*agent).tracker.observer();
        (*agent).installed.start_sampling(points, observer);
        watched.map_err(|why| {
            let _ = stop();
            format!("cannot watch the garbage collector: {why}")
        })
    }
}

/// Ends the session; `None` if there is none.
///
/// # Safety
/// The GIL is held, in Python code.
pub unsafe fn stop() -> Option<Outcome> {
    let agent = Agent::current()?;
    // SAFETY: by the contract; the borrows end before Python runs.
    unsafe {
        if !(*agent).tracker.is_on() {
            return None;
        }
        let totals = (*agent).installed.stop_sampling();
        // From here on the heap does not tell when a sampled block is freed.
        (*agent).tracker.before_collection();
        let api = (*agent).api;
        (*agent).collections.unwatch(&api);
        (*agent).tracker.record_memory();
        let (session, requested) = (*agent).tracker.end(totals.allocated)?;
        session.lost(LostKind::Allocations, totals.lost);
        Some(session.finish(requested))
    }
}

/// What the command line offers and this agent does not.
fn refuse_what_is_not_offered(config: &Config) -> Result<(), String> {
    if config.distances == Distances::Fixed {
        return Err("--fixed works on PyPy only; leave it out".to_owned());
    }
    if config.cpu_hz.is_some() {
        return Err("--cpu works on PyPy only, so far; leave it out".to_owned());
    }
    if config.native {
        return Err("--native is not available yet; leave it out".to_owned());
    }
    Ok(())
}

impl Agent {
    /// The agent, if one was ever started.
    fn current() -> Option<*mut Self> {
        let agent = AGENT.load(Acquire);
        (!agent.is_null()).then_some(agent)
    }

    /// Checks the interpreter, then puts the heap in place, which is for ever.
    ///
    /// # Safety
    /// The GIL is held, in Python code.
    unsafe fn create(huge_pages: HugePages) -> Result<*mut Self, String> {
        let api = Api::find().map_err(|name| {
            format!("cannot profile this interpreter: it has no {name}; use CPython 3.11 to 3.15 or PyPy")
        })?;
        let layout = Layout::of(&api)?;
        // SAFETY: by the contract.
        unsafe {
            verify::verify(&api, &layout).map_err(|what| {
                format!(
                    "cannot profile CPython {}: {what} are not laid out as in the release; is it a modified or a debug build?",
                    api.version_text()
                )
            })?;
            if (api.PyThreadState_GetInterpreter)((api.PyThreadState_GetUnchecked)())
                != (api.PyInterpreterState_Main)()
            {
                return Err("cannot start in a sub-interpreter; start in the main one".to_owned());
            }
            install::refuse_other_tracers(&api)?;
            let installed = Installed::install(&api, &layout, huge_pages)?;
            let hooks = installed.has_debug_hooks();
            // Under debug hooks all that allocates calls them.
            let callers = if hooks {
                Callers::default()
            } else {
                Callers::learn(&api, &layout, installed.heap().cast())
            };
            let tracker = Tracker::new(api, layout, installed.heap(), hooks, callers);
            let agent = Box::into_raw(Box::new(Self {
                api,
                installed,
                tracker,
                collections: Collections::default(),
            }));
            AGENT.store(agent, Release);
            deaths::watch(&api);
            blocks::count(&api);
            Ok(agent)
        }
    }
}
