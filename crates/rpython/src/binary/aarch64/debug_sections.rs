//! Finds the functions that begin and end a section of RPython's log: `pypy_debug_start(category, …)` and `pypy_debug_stop(category,
//! …)`. The collector calls both, with names that are known: the only ones in a minor collection and in a step of a major one.
//!
//! ```text
//! adrp x0, "gc-minor"
//! add  x0, x0, :lo12:"gc-minor"
//! bl   pypy_debug_start            the first function that is called with it
//! ...
//! bl   pypy_debug_stop             the only other one
//! ```

use std::ops::Range;

use nthbyte_host::process::Probe;

use super::instruction::{Instruction, Registers, Value, word};
use crate::binary::function_table::FunctionTable;
use crate::binary::incminimark::Collector;

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

/// The functions that the code in this range calls with such a constant as the first argument, each once, those first that
/// are called first. Constants are followed from one instruction to the next one, whatever leads there.
fn calls_with(
    code: &[u8],
    text: usize,
    range: Range<usize>,
    mut is_category: impl FnMut(usize) -> bool,
) -> Vec<usize> {
    let mut found = Vec::new();
    let mut registers = Registers::new();
    for at in range.clone().step_by(4) {
        let Some(word) = at.checked_sub(text).and_then(|at| word(code, at)) else {
            break;
        };
        let instruction = Instruction::decode(word, at);
        if let Instruction::Call(target) | Instruction::Jump(target) = instruction
            && !range.contains(&target)
            && !found.contains(&target)
            && matches!(registers.value(0), Value::Is(address) if is_category(address))
        {
            found.push(target);
        }
        registers.step(instruction);
    }
    found
}
