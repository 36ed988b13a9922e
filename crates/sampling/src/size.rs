//! Sizes as users write them.

/// The bytes of a size in binary units: `512KiB`, `512k`, `0.5 MiB`, `524288`. `None` if the text is no size, or not one of
/// whole bytes. `python/nthbyte/_size.py` says why Python has the same rule; `tests/amounts.json` has texts for both.
///
/// ```
/// assert_eq!(nthbyte_sampling::parse_size("0.5MiB"), Some(524_288));
/// assert_eq!(nthbyte_sampling::parse_size("0.3K"), None);
/// ```
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim_ascii();
    let number = text.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let unit = text.get(number.len()..)?.as_bytes();
    let power = match unit.first().map(u8::to_ascii_uppercase) {
        None => 0,
        Some(letter) => b"BKMGT".iter().position(|&known| known == letter)?,
    };
    let tail = unit.get(1..).unwrap_or_default();
    let has_tail = tail.eq_ignore_ascii_case(b"B") || tail.eq_ignore_ascii_case(b"IB");
    if !(tail.is_empty() || has_tail && power > 0) {
        return None;
    }
    let number = number.trim_ascii_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Integers are exact. A float would round numbers such as 2^40 + 0.5.
    let (mut digits, mut denominator) = (0_u128, 1_u128);
    for (sign, base) in whole
        .bytes()
        .map(|sign| (sign, 1))
        .chain(fraction.bytes().map(|sign| (sign, 10)))
    {
        if !sign.is_ascii_digit() {
            return None;
        }
        digits = digits.checked_mul(10)?.checked_add(u128::from(sign & 15))?;
        denominator = denominator.checked_mul(base)?;
    }
    let scaled = digits.checked_mul(1024_u128.checked_pow(power as u32)?)?;
    match scaled.checked_rem(denominator)? {
        0 => u64::try_from(scaled.checked_div(denominator)?).ok(),
        _ => None,
    }
}
