//! Columns of numbers as bytes.
//!
//! Integers are LEB128; if neighbours are close, their zigzagged differences are. Real numbers are
//! little-endian IEEE 754 doubles. Deflate compresses the result.

/// The encoding of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// Each number as LEB128.
    Plain,
    /// Each number's difference from the one before, zigzagged (0, -1, 1, -2, …), as LEB128.
    Delta,
    /// Each number, zigzagged, as LEB128.
    Signed,
    /// Doubles.
    Real,
}

/// The description of a column in the header.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Column {
    name: String,
    encoding: Encoding,
    /// Number of entries.
    count: usize,
    /// Number of bytes.
    bytes: usize,
}

/// Columns, one after the other.
#[derive(Debug, Default)]
pub struct Columns {
    /// Their descriptions, in the order of their bytes.
    pub index: Vec<Column>,
    /// The bytes of all columns.
    pub bytes: Vec<u8>,
}

impl Columns {
    /// Adds a column of whole numbers.
    pub fn plain(&mut self, name: &str, numbers: impl Iterator<Item = u32>) {
        self.column(name, Encoding::Plain, numbers, |bytes, number| {
            leb128(bytes, u64::from(number));
        });
    }

    /// Adds a column of whole numbers that change little from one to the next.
    pub fn delta(&mut self, name: &str, numbers: impl Iterator<Item = u32>) {
        let mut last = 0;
        self.column(name, Encoding::Delta, numbers, |bytes, number| {
            let difference = i64::from(number) - last;
            last = i64::from(number);
            leb128(bytes, zigzag(difference));
        });
    }

    /// Adds a column of whole numbers, of which some may be below zero.
    pub fn signed(&mut self, name: &str, numbers: impl Iterator<Item = i32>) {
        self.column(name, Encoding::Signed, numbers, |bytes, number| {
            leb128(bytes, zigzag(number.into()));
        });
    }

    /// Adds a column of real numbers.
    pub fn real(&mut self, name: &str, numbers: impl Iterator<Item = f64>) {
        self.column(name, Encoding::Real, numbers, |bytes, number| {
            bytes.extend_from_slice(&number.to_le_bytes());
        });
    }

    fn column<T>(
        &mut self,
        name: &str,
        encoding: Encoding,
        numbers: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Vec<u8>, T),
    ) {
        let start = self.bytes.len();
        let count = numbers.map(|number| write(&mut self.bytes, number)).count();
        let bytes = self.bytes.len() - start;
        self.index.push(Column {
            name: name.to_owned(),
            encoding,
            count,
            bytes,
        });
    }
}

/// 0, -1, 1, -2 become 0, 1, 2, 3.
const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn leb128(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_documented() {
        let mut columns = Columns::default();
        columns.plain("a", [0, 127, 128, 300, u32::MAX].into_iter());
        assert_eq!(
            columns.bytes,
            [0, 0x7f, 0x80, 1, 0xac, 2, 0xff, 0xff, 0xff, 0xff, 0x0f]
        );
        columns.bytes.clear();
        columns.delta("b", [5, 4, 4, 70].into_iter());
        assert_eq!(columns.bytes, [10, 1, 0, 0x84, 1]);
        columns.bytes.clear();
        columns.signed("c", [0, -1, 1, -64, 64].into_iter());
        assert_eq!(columns.bytes, [0, 1, 2, 127, 0x80, 1]);
        assert_eq!(columns.index[1].count, 4);
        assert_eq!(columns.index[1].bytes, 5);
    }
}
