//! What the dynamic linker and the program call.

use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;
use std::sync::OnceLock;

use nthbyte_host::threads::uncancelled;
use nthbyte_process::main_thread;
use nthbyte_profile::claim::{Claim, Replaced};
use nthbyte_session::{SessionOutcome, guarded};

use crate::end_line::{EndLine, explain};
use crate::settings::{self, ProgramSettings};
use crate::{agent, objects};

/// Called before `main`, after the initialisers of the libraries that this one needs.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *mut *mut c_char) = begin;

/// Called by `exit`, after the program's functions of `atexit` and its destructors, but before the destructors of libraries.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

unsafe extern "C" {
    /// The environment, as `getenv` and `execv` see it (environ(7)).
    static mut environ: *mut *mut c_char;
}

/// The line at the end, unless it is not wanted.
static LINE: OnceLock<EndLine> = OnceLock::new();

extern "C" fn begin(_: c_int, _: *const *const c_char, first: *mut *mut c_char) {
    // SAFETY: both arrays are environments: the one that the process began with, and the present one, which is another if
    // the initialiser of a library has set a new variable. No other thread exists yet.
    let taken = guarded(|| unsafe {
        let taken = settings::take(environ);
        let taken_first = if environ == first {
            None
        } else {
            settings::take(first)
        };
        taken.or(taken_first)
    });
    let Some(settings) = taken.flatten() else {
        return;
    };
    let begun = settings.and_then(|settings| {
        guarded(|| start(&settings)).unwrap_or_else(|| Err("an error inside nthbyte".to_owned()))
    });
    if let Err(problem) = begun {
        explain(&problem);
        leave(1);
    }
}

fn start(settings: &ProgramSettings) -> Result<(), String> {
    let mut config = settings.session.clone();
    let replaced = if settings.force {
        Replaced::Profile
    } else {
        Replaced::Empty
    };
    let claim = Claim::new(&config.output, replaced, &[]).map_err(|refusal| refusal.advice())?;
    let wanted = std::mem::replace(&mut config.output, claim.path().to_owned());
    config.claimed = true;
    let line = EndLine::of_start(&config.output);
    if wanted != config.output {
        explain(&line.renamed(&wanted));
    }
    if !settings.quiet {
        config.line_at_signal = line.at_signal();
    }
    match agent::begin(&config) {
        Ok(None) => {}
        Ok(Some(problem)) if settings.quiet => drop(problem),
        Ok(Some(problem)) => explain(&problem),
        Err(problem) => {
            claim.withdraw();
            return Err(problem);
        }
    }
    claim.confirm();
    if !settings.quiet {
        let _ = LINE.set(line);
    }
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    main_thread::watch(|| end_with(nthbyte_process::end));
    Ok(())
}

extern "C" fn in_child() {
    uncancelled(|| {
        nthbyte_process::begin_in_child();
        objects::begin_in_child();
        main_thread::watch_in_child();
        if let Some(line) = LINE.get() {
            line.forget_in_child();
        }
    });
}

/// Ends the session when the process exits, if that was not done.
pub extern "C" fn end() {
    end_with(nthbyte_process::end_at_exit);
}

fn end_with(end: fn() -> Option<SessionOutcome>) {
    let printed = catch_unwind(|| {
        // The thread that calls `exit` may be cancelled, but does not end.
        uncancelled(|| {
            if let Some(outcome) = end()
                && let Some(line) = LINE.get()
            {
                line.print(&outcome);
            }
        });
    });
    // Dropping what a panic carries may panic again.
    std::mem::forget(printed);
}

/// `_exit`: no destructors run, so the writer thread completes the profile. The function may be called in a signal
/// handler, and in a child of `vfork`.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    nthbyte_process::complete();
    leave(status)
}

/// `_Exit`, which is the same.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

fn leave(status: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}
