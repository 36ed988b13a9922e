//! Integers of variable length: seven bits in each byte, the lowest first, the top bit set on all
//! bytes except the last (LEB128). Signed integers are mapped before (zigzag): 0, -1, 1, -2, …
//! become 0, 1, 2, 3, …

/// Appends an unsigned number.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small signed numbers to small unsigned numbers.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Removes an unsigned number from the front of `bytes`; `None` if it is incomplete or exceeds 64
/// bits.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * at as u32;
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_taken(values in prop::collection::vec(any::<u64>(), 0..20), shift in 0u32..64) {
            let values: Vec<u64> = values.iter().map(|value| value >> shift).collect();
            let mut bytes = Vec::new();
            values.iter().for_each(|&value| put(&mut bytes, value));
            let mut rest = &bytes[..];
            for value in values {
                prop_assert_eq!(take(&mut rest), Some(value));
            }
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn zigzag_has_an_inverse(value in any::<i64>()) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(take(&mut &most[..]), Some(u64::MAX));
        let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(take(&mut &over[..]), None);
        assert_eq!(take(&mut &[0x80; 11][..]), None);
    }
}
