//! Finds the functions that begin and end a section of RPython's log: `pypy_debug_start(category, …)` and `pypy_debug_stop(category,
//! …)`. The collector calls both, with names that are known: the only ones in a minor collection and in a step of a major one.

use nthbyte_host::process::Probe;

use super::architecture::debug_sections::calls_with;
use super::function_table::FunctionTable;
use super::incminimark::Collector;

const MINOR: &[u8] = b"gc-minor\0";
const MAJOR_STEP: &[u8] = b"gc-collect-step\0";

/// The two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugSections {
    /// `pypy_debug_start`.
    pub start: usize,
    /// `pypy_debug_stop`.
    pub stop: usize,
}

/// Finds both. `None` unless a minor collection and a step of a major one agree. `code` is mapped at `text`.
#[must_use]
pub fn debug_sections(
    code: &[u8],
    text: usize,
    collector: &Collector,
    functions: &FunctionTable,
) -> Option<DebugSections> {
    let memory = Probe::new()?;
    let of = |function: usize, category: &[u8]| {
        let range = function..functions.end_of(function)?;
        let is_category = |address: usize| {
            let mut text = [0; MAJOR_STEP.len()];
            let text = &mut text[..category.len()];
            memory.bytes(address, text) == text.len() && text == category
        };
        match calls_with(code, text, range, is_category)[..] {
            [start, stop] => Some(DebugSections { start, stop }),
            _ => None,
        }
    };
    let minor = of(collector.minor, MINOR)?;
    (of(collector.major?.step, MAJOR_STEP) == Some(minor)).then_some(minor)
}
