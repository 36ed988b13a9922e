//! Which calls of `malloc` are the collector's, by the code around them.
//!
//! Inside of a collection, all calls are. Outside of one, the collector allocates where `id()` or a set needs the
//! identity of a young object, where the program writes to an old one, and where a small object is old from the start:
//!
//! ```text
//! an arena                       mov $0x80000,%edi       its size is a constant
//!                                call malloc
//! a part of an AddressStack      mov $0x1fe0,%edi        so is this one
//!                                call malloc
//! a table of an AddressDict      mov $0x10,%edx          item size ┐ arguments of the function that
//!                                xor %ecx,%ecx           offset    │ calls malloc; their order varies
//!                                mov $0x8,%esi           header    ┘
//!                                call raw_malloc_varsize
//! ```
//!
//! In PyPy 7.3.11, 7.3.19 and 8.0.1, one place has the first form, 27 to 43 have the second one, all of them lists of
//! addresses; and three have the third one, all of them in `lldict.py`. Where a compiler orders the instructions in
//! another way, nothing is found, and the memory counts as the program's.

use crate::binary::incminimark::{ADDRESS_STACK_PART, ARENA};

/// `mov imm32, %edi`, and a call with a distance or through an import slot.
const MOV_EDI: u8 = 0xbf;
const CALL: u8 = 0xe8;
const CALL_SLOT: [u8; 2] = [0xff, 0x15];

/// An item of a dictionary of addresses is two words, after one word for their number.
const ITEM: u64 = 16;
const HEADER: u64 = 8;
const FEWEST_ITEMS: u64 = 8;
/// The arguments of `raw_malloc_varsize` that say so.
const ARGUMENTS: [&[u8]; 3] = [
    &[0xba, 0x10, 0, 0, 0],
    &[0xbe, 0x08, 0, 0, 0],
    &[0x31, 0xc9],
];
/// They are within this many bytes before the call.
const ARGUMENTS_WITHIN: usize = 32;
/// `raw_malloc_varsize` calls `malloc` within this many bytes, and has at most this many words on the stack.
const VARSIZE_WITHIN: usize = 256;
const VARSIZE_WORDS: usize = 12;

/// The words of the stack in which the call of `malloc` is sought: the agent's own frames take some fifty.
pub const WORDS: usize = 256;

/// Whether a call of `malloc` for `size` bytes, which returns to the address `after`, is the collector's. `code` is the
/// library's, at the address `start`. `stack` stores words of the stack, from somewhere inside of the call on; it is
/// asked for few sizes.
pub fn is_collectors(
    code: &[u8],
    start: usize,
    size: u64,
    after: usize,
    stack: impl FnOnce(&mut [usize; WORDS]),
) -> bool {
    let Some(after) = after
        .checked_sub(start)
        .filter(|&after| after <= code.len())
    else {
        return false;
    };
    if size == ARENA || size == ADDRESS_STACK_PART {
        return is_constant(&code[..after], size);
    }
    if !is_table(size) {
        return false;
    }
    let mut words = [0; WORDS];
    stack(&mut words);
    (0..words.len()).any(|at| {
        words[at] == start + after
            && words[at + 1..]
                .iter()
                .take(VARSIZE_WORDS)
                .any(|word| is_call_for_table(code, word.wrapping_sub(start), after))
    })
}

/// Whether code ends with a call whose argument is the constant `size`.
fn is_constant(code: &[u8], size: u64) -> bool {
    let call = match code {
        [.., CALL, _, _, _, _] => 5,
        [.., first, second, _, _, _, _] if [*first, *second] == CALL_SLOT => 6,
        _ => return false,
    };
    let before = &code[..code.len() - call];
    matches!(before, [.., MOV_EDI, a, b, c, d] if u64::from(u32::from_le_bytes([*a, *b, *c, *d])) == size)
}

/// Whether a table of a dictionary may have this size: it grows by doubling.
const fn is_table(size: u64) -> bool {
    size % ITEM == HEADER && size / ITEM >= FEWEST_ITEMS && (size / ITEM).is_power_of_two()
}

/// Whether code has, before the offset `after`, a call for a table, of a function that contains the offset `within`.
fn is_call_for_table(code: &[u8], after: usize, within: usize) -> bool {
    let Some([.., CALL, a, b, c, d]) = code.get(after.saturating_sub(5)..after) else {
        return false;
    };
    let distance = i32::from_le_bytes([*a, *b, *c, *d]);
    let target = after.wrapping_add_signed(distance as isize);
    if !(1..VARSIZE_WITHIN).contains(&within.wrapping_sub(target)) {
        return false;
    }
    let before = &code[(after - 5).saturating_sub(ARGUMENTS_WITHIN)..after - 5];
    ARGUMENTS.iter().all(|argument| {
        before
            .windows(argument.len())
            .any(|bytes| bytes == *argument)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: usize = 0x7f00_0000_0000;

    /// A call of `malloc` as 7.3.11 has it for an arena.
    const OF_ARENA: [u8; 10] = [0xbf, 0, 0, 8, 0, 0xe8, 0xf6, 0x52, 0xfc, 0xfe];

    fn never(_: &mut [usize; WORDS]) {
        unreachable!("the stack is not needed")
    }

    fn is_arena(code: &[u8], size: u64, after: usize) -> bool {
        is_collectors(code, START, size, START + after, never)
    }

    #[test]
    fn a_constant_size_before_the_call() {
        assert!(is_arena(&OF_ARENA, ARENA, 10));
        // Another size, another place, outside of the code.
        assert!(!is_arena(&OF_ARENA, ADDRESS_STACK_PART, 10));
        for after in (0..10).chain([11, 1 << 40]) {
            assert!(!is_arena(&OF_ARENA, ARENA, after), "{after}");
        }
        assert!(!is_collectors(&OF_ARENA, START, ARENA, 10, never));
        // A call without a constant, or with another one.
        assert!(!is_arena(
            &[0x48, 0x89, 0xdf, 0x90, 0x90, 0xe8, 1, 2, 3, 4],
            ARENA,
            10
        ));
        assert!(!is_arena(&[0xbf, 0, 0, 4, 0, 0xe8, 1, 2, 3, 4], ARENA, 10));
        assert!(is_arena(
            &[0xbf, 0, 0, 8, 0, 0xff, 0x15, 2, 3, 4, 5],
            ARENA,
            11
        ));
        assert!(is_arena(
            &[0xbf, 0xe0, 0x1f, 0, 0, 0xe8, 1, 2, 3, 4],
            ADDRESS_STACK_PART,
            10
        ));
    }

    /// A function at 16 that calls `malloc` at 64, and a call of it for `item` bytes, which returns to 200.
    fn code_for(item: u8, target: i32) -> Vec<u8> {
        let mut code = vec![0x90; 300];
        code[59] = CALL;
        code[195] = CALL;
        code[196..200].copy_from_slice(&(target - 200).to_le_bytes());
        let arguments = [
            0x31, 0xc9, 0xba, item, 0, 0, 0, 0x4c, 0x89, 0xef, 0xbe, 8, 0, 0, 0,
        ];
        code[180..195].copy_from_slice(&arguments);
        code
    }

    #[test]
    fn a_table_by_the_call_that_its_size_comes_from() {
        let is_table = |code: &[u8], size, words: Vec<usize>| {
            is_collectors(code, START, size, START + 64, |stack| {
                stack[..words.len()].copy_from_slice(&words)
            })
        };
        let words = |gap: usize| {
            let mut words = vec![1, START + 200, START + 64];
            words.resize(3 + gap, START + 64);
            words.push(START + 200);
            words
        };
        let code = code_for(16, 16);
        assert!(is_table(&code, 8 + 16 * 8, words(0)));
        assert!(is_table(&code, 8 + 16 * 32_768, words(5)));
        // No size of a table.
        for size in [8 + 16 * 4, 8 + 16 * 9, 16 * 8, 7 + 16 * 8] {
            assert!(!is_table(&code, size, words(0)), "{size}");
        }
        // No such call outside of malloc's, one of another function, and one for other items.
        assert!(!is_table(
            &code,
            8 + 16 * 8,
            vec![START + 200, START + 64, 5, usize::MAX]
        ));
        assert!(!is_table(&code_for(16, 65), 8 + 16 * 8, words(0)));
        assert!(!is_table(&code_for(16, 4), 8 + 16 * 8, vec![START + 200]));
        assert!(!is_table(&code_for(8, 16), 8 + 16 * 8, words(0)));
    }
}
