//! Finds PyPy's collector in a library without symbols.
//!
//! An allocation in compiled RPython code looks like this on AArch64 (`incminimark.py`, `malloc_fixedsize`; the order of
//! the lines varies, and an address stays in a register where it is used again):
//!
//! ```text
//!     adrp x8, GC
//!     add  x8, x8, :lo12:GC
//!     ldr  x0, [x8, #nursery_free]
//!     ldr  x2, [x8, #nursery_top]
//!     add  x1, x0, #size
//!     str  x1, [x8, #nursery_free]
//!     cmp  x1, x2
//!     b.hi slow
//!     ...
//! slow:
//!     mov  x0, x8
//!     mov  x1, #size
//!     bl   collect_and_reserve
//! ```
//!
//! All slow paths call the same function, with a constant size: no other function has a hundredth of such calls. Before the
//! call, the first argument's register has the address of the collector's struct, and the code around it has the two fields' addresses. What
//! follows from these is the same as for other processors: [`crate::binary::agreement`].

use std::ops::Range;

use nthbyte_session::KeyMap;

use super::instruction::{Instruction, Registers, Value, word};
use crate::binary::agreement::{AllocationSites, agreed, clear_winner};
use crate::binary::function::Function;
use crate::binary::incminimark::{COLLECTOR_STRUCT, Collector, LARGE_OBJECT};

/// The size is set within this many instructions before the call.
const CLOSE_BY: usize = 8;
/// Instructions before a slow path that are searched for the fields' addresses.
const AROUND: usize = 150;

/// Searches `code`, which is mapped at `text`. The collector's struct must lie in `data`.
///
/// # Errors
/// One clause that names the expectation that failed.
pub fn search(code: &[u8], text: usize, data: &Range<usize>) -> Result<Collector, String> {
    let agreed = agreed(slow_paths(code, text))?;
    let reserve = agreed.on;
    let (gc, nursery_free, nursery_top) = fields(code, text, data, agreed.at.into_iter())?;
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

/// The offset of each call with a constant size as the second argument, and what it calls.
fn slow_paths(code: &[u8], text: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    (0..code.len() / 4).filter_map(move |index| {
        let at = 4 * index;
        let Instruction::Call(target) = Instruction::decode(word(code, at)?, text + at) else {
            return None;
        };
        let is_code = target.checked_sub(text).is_some_and(|at| at < code.len());
        let size = size_before(code, at)?;
        let is_size = size > 0 && size % 8 == 0 && size <= LARGE_OBJECT;
        (is_code && is_size).then_some((at, target))
    })
}

/// The constant that the second argument has at a call, by the instructions right before it.
fn size_before(code: &[u8], call: usize) -> Option<usize> {
    for before in 1..=CLOSE_BY {
        let at = call.checked_sub(4 * before)?;
        match Instruction::decode(word(code, at)?, at) {
            Instruction::Set(1, size) => return Some(size),
            Instruction::Add(1, ..)
            | Instruction::Move(1, _)
            | Instruction::Load(1, ..)
            | Instruction::Other([1, _] | [_, 1])
            | Instruction::Call(_)
            | Instruction::CallRegister
            | Instruction::Jump(_)
            | Instruction::Branch(_)
            | Instruction::End => return None,
            _ => {}
        }
    }
    None
}

/// The collector's struct, and the offsets of the two fields. Code near the slow paths compares a register with `nursery_top`,
/// and stores the same register to `nursery_free` close by.
fn fields(
    code: &[u8],
    text: usize,
    data: &Range<usize>,
    sites: impl Iterator<Item = usize>,
) -> Result<(usize, usize, usize), String> {
    let mut structs = KeyMap::<usize, u32>::default();
    let mut stores = KeyMap::<usize, u32>::default();
    let mut compares = KeyMap::<usize, u32>::default();
    let mut seen = 0;
    for site in sites {
        let from = site.saturating_sub(4 * AROUND).max(seen);
        seen = site;
        let mut registers = Registers::new();
        // The last stores, each with its number, its register and its address.
        let mut last = [(0, 0, 0); 4];
        let (mut stored, mut compared) = (0, (usize::MAX, 0, 0));
        for (number, at) in (from..site).step_by(4).enumerate() {
            let instruction = Instruction::decode(word(code, at).unwrap_or(0), text + at);
            if let Instruction::Store(register, base, offset) = instruction
                && let Some(address) = registers.address(base, offset)
                && data.contains(&address)
            {
                last[stored % last.len()] = (number, register, address);
                stored += 1;
                // The store may come after the comparison.
                if number.wrapping_sub(compared.0) < CLOSE_BY && compared.1 == register {
                    *stores.entry(address).or_default() += 1;
                }
            }
            if let Instruction::Compare(first, second) = instruction {
                let of =
                    [(first, second), (second, first)]
                        .into_iter()
                        .find_map(|(with, field)| match registers.value(field) {
                            Value::At(address) if data.contains(&address) => Some((with, address)),
                            _ => None,
                        });
                if let Some((register, address)) = of {
                    *compares.entry(address).or_default() += 1;
                    compared = (number, register, address);
                    let mut before = last[..stored.min(last.len())].iter();
                    if let Some(store) =
                        before.find(|store| store.1 == register && number - store.0 < CLOSE_BY)
                    {
                        *stores.entry(store.2).or_default() += 1;
                    }
                }
            }
            registers.step(instruction);
        }
        if let Value::Is(address) = registers.value(0)
            && data.contains(&address)
        {
            *structs.entry(address).or_default() += 1;
        }
    }
    let gc = clear_winner(&structs).ok_or("the collector's struct is not clear")?;
    let offset = |address: Option<usize>| {
        address
            .and_then(|address| address.checked_sub(gc))
            .filter(|&offset| offset < COLLECTOR_STRUCT && offset % 8 == 0)
    };
    let free = offset(clear_winner(&stores)).ok_or("the offset of nursery_free is not clear")?;
    let top = offset(clear_winner(&compares)).ok_or("the offset of nursery_top is not clear")?;
    if free == top {
        return Err(format!(
            "nursery_free and nursery_top are both at {free:#x}"
        ));
    }
    Ok((gc, free, top))
}

#[cfg(test)]
mod tests;
