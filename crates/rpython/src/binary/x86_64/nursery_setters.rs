//! Finds the functions, besides a collection's, that set both of the nursery's pointers: `allocate_nursery`, which the
//! collector's set-up calls, or the function into which a compiler has put it.

use super::search::field_access;
use crate::binary::function::Function;
use crate::binary::function_table::FunctionTable;
use crate::binary::incminimark::Collector;

/// A smaller offset has another form, of one byte.
const FEWEST_OFFSET: usize = 0x80;

/// The functions' addresses. `code` is mapped at `text`.
#[must_use]
pub fn nursery_setters(
    code: &[u8],
    text: usize,
    collector: &Collector,
    functions: &FunctionTable,
) -> Vec<usize> {
    let mut found: Vec<usize> = stores_to_top(code, text, collector)
        .into_iter()
        .filter_map(|store| functions.start_of(store))
        .collect();
    found.sort_unstable();
    found.dedup();
    found.retain(|&start| {
        start != collector.reserve
            && start != collector.minor
            && sets_both(&Function::decode(code, text, start), collector)
    });
    found
}

fn sets_both(function: &Function, collector: &Collector) -> bool {
    let fields = [collector.nursery_free, collector.nursery_top];
    fields.iter().all(|&offset| {
        function.stores.contains(&offset)
            || function.stores_absolute.contains(&(collector.gc + offset))
    })
}

/// The addresses of instructions that store a register in `nursery_top`.
fn stores_to_top(code: &[u8], text: usize, collector: &Collector) -> Vec<usize> {
    let mut found = Vec::new();
    if let Ok(offset) = u32::try_from(collector.nursery_top)
        && collector.nursery_top >= FEWEST_OFFSET
    {
        let offset = offset.to_le_bytes();
        let places = memchr::memmem::find_iter(code, &offset);
        found.extend(places.filter_map(|at| Some(text + store_before(code, at)?)));
    }
    let top = collector.gc + collector.nursery_top;
    let opcodes = memchr::memchr_iter(0x89, code.get(1..).unwrap_or_default());
    let stores =
        opcodes.filter(|&at| field_access(code, text, at).is_some_and(|one| one.address == top));
    found.extend(stores.map(|at| text + at));
    found
}

/// The index of `mov %register, offset(%register)` whose offset is at this index, with or without a byte for an index register.
fn store_before(code: &[u8], offset: usize) -> Option<usize> {
    [(3, false), (4, true)]
        .into_iter()
        .find_map(|(length, has_index)| {
            let start = offset.checked_sub(length)?;
            let &[rex, opcode, modrm, ..] = code.get(start..offset)? else {
                return None;
            };
            let is_store = matches!(rex, 0x48..=0x4f)
                && opcode == 0x89
                && modrm >> 6 == 2
                && (modrm & 7 == 4) == has_index;
            is_store.then_some(start)
        })
}
