//! Checks the size and the GIL of the interpreter's state, which matter in versions where each interpreter may have its
//! own GIL.

use super::{Reader, Subject, check};
use crate::api::{FREE_THREADED, Gil};
use crate::layout::Layout;
use crate::patches::raw_calloc::LARGEST_ALIGNMENT;

const SUBJECT: Subject = "interpreters";

/// Compares the position of the GIL and the size of the state.
pub fn verify(gil: &Gil, layout: &Layout, reader: Reader) -> Result<(), Subject> {
    // Without a GIL, the agent has a lock of its own.
    if FREE_THREADED || !layout.features.own_gils {
        return Ok(());
    }
    let api = gil.api();
    // SAFETY: the GIL is held.
    let (main, thread) = unsafe {
        (
            (api.PyInterpreterState_Main)() as usize,
            (api.PyThreadState_GetUnchecked)() as usize,
        )
    };
    // `struct _gil_runtime_state`: the switch interval in microseconds, the last holder, and whether the GIL is held.
    let holder = reader
        .read::<usize>(main, layout.interpreter_gil)
        .and_then(|gil| {
            Some((
                reader.read::<[u64; 2]>(gil, 0)?,
                reader.read::<u32>(gil, 16)?,
            ))
        });
    let interval = gil
        .import(c"sys")
        .and_then(|sys| sys.attribute(c"getswitchinterval"))
        .and_then(|function| function.call())
        .and_then(|seconds| seconds.float())
        .map(|seconds| (seconds * 1e6).round() as u64);
    check(
        holder.is_some_and(|([micros, last], held)| {
            Some(micros) == interval && last == thread as u64 && held == 1
        }),
        SUBJECT,
    )?;
    // The main interpreter's state is the last part of `_PyRuntime`, apart from padding.
    let end = end_of_runtime(api._PyRuntime.cast()).ok_or(SUBJECT)?;
    let claimed = main.wrapping_add(layout.interpreter_size);
    check(claimed <= end && end - claimed < LARGEST_ALIGNMENT, SUBJECT)
}

/// The end of `_PyRuntime`, from the symbol table that contains it.
fn end_of_runtime(runtime: *const libc::c_void) -> Option<usize> {
    /// A flag of `dladdr1` that asks for the symbol itself (`RTLD_DL_SYMENT` of dlfcn.h).
    const SYMBOL: libc::c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            address: *const libc::c_void,
            info: *mut libc::Dl_info,
            extra: *mut *const libc::Elf64_Sym,
            flags: libc::c_int,
        ) -> libc::c_int;
    }
    let mut symbol = std::ptr::null();
    // SAFETY: a zeroed `Dl_info` is a valid place for the answer, and the symbol lies in the mapped library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = dladdr1(runtime, &raw mut info, &raw mut symbol, SYMBOL) != 0;
        if !found || symbol.is_null() || info.dli_saddr.cast_const() != runtime {
            return None;
        }
        Some(runtime as usize + (*symbol).st_size as usize)
    }
}
