//! VMProf's stacks as a tree, so that a sample needs only a 4-byte number.

use std::collections::HashMap;

/// VMProf cuts deeper stacks at 2^16 words.
pub(super) const MAX_DEPTH: i64 = 1 << 16;

/// The kind of a frame in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RawKind {
    /// Bytecode.
    Python,
    /// A function in the running compiled trace.
    Jit,
    /// Machine code of a library.
    Native,
    /// PyPy, recording a trace.
    Tracing,
    /// PyPy, leaving a trace.
    Blackhole,
    /// PyPy's collector.
    Gc,
}

/// A frame of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RawFrame {
    pub kind: RawKind,
    /// The key of its name: an address, or PyPy's number of a code object.
    pub address: i64,
    /// The line that runs; 0 if it was not recorded.
    pub line: u32,
}

/// Number of the empty stack.
pub(super) const ROOT: u32 = 0;

/// The tree. Callers come before callees.
#[derive(Debug)]
pub(super) struct Stacks {
    /// Caller and frame of every stack except the root; stack `n` is at index `n - 1`.
    pub list: Vec<(u32, RawFrame)>,
    numbers: HashMap<(u32, RawFrame), u32>,
}

impl Stacks {
    pub fn new() -> Self {
        Self {
            list: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// The number of a stack, given its frames from the outermost to the innermost.
    pub fn number(&mut self, frames: &[RawFrame]) -> u32 {
        let mut at = ROOT;
        for &frame in frames {
            let list = &mut self.list;
            at = *self.numbers.entry((at, frame)).or_insert_with(|| {
                list.push((at, frame));
                list.len() as u32
            });
        }
        at
    }
}

/// The layout of traces. The file's header determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// CPython: an address for each frame.
    Addresses,
    /// CPython: a line and an address for each frame.
    LinesAndAddresses,
    /// PyPy: a kind and an address for each frame.
    KindsAndAddresses,
}

/// The frames of a trace, outermost first. `None` if the words are not a valid trace.
pub(super) fn frames(words: &[i64], layout: Layout) -> Option<Vec<RawFrame>> {
    let mut frames = Vec::with_capacity(words.len());
    match layout {
        Layout::Addresses => frames.extend(words.iter().rev().map(|&word| plain(word, 0))),
        Layout::LinesAndAddresses => {
            for pair in words.chunks(2).rev() {
                let &[line, address] = pair else {
                    return None;
                };
                frames.push(plain(address, u32::try_from(line).unwrap_or(0)));
            }
        }
        Layout::KindsAndAddresses => {
            for pair in words.chunks(2).rev() {
                let &[kind, address] = pair else {
                    return None;
                };
                push_tagged(&mut frames, kind, address)?;
            }
        }
    }
    Some(frames)
}

/// VMProf sets the lowest bit of addresses in native code.
const fn plain(address: i64, line: u32) -> RawFrame {
    let kind = if address > 0 && address & 1 == 1 {
        RawKind::Native
    } else {
        RawKind::Python
    };
    RawFrame {
        kind,
        address,
        line,
    }
}

/// The tags of `vmprof_stack_t` in PyPy (`VMPROF_CODE_TAG` and on).
fn push_tagged(frames: &mut Vec<RawFrame>, tag: i64, address: i64) -> Option<()> {
    let kind = match tag {
        1 => RawKind::Python,
        2 => RawKind::Blackhole,
        3 => RawKind::Jit,
        4 => RawKind::Tracing,
        5 => RawKind::Gc,
        // The address of the trace's machine code. Its functions have frames of their own.
        6 => return Some(()),
        7 => RawKind::Native,
        _ => return None,
    };
    let frame = RawFrame {
        kind,
        address,
        line: 0,
    };
    // The function of a compiled loop is on the stack twice: it entered the loop, and it is the
    // outermost function of the trace.
    let entered = RawFrame {
        kind: RawKind::Python,
        ..frame
    };
    if kind == RawKind::Jit && frames.last() == Some(&entered) {
        frames.pop();
    }
    frames.push(frame);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(frames: &[RawFrame]) -> Vec<(RawKind, i64, u32)> {
        let parts = |frame: &RawFrame| (frame.kind, frame.address, frame.line);
        frames.iter().map(parts).collect()
    }

    #[test]
    fn traces_are_reversed_and_odd_addresses_are_native() {
        let found = frames(&[0x31, 0x20, 0x10], Layout::Addresses).unwrap();
        let expected = [
            (RawKind::Python, 0x10, 0),
            (RawKind::Python, 0x20, 0),
            (RawKind::Native, 0x31, 0),
        ];
        assert_eq!(kinds(&found), expected);
    }

    #[test]
    fn a_line_comes_before_its_address() {
        let found = frames(&[0, 0x31, 7, 0x10], Layout::LinesAndAddresses).unwrap();
        let expected = [(RawKind::Python, 0x10, 7), (RawKind::Native, 0x31, 0)];
        assert_eq!(kinds(&found), expected);
        assert_eq!(frames(&[7, 0x10, 8], Layout::LinesAndAddresses), None);
    }

    #[test]
    fn a_compiled_loop_is_one_frame_without_its_machine_code() {
        // Innermost first: code of the trace, inlined function, function of the loop, its entry.
        let words = [6, 0x999, 3, 0x20, 3, 0x10, 1, 0x10];
        let found = frames(&words, Layout::KindsAndAddresses).unwrap();
        assert_eq!(
            kinds(&found),
            [(RawKind::Jit, 0x10, 0), (RawKind::Jit, 0x20, 0)]
        );
        assert_eq!(frames(&[99, 0x10], Layout::KindsAndAddresses), None);
    }

    #[test]
    fn equal_stacks_have_equal_numbers() {
        let mut stacks = Stacks::new();
        let (a, b) = (plain(0x10, 0), plain(0x20, 0));
        assert_eq!(stacks.number(&[]), ROOT);
        let one = stacks.number(&[a, b]);
        assert_eq!(stacks.number(&[a, b]), one);
        assert_ne!(stacks.number(&[a, a]), one);
        assert_eq!(stacks.list.len(), 3);
    }
}
