//! Changes of code that is called.

use super::*;
use crate::binary::code_pages::{fresh, seal};
use crate::binary::imports::Redirect;
use crate::binary::memory_map::MemoryMap;
use crate::binary::patching::{CallSite, Detour};
use nthbyte_host::memory::page_size;

/// `paciasp; add x0, x0, 1; autiasp; ret`
const PLUS_ONE: [u32; 4] = [0xd503_233f, 0x9100_0400, 0xd503_23bf, 0xd65f_03c0];

extern "C" fn hook(number: usize) -> usize {
    number + 100
}

/// A page with this code.
fn code(words: &[u32]) -> usize {
    let page = fresh(page_size()).unwrap();
    for (at, &word) in words.iter().enumerate() {
        // SAFETY: a fresh writable page.
        unsafe { (page as *mut u32).add(at).write(word) };
    }
    seal(page).unwrap();
    page
}

fn call(function: usize, number: usize) -> usize {
    // SAFETY: the code of these tests takes and returns a number.
    unsafe { std::mem::transmute::<usize, extern "C" fn(usize) -> usize>(function)(number) }
}

fn bytes(page: usize) -> &'static [u8] {
    // SAFETY: the page is never unmapped.
    unsafe { std::slice::from_raw_parts(page as *const u8, page_size()) }
}

#[test]
fn a_function_is_hooked_and_restored() {
    let function = code(&PLUS_ONE);
    let own = hook as *const () as usize;
    for _ in 0..2 {
        let map = MemoryMap::read().unwrap();
        let detour = Detour::prepare(bytes(function), function, function, own, &map).unwrap();
        assert_eq!(call(function, 1), 2);
        // SAFETY: no other thread calls it.
        unsafe { detour.place() }.unwrap();
        assert_eq!((call(function, 1), call(detour.original(), 1)), (101, 2));
        // A session that could not remove its jump: the next one has the same detour.
        let again = Detour::prepare(bytes(function), function, function, own, &map).unwrap();
        assert_eq!(again.original(), detour.original());
        // SAFETY: as above.
        unsafe { again.remove() }.unwrap();
        assert_eq!(call(function, 1), 2);
    }
}

#[test]
fn only_what_begins_a_function_is_moved() {
    for first in [0xd503_245f, 0xa9bf_7bfd, 0xf81f_0ffe, 0xd100_43ff] {
        assert!(is_movable(first), "{first:x}");
    }
    // b, bl, adrp, cbz, ldr of a near place, add, a store besides the stack, and nothing.
    for first in [
        0x1400_0001,
        0x9400_0001,
        0x9000_0000,
        0xb400_0040,
        0x5800_0040,
        0x9100_0400,
        0xa980_7c01,
        0,
    ] {
        let page = code(&[first, 0xd65f_03c0]);
        let map = MemoryMap::read().unwrap();
        let refused = Detour::prepare(bytes(page), page, page, 1, &map).unwrap_err();
        assert!(refused.contains("cannot be moved"), "{first:x}: {refused}");
    }
}

#[test]
fn a_call_of_an_import_is_changed_alone() {
    // Two calls, and the import's stub: adrp x16, 0; ldr x17, [x16, #0x100]; add x16, x16, #0x100; br x17.
    let words = [
        0xa9bf_7bfd,
        0x9400_0007,
        0xa8c1_7bfd,
        0xd65f_03c0,
        0xa9bf_7bfd,
        0x9400_0003,
        0xa8c1_7bfd,
        0xd65f_03c0,
        0x9000_0010,
        0xf940_8211,
        0x9104_0210,
        0xd61f_0220,
    ];
    let mut page = words.to_vec();
    page.resize(64, 0);
    let function = code(&PLUS_ONE);
    page.extend([function as u32, (function >> 32) as u32]);
    let page = code(&page);
    let (first, second) = (page, page + 16);
    let map = MemoryMap::read().unwrap();
    let of = |slot: usize, site: usize| {
        let redirect = Redirect::untouched(slot as *mut usize, hook as *const () as usize);
        CallSite::prepare(bytes(page), page, site, &[redirect], &map)
    };
    assert!(of(page + 0x108, first + 8).is_none(), "another import");
    assert!(of(page + 0x100, first + 12).is_none(), "no call");
    let site = of(page + 0x100, first + 8).unwrap();
    assert_eq!((call(first, 1), call(second, 1)), (2, 2));
    // SAFETY: no other thread makes the call.
    unsafe { site.place() }.unwrap();
    assert_eq!((call(first, 1), call(second, 1)), (101, 2));
    // SAFETY: as above.
    unsafe { site.remove() }.unwrap();
    assert_eq!((call(first, 1), call(second, 1)), (2, 2));
}

#[test]
fn distances_are_within_reach() {
    let word = |bytes: Option<[u8; JUMP]>| bytes.map(u32::from_le_bytes);
    assert_eq!(word(jump(0x1000, 0x1004)), Some(0x1400_0001));
    assert_eq!(word(super::call(0x1000, 0xffc)), Some(0x97ff_ffff));
    assert_eq!(word(jump(0, 1 << 27)), None);
    assert_eq!(word(jump(1 << 27, 0)), Some(0x1600_0000));
    assert_eq!(word(jump(0, 2)), None);
}
