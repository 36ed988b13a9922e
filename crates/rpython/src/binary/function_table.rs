//! Where functions begin, from the table that the linker sorts for unwinding (`.eh_frame_hdr`, in the Linux Standard Base).

use std::ops::Range;

/// The version of the table, and the encodings that the linkers of Linux use: the address of `.eh_frame` and the number of entries
/// in four bytes each, and entries of two words of four bytes, relative to the table.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER_LENGTH: usize = 12;
const ENTRY_LENGTH: usize = 8;

/// The table of a loaded image.
#[derive(Clone, Debug)]
pub struct FunctionTable {
    address: usize,
    entries: &'static [u8],
}

impl FunctionTable {
    /// The table in this memory. `None` if its form is not known.
    ///
    /// # Safety
    /// The memory is readable as long as the process lives, and nobody changes it.
    #[must_use]
    pub unsafe fn read(memory: &Range<usize>) -> Option<Self> {
        // SAFETY: by the contract.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start as *const u8, memory.len()) };
        Self::of(bytes, memory.start)
    }

    fn of(bytes: &'static [u8], address: usize) -> Option<Self> {
        let body = bytes.get(HEADER_LENGTH..)?;
        let count = u32::from_le_bytes(bytes[8..HEADER_LENGTH].try_into().ok()?) as usize;
        (bytes[..4] == HEADER).then_some(())?;
        let entries = body.get(..count.checked_mul(ENTRY_LENGTH)?)?;
        Some(Self { address, entries })
    }

    /// A table of functions that begin at these addresses.
    #[cfg(test)]
    pub fn of_starts(starts: &[usize]) -> Self {
        let starts: Vec<i32> = starts.iter().map(|&start| start as i32).collect();
        Self::of(tests::table(HEADER, &starts), 0).unwrap()
    }

    /// Where the function after the one begins that has this address.
    #[must_use]
    pub fn end_of(&self, address: usize) -> Option<usize> {
        let entries = self.entries.as_chunks::<ENTRY_LENGTH>().0;
        Some(self.start(entries.get(self.after(address))?))
    }

    /// The number of the first function that begins behind this address.
    fn after(&self, address: usize) -> usize {
        let entries = self.entries.as_chunks::<ENTRY_LENGTH>().0;
        entries.partition_point(|entry| self.start(entry) <= address)
    }

    fn start(&self, entry: &[u8; ENTRY_LENGTH]) -> usize {
        let distance = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        self.address.wrapping_add_signed(distance as isize)
    }

    /// Where the function begins that has this address, if it is not before all of them.
    #[must_use]
    pub fn start_of(&self, address: usize) -> Option<usize> {
        let entries = self.entries.as_chunks::<ENTRY_LENGTH>().0;
        Some(self.start(entries.get(self.after(address).checked_sub(1)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn table(header: [u8; 4], starts: &[i32]) -> &'static [u8] {
        let mut bytes = header.to_vec();
        bytes.extend([0; 4]);
        bytes.extend((starts.len() as u32).to_le_bytes());
        for start in starts {
            bytes.extend(start.to_le_bytes());
            bytes.extend([7; 4]);
        }
        bytes.leak()
    }

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let table = FunctionTable::of(table(HEADER, &[-0x800, -0x400, 0x100]), 0x1000).unwrap();
        let of = |address| table.start_of(address);
        assert_eq!([of(0x7ff), of(0x800)], [None, Some(0x800)]);
        assert_eq!([of(0xbff), of(0xc00)], [Some(0x800), Some(0xc00)]);
        assert_eq!([of(0x1100), of(0x9000)], [Some(0x1100); 2]);
        let ends = [0x7ff, 0x800, 0xc01, 0x1100].map(|address| table.end_of(address));
        assert_eq!(ends, [Some(0x800), Some(0xc00), Some(0x1100), None]);
    }

    #[test]
    fn a_table_of_another_form_is_not_read() {
        assert!(FunctionTable::of(table([1, 0x1b, 0x03, 0x1b], &[1]), 0).is_none());
        let whole = table(HEADER, &[1, 2]);
        assert!(FunctionTable::of(&whole[..whole.len() - 1], 0).is_none());
        assert!(FunctionTable::of(&whole[..5], 0).is_none());
        assert_eq!(
            FunctionTable::of(table(HEADER, &[]), 0)
                .unwrap()
                .start_of(9),
            None
        );
    }
}
