//! Finds the collector of a program that has few allocations in its code: thousands of [slow paths](super::search) that
//! agree are PyPy's; a small interpreter has dozens, and a compiler keeps the struct's address in a register for some.
//!
//! So the search goes the other way round. It asks for the two fields first, for a function that sets them next, and then
//! whether all of it fits together:
//!
//! ```text
//! lea  size(%rax), %rdx         1. most fast paths agree on the addresses of nursery_free and nursery_top
//! mov  %rdx, nursery_free(%rip)
//! cmp  %rdx, nursery_top(%rip)
//!
//! mov  $size, %esi              2. one function that is called with a constant size sets two fields of its argument
//! call collect_and_reserve         that are as far from each other
//!
//! lea  GC(%rip), %rdi           3. its argument is, at one call at least, the struct whose fields have these addresses
//! ```
//!
//! What follows from the pair is the same as for PyPy. The search reads all of the code: some milliseconds for each
//! megabyte. The caller asks for it only where the program's data says that it was translated with this collector.

use std::ops::Range;

use nthbyte_session::KeyMap;

use super::search::{CLOSE_BY, displacement, field_access};
use crate::binary::agreement::{AllocationSites, leads};
use crate::binary::function::Function;
use crate::binary::incminimark::{COLLECTOR_STRUCT, Collector, LARGE_OBJECT};

/// A program with fewer fast paths is refused. The smallest program, which allocates in one line, has 34: RPython's own
/// start-up code allocates.
const FEWEST_FAST_PATHS: u32 = 12;
/// So many calls of the slow path must have a constant size.
const FEWEST_CALLS: u32 = 4;
/// At most so many of the functions that are called with a constant size are looked at, the most called ones.
const MOST_CANDIDATES: usize = 64;
/// Arguments are set within this many bytes before a call.
const ARGUMENTS_WITHIN: usize = 24;
const CALL_LENGTH: usize = 5;

/// Searches `code`, which is mapped at `text`. The collector's struct must lie in `data`.
///
/// # Errors
/// One clause that names the expectation that failed.
pub fn search(code: &[u8], text: usize, data: &Range<usize>) -> Result<Collector, String> {
    let (free, top, sites, runner_up) = fields(code, text, data)?;
    let calls = sized_calls(code, text);
    let mut found = Vec::new();
    for (target, at) in ranked(&calls).into_iter().take(MOST_CANDIDATES) {
        let function = Function::decode(code, text, target);
        let bases = bases(&function, free, top);
        let gc = bases.iter().find(|gc| {
            data.contains(gc) && at.iter().any(|&call| has_argument(code, text, call, **gc))
        });
        if let Some(&gc) = gc {
            found.push((gc, target, function));
        }
    }
    let (gc, reserve, slow_path) = match found.len() {
        1 => found.swap_remove(0),
        0 => return Err("no function that reserves memory in the nursery was found".to_owned()),
        several => {
            return Err(format!(
                "{several} functions seem to reserve memory in the nursery"
            ));
        }
    };
    let found = AllocationSites {
        gc,
        reserve,
        nursery_free: free - gc,
        nursery_top: top - gc,
        sites,
        runner_up,
    };
    found.collector(code, text, &slow_path)
}

/// The addresses of `nursery_free` and `nursery_top`, on which the fast paths agree, with their number, and the number for
/// the second-best pair.
fn fields(
    code: &[u8],
    text: usize,
    data: &Range<usize>,
) -> Result<(usize, usize, u32, u32), String> {
    let mut votes = KeyMap::<(usize, usize), u32>::default();
    let of_data = |at: usize| {
        field_access(code, text, at)
            .filter(|access| data.contains(&access.address) && access.address.is_multiple_of(8))
    };
    // The opcode is the second byte.
    let opcodes = memchr::memchr2_iter(0x39, 0x3b, code.get(1..).unwrap_or_default());
    for compare in opcodes.filter_map(|at| Some((at, of_data(at)?))) {
        let (at, compare) = compare;
        let is_other = |address: usize| {
            address != compare.address && address.abs_diff(compare.address) < COLLECTOR_STRUCT
        };
        let store = (at.saturating_sub(CLOSE_BY)..at + CLOSE_BY)
            .filter_map(of_data)
            .find(|access| {
                access.opcode == 0x89
                    && access.register == compare.register
                    && is_other(access.address)
            });
        if let Some(store) = store {
            *votes.entry((store.address, compare.address)).or_default() += 1;
        }
    }
    let winner = votes.iter().max_by_key(|&(&pair, &count)| (count, pair));
    let (&(free, top), &count) = winner.ok_or("no allocation site was found")?;
    let others = votes.iter().filter(|&(&pair, _)| pair != (free, top));
    let runner_up = others.map(|(_, &count)| count).max().unwrap_or(0);
    if count < FEWEST_FAST_PATHS || !leads(count, runner_up) {
        return Err(format!(
            "the allocation sites do not agree on one nursery ({count} against {runner_up})"
        ));
    }
    Ok((free, top, count, runner_up))
}

/// The calls with `mov $size,%esi` shortly before them, by the called function: indices in the code.
fn sized_calls(code: &[u8], text: usize) -> KeyMap<usize, Vec<usize>> {
    let mut calls = KeyMap::<usize, Vec<usize>>::default();
    for at in memchr::memchr_iter(0xe8, code) {
        let target =
            (text + at + CALL_LENGTH).wrapping_add_signed(displacement(code, at + 1) as isize);
        let before = at.saturating_sub(ARGUMENTS_WITHIN)..at.saturating_sub(4);
        let is_size = |from: usize| {
            let size = displacement(code, from + 1);
            code[from] == 0xbe
                && size > 0
                && size % 8 == 0
                && size.cast_unsigned() as usize <= LARGE_OBJECT
        };
        if (text..text + code.len()).contains(&target) && before.rev().any(is_size) {
            calls.entry(target).or_default().push(at);
        }
    }
    calls
}

/// The called functions with enough calls, the most called one first.
fn ranked(calls: &KeyMap<usize, Vec<usize>>) -> Vec<(usize, &Vec<usize>)> {
    let mut ranked: Vec<_> = calls
        .iter()
        .map(|(&target, at)| (target, at))
        .filter(|(_, at)| at.len() >= FEWEST_CALLS as usize)
        .collect();
    ranked.sort_by_key(|&(target, at)| (usize::MAX - at.len(), target));
    ranked
}

/// The addresses at which the function's argument would have the two fields where the fast paths have them.
fn bases(function: &Function, free: usize, top: usize) -> Vec<usize> {
    let stores = &function.stores;
    let offsets = stores.iter().filter(|&&offset| {
        offset < COLLECTOR_STRUCT
            && offset.is_multiple_of(8)
            && stores.contains(&offset.wrapping_add(top.wrapping_sub(free)))
    });
    offsets.map(|offset| free.wrapping_sub(*offset)).collect()
}

/// Whether this address is loaded into `%rdi` shortly before the call: `lea address(%rip),%rdi`, or `mov $address,%edi` in a
/// program with fixed addresses.
fn has_argument(code: &[u8], text: usize, call: usize, address: usize) -> bool {
    (call.saturating_sub(ARGUMENTS_WITHIN)..call).any(|at| match code.get(at..at + 3) {
        Some([0x48, 0x8d, 0x3d]) => {
            let distance = displacement(code, at + 3) as isize;
            (text + at + 7).wrapping_add_signed(distance) == address
        }
        Some([0xbf, ..]) => displacement(code, at + 1).cast_unsigned() as usize == address,
        _ => false,
    })
}
