//! The session of the process, which samples by the preloaded library for native memory, and objects in the nursery of a
//! translated RPython program.

use std::sync::OnceLock;

use nthbyte_process::{ENDING_SIGNALS, RequestSampling};
use nthbyte_profile::{Distances, Method};
use nthbyte_sampling::{Period, Sampler};
use nthbyte_session::native::{Placed, Request};
use nthbyte_session::{Config, Host, Recording, native};

use crate::objects::{self, HookableProgram};

/// The collector of the program, if it is hooked.
static COLLECTOR: OnceLock<HookableProgram> = OnceLock::new();

const NO_SETUP: &str = "this program's set-up of its nursery was not found: its first objects, up to a nursery of them, were not sampled";

/// Starts the session. Returns a line for the user, if objects are not sampled that could be.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin(config: &Config) -> Result<Option<String>, String> {
    if !native::is_available() {
        return Err("libnthbyte_native.so is not preloaded; install nthbyte again".to_owned());
    }
    let config = Config {
        seed: Some(config.seed()),
        ..config.clone()
    };
    let problem = begin_objects(&config).err().map(|why| {
        format!(
            "the objects of this RPython program are not sampled, only its native memory: {why}"
        )
    });
    let collector = COLLECTOR.get();
    if config.distances == Distances::Fixed && collector.is_none() {
        return Err(problem.unwrap_or_else(|| {
            "--fixed works with Python programs and translated RPython programs only: leave it out"
                .to_owned()
        }));
    }
    let mut notes = Vec::from_iter(problem.clone());
    if collector.is_some_and(|found| !found.knows_setup) {
        notes.push(NO_SETUP.to_owned());
    }
    let sampling = RequestSampling {
        method: Method::Preload,
        objects: collector.map(|_| (Method::NurseryLimit, "RPython")),
        know_modules: nthbyte_unwind::begin,
        begin: |session, seed| native::connect(session, seed, &[]),
        end,
    };
    nthbyte_process::begin(&config, &Program, sampling, notes)?;
    Ok(problem)
}

/// Hooks the collector, if the program was translated with RPython.
fn begin_objects(config: &Config) -> Result<(), String> {
    let Some(found) = objects::find()? else {
        return Ok(());
    };
    let period = Period::new(config.allocation_period()).unwrap_or(Period::EVERY);
    let sampler = Sampler::new(period, config.distances, config.seed());
    // SAFETY: the program's `main` has not begun, so nobody is inside of its collector.
    unsafe { found.begin(sampler) }?;
    let _ = COLLECTOR.set(found);
    Ok(())
}

fn end() {
    if COLLECTOR.get().is_some() {
        objects::end();
    }
    native::disconnect();
}

/// A process without an interpreter.
struct Program;

impl Host for Program {
    fn prepare(&self) {
        nthbyte_unwind::keep_up();
    }

    fn ending_signals(&self) -> [i32; 2] {
        ENDING_SIGNALS
    }

    /// The frames of nthbyte's libraries are left out by module.
    fn place(&self, recording: &mut Recording<'_>, _: &Request) -> Option<Placed> {
        nthbyte_process::place(recording, 0)
    }

    fn is_own(&self, request: &Request) -> bool {
        COLLECTOR
            .get()
            .is_some_and(|found| found.is_collectors(request))
    }
}
