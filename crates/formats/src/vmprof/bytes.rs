//! Reads words, strings and the like from a VMProf file.

/// The file ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short;

/// The widths of the numbers in a file. A *word* is C's `long`, an *address* is a pointer. On 64-bit
/// Windows they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    pub word: usize,
    pub address: usize,
}

/// A reader with a position in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    data: &'a [u8],
    at: usize,
    pub widths: Widths,
}

impl<'a> Bytes<'a> {
    pub const fn new(data: &'a [u8], at: usize, widths: Widths) -> Self {
        Self { data, at, widths }
    }

    /// The offset of the next byte.
    pub const fn position(&self) -> usize {
        self.at
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let end = self.at.checked_add(len).ok_or(Short)?;
        let taken = self.data.get(self.at..end).ok_or(Short)?;
        self.at = end;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Short> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self, width: usize) -> Result<i64, Short> {
        let bytes = self.take(width)?;
        Ok(match *bytes {
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => unreachable!("words and addresses have 4 or 8 bytes"),
        })
    }

    pub fn word(&mut self) -> Result<i64, Short> {
        self.number(self.widths.word)
    }

    pub fn address(&mut self) -> Result<i64, Short> {
        self.number(self.widths.address)
    }

    /// A signed 64-bit number, independent of the widths.
    pub fn long(&mut self) -> Result<i64, Short> {
        self.number(8)
    }

    /// A string: its length, then its bytes. Bytes that are not UTF-8 become U+FFFD.
    pub fn string(&mut self) -> Result<String, Short> {
        let len = usize::try_from(self.word()?).map_err(|_| Short)?;
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }
}
