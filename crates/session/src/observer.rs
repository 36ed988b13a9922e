//! The observer of the library for native memory, `nthbyte-native`: it receives the library's samples.

use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use crate::libraries;
use crate::native::{self, NOT_INTERESTED, Placed, Sampled};
use crate::preload::{Kind, MOST_RANGES, Observer, Request, Settings, interface};
use crate::process::image;
use crate::recording::Recording;
use crate::session::Session;

/// Tells the thread and the stack of the calling thread, which makes the request. `None` if there is no room to record them.
///
/// It runs inside of a call of `malloc` or `mmap`, in any thread, with any lock of the program held. There is one call
/// at a time, because the recording is borrowed.
pub type Place = fn(&mut Recording<'_>, &Request) -> Option<Placed>;

/// Tells whether a request of the calling thread is the host's own. Called before each sample is recorded.
pub type IsOwn = fn(&Request) -> bool;

/// The host's function, of type [`Place`].
static PLACE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The host's function, of type [`IsOwn`].
static IS_OWN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Whether this process has the library, so that native memory can be sampled.
#[must_use]
pub fn is_available() -> bool {
    interface().is_some()
}

/// Starts to record native memory in a session whose description has the sources. `excluded` are starts and ends of
/// code whose requests are not the program's, two at most; this library's own and the dynamic linker's always are. Returns false if the library is
/// not there.
pub fn connect(
    session: &Session,
    seed: u64,
    place: Place,
    is_own: IsOwn,
    excluded: &[[usize; 2]],
) -> bool {
    let Some(interface) = interface() else {
        return false;
    };
    PLACE.store(place as *mut (), Relaxed);
    IS_OWN.store(is_own as *mut (), Relaxed);
    let Some(period) = native::begin(session) else {
        return false;
    };
    libraries::prepare();
    let mut ranges = [[0; 2]; MOST_RANGES];
    /// They stay where they are.
    static ALWAYS: OnceLock<[[usize; 2]; 2]> = OnceLock::new();
    let always = ALWAYS.get_or_init(|| {
        [
            image::range(sampled as *const () as usize),
            dynamic_linker(),
        ]
    });
    for (range, given) in ranges.iter_mut().zip(always.iter().chain(excluded)) {
        *range = *given;
    }
    let settings = Settings {
        period,
        seed,
        excluded: ranges,
        observer: Observer {
            sampled,
            freed,
            look,
            unmap,
        },
    };
    // SAFETY: the function of the interface, with live arguments.
    unsafe { (interface.connect)(&settings) };
    native::set_period_with(interface.set_period);
    true
}

/// Stops to record native memory.
pub fn disconnect() {
    native::end(|| {
        if let Some(interface) = interface() {
            // SAFETY: the function of the interface.
            unsafe { (interface.disconnect)() };
        }
    });
}

/// The code of the dynamic linker. What it allocates (thread-local variables of libraries, its lists) is the system's.
fn dynamic_linker() -> [usize; 2] {
    // SAFETY: no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    usize::try_from(base).map_or([0; 2], |base| {
        if base == 0 {
            [0; 2]
        } else {
            image::range(base)
        }
    })
}

unsafe extern "C" fn sampled(request: &Request) -> u64 {
    let place = PLACE.load(Relaxed);
    if place.is_null() {
        return NOT_INTERESTED;
    }
    // SAFETY: a function of this type was stored.
    let place = unsafe { std::mem::transmute::<*mut (), Place>(place) };
    let sample = Sampled {
        size: request.size,
        period: request.period,
        points: request.points,
        function: request.kind.name(),
        is_mapping: request.kind.is_mapping(),
        lazy: request.lazy,
        // A mapping that grows keeps the type of the call, since another library may have made it.
        caller: if request.kind == Kind::Mremap {
            0
        } else {
            request.caller
        },
    };
    native::sampled(
        &sample,
        || is_own(request),
        |recording| place(recording, request),
    )
}

fn is_own(request: &Request) -> bool {
    let function = IS_OWN.load(Relaxed);
    // SAFETY: a function of this type was stored.
    !function.is_null() && unsafe { std::mem::transmute::<*mut (), IsOwn>(function)(request) }
}

unsafe extern "C" fn freed(token: u64) {
    native::freed(token);
}

unsafe extern "C" fn look(token: u64) {
    native::look(token);
}

unsafe extern "C" fn unmap(start: usize, size: usize) -> bool {
    native::unmap(&(start..start.saturating_add(size)))
}
