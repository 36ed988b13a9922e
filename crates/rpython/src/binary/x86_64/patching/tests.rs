use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::binary::code_pages::{page_near, seal};
use crate::binary::imports::Redirect;
use crate::binary::memory_map::MemoryMap;
use crate::binary::patching::{CallSite, Detour};

/// For tests that prepare a detour or a call: the lists of these are waited for only for a moment.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline(never)]
extern "C" fn victim(number: u64) -> u64 {
    std::hint::black_box(number).wrapping_mul(3) + std::hint::black_box(1)
}

extern "C" fn hook(number: u64) -> u64 {
    ORIGINAL.get().map_or(0, |original| original(number) + 1000)
}

fn map() -> MemoryMap {
    MemoryMap::read().unwrap()
}

static ORIGINAL: std::sync::OnceLock<extern "C" fn(u64) -> u64> = std::sync::OnceLock::new();

#[test]
fn a_detour_calls_the_original_and_leaves_no_trace() {
    let _turn = one_at_a_time();
    let target = victim as *const () as usize;
    // SAFETY: the bytes are a function's code and the code after it in the same executable
    // segment; they are only read.
    let code = unsafe { std::slice::from_raw_parts(target as *const u8, 64) };
    let detour = Detour::prepare(code, target, target, hook as *const () as usize, &map()).unwrap();
    // SAFETY: the trampoline continues in a function of this type.
    let original =
        unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(detour.original()) };
    ORIGINAL.set(original).unwrap();
    let call = std::hint::black_box(victim as extern "C" fn(u64) -> u64);
    assert_eq!(call(2), 7);
    // SAFETY: no other test calls the function.
    unsafe { detour.place() }.unwrap();
    assert!(!detour.is_removed());
    assert_eq!(call(2), 1007);
    // A session that could not remove its hook leaves it for the next session.
    let stayed = Detour::prepare(code, target, target, hook as *const () as usize, &map()).unwrap();
    assert_eq!(stayed.original(), detour.original());
    // SAFETY: as above.
    unsafe { detour.remove() }.unwrap();
    assert!(detour.is_removed());
    assert_eq!(call(2), 7);
    let again = Detour::prepare(code, target, target, hook as *const () as usize, &map()).unwrap();
    assert_eq!(again.original(), detour.original());
}

#[test]
fn moved_instructions_do_the_same() {
    let (from, to) = (0x1000, 0x25_0000);
    let decode = |at: usize, bytes: &[u8]| -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, at as u64, DecoderOptions::NONE)
            .into_iter()
            .collect()
    };
    let cases: [&[u8]; 4] = [
        // push %rbp; mov %rdi, %rax; sub $24, %rsp
        &[0x55, 0x48, 0x89, 0xf8, 0x48, 0x83, 0xec, 0x18],
        // push %rbp; mov 16(%rip), %rax
        &[0x55, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0],
        // push %rbp; call 16(%rip)
        &[0x55, 0xe8, 0x10, 0, 0, 0],
        // test %rdi, %rdi; je 16(%rip)
        &[0x48, 0x85, 0xff, 0x74, 0x10],
    ];
    for bytes in cases {
        let before = decode(from, bytes);
        let copy = move_to(to, &before, bytes, from).unwrap();
        let after = decode(to, &copy);
        assert_eq!(before.len(), after.len());
        for (one, other) in before.iter().zip(&after) {
            assert_eq!(one.mnemonic(), other.mnemonic());
            let place = |one: &Instruction| (one.near_branch_target(), one.memory_displacement64());
            assert_eq!(place(one), place(other));
            assert!(one.op_kinds().eq(other.op_kinds()));
        }
    }
    // `endbr64` is not moved, and what follows it is copied.
    let bytes = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x53];
    let after_it = &decode(from, &bytes)[1..];
    assert_eq!(move_to(to, after_it, &bytes, from).unwrap(), [0x55, 0x53]);
}

#[test]
fn each_hook_and_each_protection_has_its_own_detour() {
    let _turn = one_at_a_time();
    let size = 4096;
    let page = page_near(victim as *const () as usize, REACH).unwrap();
    // At the page's start, so that the bytes before it are in no mapping of the same protection.
    // mov %rdi, %rax; mov %rdi, %rdx; ret
    let text = [0x48, 0x89, 0xf8, 0x48, 0x89, 0xfa, 0xc3];
    // SAFETY: a fresh writable page.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), page as *mut u8, text.len()) };
    seal(page).unwrap();
    // SAFETY: the page was filled above.
    let code = unsafe { std::slice::from_raw_parts(page as *const u8, size) };
    let prepare = |hook| Detour::prepare(code, page, page, hook, &map()).unwrap();
    let first = prepare(hook as *const () as usize);
    assert_eq!(first.protection, libc::PROT_READ | libc::PROT_EXEC);
    let other = prepare(victim as *const () as usize);
    assert_ne!(other.original(), first.original());

    // SAFETY: the page is this test's own.
    let failed = unsafe {
        libc::mprotect(
            page as *mut std::ffi::c_void,
            size,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        )
    };
    assert_eq!(failed, 0);
    let again = prepare(hook as *const () as usize);
    assert_eq!(again.original(), first.original());
    assert_eq!(
        again.protection,
        libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC
    );
}

#[test]
fn a_jump_into_the_replaced_bytes_is_refused() {
    let _turn = one_at_a_time();
    // nop; nop; nop; dec edi; jnz -4 (to the third byte); ret
    let code = [
        0x90, 0x90, 0x90, 0xff, 0xcf, 0x75, 0xfb, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
        0xcc,
    ];
    let at = code.as_ptr() as usize;
    let refused = Detour::prepare(&code, at, at, 0, &map()).unwrap_err();
    assert!(refused.contains("jumps back"), "{refused}");
}

#[test]
fn one_call_goes_to_the_hook() {
    let _turn = one_at_a_time();
    // A call of the stub at 16, and a return; the stub jumps through the slot at 32.
    let page = page_near(victim as *const () as usize, REACH).unwrap();
    let slot = (page + 32) as *mut usize;
    let text = [
        0xe8, 11, 0, 0, 0, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xf3,
        0x0f, 0x1e, 0xfa, 0xff, 0x25, 6, 0, 0, 0,
    ];
    // SAFETY: a fresh writable page, with room for both.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), page as *mut u8, text.len());
        slot.write(victim as *const () as usize);
    }
    seal(page).unwrap();
    // SAFETY: the page was filled above.
    let code = unsafe { std::slice::from_raw_parts(page as *const u8, 4096) };
    extern "C" fn other(number: u64) -> u64 {
        number + 5
    }
    let prepare = |site, slot| {
        let redirect = Redirect::untouched(slot, other as *const () as usize);
        CallSite::prepare(code, page, site, &[redirect], &map())
    };
    assert!(prepare(page + 5, std::ptr::null_mut()).is_none());
    assert!(prepare(page + 6, slot).is_none() && prepare(page + 26, slot).is_none());
    // A jump in place of the call, and code that reads the slot but does not jump.
    for (at, byte) in [(0, 0xe9), (21, 0x35)] {
        let mut changed = text;
        changed[at] = byte;
        let redirect = Redirect::untouched(slot, other as *const () as usize);
        let site = CallSite::prepare(&changed, page, page + 5, &[redirect], &map());
        assert!(site.is_none());
    }
    let site = prepare(page + 5, slot).unwrap();
    // Calls close to each other share the stub of a hook.
    assert_eq!(prepare(page + 5, slot).unwrap().stub, site.stub);
    let third = Redirect::untouched(slot, hook as *const () as usize);
    let third = CallSite::prepare(code, page, page + 5, &[third], &map()).unwrap();
    assert_ne!(third.stub, site.stub);
    // SAFETY: the code calls a function of this type, which does not depend on the alignment of the
    // stack.
    let call = unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(page) };
    assert_eq!(call(2), 7);
    // SAFETY: no other thread executes this code.
    unsafe { site.place() }.unwrap();
    assert_eq!(call(3), 8);
    // SAFETY: as above.
    unsafe { site.remove() }.unwrap();
    assert_eq!(call(3), 10);
}
