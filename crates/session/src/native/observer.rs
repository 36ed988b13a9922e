//! The observer of the library for native memory, `nthbyte-native`: it receives the library's samples.

use std::sync::OnceLock;

use nthbyte_host::preload::{
    Kind, MOST_RANGES, NativeObserver, NativeSettings, Request, interface,
};
use nthbyte_host::process::image;

use crate::native::libraries;
use crate::native::{self, NOT_INTERESTED, SampledRequest};
use crate::session::Session;

/// Whether this process has the library, so that native memory can be sampled.
#[must_use]
pub fn is_available() -> bool {
    interface().is_some()
}

/// Starts to record native memory in a session whose description has the sources. `excluded` are starts and ends of
/// code whose requests are not the program's, two at most; this library's own and the dynamic linker's always are. Returns false if the library is
/// not there.
pub fn connect(session: &Session, seed: u64, excluded: &[[usize; 2]]) -> bool {
    let Some(interface) = interface() else {
        return false;
    };
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
    let settings = NativeSettings {
        period,
        seed,
        excluded: ranges,
        observer: NativeObserver {
            sampled,
            freed,
            look,
            unmap,
        },
    };
    // SAFETY: the function of the interface, with live arguments.
    unsafe { (interface.connect)(&settings) };
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
    let Some(host) = native::host() else {
        return NOT_INTERESTED;
    };
    let sample = SampledRequest {
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
        || host.is_own(request),
        |recording| host.place(recording, request),
    )
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
