//! The count of those who want `_vmprof` to ignore its signal.
//!
//! `vmprof_ignore_signals` of `rvmprof/src/shared/vmprof_common.h` adds 1 to it, and subtracts 1. It has no name, but the function
//! `vmprof_enter_signal`, which PyPy exports, does nothing but count itself elsewhere and return it.

use std::ops::Range;

/// `endbr64`, which some builds begin each function with.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `lock add qword ptr [rip + …], 1`, without the distance and the number.
const COUNT: [u8; 4] = [0xf0, 0x48, 0x83, 0x05];
/// `mov rax, qword ptr [rip + …]`, without the distance.
const LOAD: [u8; 3] = [0x48, 0x8b, 0x05];
const RETURN: u8 = 0xc3;
/// The length of the two instructions.
const COUNT_LENGTH: usize = 9;
const LOAD_LENGTH: usize = 7;

/// The address of the count, from the code of `vmprof_enter_signal` at an address. `None` if it is other code, or if the count
/// would not lie in `data`.
#[must_use]
pub fn count_of_ignoring(code: &[u8], address: usize, data: &Range<usize>) -> Option<usize> {
    let landing = if code.starts_with(&LANDING) {
        LANDING.len()
    } else {
        0
    };
    let code = code.get(landing..landing + COUNT_LENGTH + LOAD_LENGTH + 1)?;
    let (count, load) = code.split_at(COUNT_LENGTH);
    let is_known = count.starts_with(&COUNT)
        && count[COUNT_LENGTH - 1] == 1
        && load.starts_with(&LOAD)
        && load[LOAD_LENGTH] == RETURN;
    let distance = i32::from_le_bytes(load[LOAD.len()..LOAD_LENGTH].try_into().ok()?);
    let behind = address + landing + COUNT_LENGTH + LOAD_LENGTH;
    let found = behind.checked_add_signed(distance as isize)?;
    (is_known && data.contains(&found) && found.is_multiple_of(8)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_what_the_function_returns() {
        let plain = [
            0xf0, 0x48, 0x83, 0x05, 0, 1, 0, 0, 1, 0x48, 0x8b, 0x05, 0xf0, 0, 0, 0, 0xc3,
        ];
        let landed = [&LANDING[..], &plain].concat();
        let data = 0x1000..0x2000;
        assert_eq!(count_of_ignoring(&plain, 0x1000, &data), Some(0x1100));
        assert_eq!(count_of_ignoring(&landed, 0x1004, &data), Some(0x1108));
        assert_eq!(
            count_of_ignoring(&plain, 0x1004, &data),
            None,
            "not aligned"
        );
        assert_eq!(count_of_ignoring(&plain, 0x3000, &data), None);
        for at in 0..plain.len() {
            let mut other = plain;
            other[at] ^= 0x40;
            let found = count_of_ignoring(&other, 0x1000, &data);
            let is_distance = (4..8).contains(&at) || (12..16).contains(&at);
            assert!(found.is_none() || is_distance, "{at}");
        }
        assert_eq!(count_of_ignoring(&plain[..16], 0x1000, &data), None);
    }
}
