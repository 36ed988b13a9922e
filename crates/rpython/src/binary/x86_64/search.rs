//! Finds PyPy's collector in a library without symbols.
//!
//! An allocation in compiled RPython code looks like this on x86-64 (`incminimark.py`,
//! `malloc_fixedsize`; the order of the first lines varies):
//!
//! ```text
//!     mov  nursery_free(%rip), %rax
//!     lea  size(%rax), %rdx
//!     mov  %rdx, nursery_free(%rip)
//!     cmp  %rdx, nursery_top(%rip)
//!     jb   slow
//!     ...
//! slow:
//!     mov  $size, %esi
//!     lea  GC(%rip), %rdi
//!     call collect_and_reserve
//! ```
//!
//! There are thousands of slow paths, all with the same `GC` (the collector's struct) and the same call
//! target. No other pair of struct and target has a tenth as many. So a byte search for the last three instructions
//! finds both. The code around them contains the offsets of the two fields. Of the functions that
//! `collect_and_reserve` calls, the one that sets both fields is `_minor_collection`.
//!
//! `collect_and_reserve` also calls `minor_collection_with_major_progress`, which calls `major_collection_step`. That
//! function sets the collector's state to 0, 1, 2 and 3; no other function that is called there does so.
//!
//! The search takes less than a millisecond. It only reads bytes.

use std::ops::Range;

use nthbyte_session::KeyMap;

use crate::binary::agreement::{AllocationSites, agreed, clear_winner};
use crate::binary::function::Function;
use crate::binary::incminimark::{COLLECTOR_STRUCT, Collector, LARGE_OBJECT};

/// Bytes of code before a slow path that are searched for the fields' offsets.
const AROUND: usize = 600;
/// Bytes before and after the comparison that are searched for the store.
pub(super) const CLOSE_BY: usize = 24;

/// Searches `code`, which is mapped at `text`. The collector's struct must lie in `data`.
///
/// # Errors
/// One clause that names the expectation that failed.
pub fn search(code: &[u8], text: usize, data: &Range<usize>) -> Result<Collector, String> {
    let agreed = agreed(slow_paths(code, text, data))?;
    let (gc, reserve) = agreed.on;
    let (nursery_free, nursery_top) = fields(code, text, gc, agreed.at.into_iter())?;
    let slow_path = Function::decode(code, text, reserve);
    let found = AllocationSites {
        gc,
        reserve,
        nursery_free,
        nursery_top,
        sites: agreed.sites,
        runner_up: agreed.runner_up,
    };
    found.collector(code, text, &slow_path)
}

/// All places of the form `mov $size,%esi; lea GC(%rip),%rdi; call target`: the index of `lea` in the code, with the collector and
/// the target.
fn slow_paths<'a>(
    code: &'a [u8],
    text: usize,
    data: &'a Range<usize>,
) -> impl Iterator<Item = (usize, (usize, usize))> + 'a {
    memchr::memmem::find_iter(code, &[0x48, 0x8d, 0x3d]).filter_map(move |at| {
        let before = at.checked_sub(5)?;
        let after = code.get(at + 7..at + 12)?;
        if code[before] != 0xbe || after[0] != 0xe8 {
            return None;
        }
        let size = displacement(code, before + 1);
        if size <= 0 || size % 8 != 0 || size.cast_unsigned() as usize > LARGE_OBJECT {
            return None;
        }
        let gc = (text + at + 7).wrapping_add_signed(displacement(code, at + 3) as isize);
        let target = (text + at + 12).wrapping_add_signed(displacement(code, at + 8) as isize);
        let is_known = data.contains(&gc) && (text..text + code.len()).contains(&target);
        is_known.then_some((at, (gc, target)))
    })
}

/// The offsets of the two fields. Code near the slow paths compares a register with `nursery_top`,
/// and stores the same register to `nursery_free` close by.
fn fields(
    code: &[u8],
    text: usize,
    gc: usize,
    sites: impl Iterator<Item = usize>,
) -> Result<(usize, usize), String> {
    let mut stores = KeyMap::<usize, u32>::default();
    let mut compares = KeyMap::<usize, u32>::default();
    let mut seen = 0;
    for site in sites {
        let from = site.saturating_sub(AROUND).max(seen);
        seen = site;
        let of_struct = |at: usize| {
            field_access(code, text, at)
                .filter(|access| access.address >= gc && access.address < gc + COLLECTOR_STRUCT)
        };
        // The opcode is the second byte.
        let compares_at = memchr::memchr2_iter(0x39, 0x3b, &code[from + 1..=site]);
        for at in compares_at.map(|opcode| from + opcode) {
            let Some(compare) = of_struct(at) else {
                continue;
            };
            *compares.entry(compare.address - gc).or_default() += 1;
            let close_by = at.saturating_sub(CLOSE_BY)..at + CLOSE_BY;
            let store = close_by
                .filter_map(of_struct)
                .find(|access| access.opcode == 0x89 && access.register == compare.register);
            if let Some(store) = store {
                *stores.entry(store.address - gc).or_default() += 1;
            }
        }
    }
    let free = clear_winner(&stores).ok_or("the offset of nursery_free is not clear")?;
    let top = clear_winner(&compares).ok_or("the offset of nursery_top is not clear")?;
    if free == top || free % 8 != 0 || top % 8 != 0 {
        return Err(format!(
            "implausible offsets of nursery_free ({free:#x}) and nursery_top ({top:#x})"
        ));
    }
    Ok((free, top))
}

/// An instruction `REX.W opcode modrm disp32` whose operand is relative to `%rip`.
pub(super) struct FieldAccess {
    pub(super) opcode: u8,
    pub(super) register: u8,
    pub(super) address: usize,
}

pub(super) fn field_access(code: &[u8], text: usize, at: usize) -> Option<FieldAccess> {
    let &[rex, opcode, modrm, ..] = code.get(at..at + 7)? else {
        return None;
    };
    (matches!(rex, 0x48 | 0x4c) && modrm & 0xc7 == 0x05).then(|| FieldAccess {
        opcode,
        register: (rex & 4) << 1 | modrm >> 3 & 7,
        address: (text + at + 7).wrapping_add_signed(displacement(code, at + 3) as isize),
    })
}

pub(super) fn displacement(code: &[u8], at: usize) -> i32 {
    code.get(at..at + 4).map_or(0, |bytes| {
        i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    })
}

#[cfg(test)]
mod tests;
