//! A buffer over a file that moves only forwards.

use std::io::{self, Read};

/// Number of bytes in one read of the file.
const CHUNK: usize = 256 << 10;

/// Reads ahead in a file as far as requested.
pub(crate) struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    /// Index in `bytes` of the next byte that is not consumed.
    start: usize,
    /// Offset in the file of `bytes[start]`.
    position: u64,
    /// Whether `bytes` extends to the end of the file.
    ended: bool,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(input: R) -> Self {
        Self::at(input, 0)
    }

    /// Of a file that stands at this offset.
    pub(crate) fn at(input: R, position: u64) -> Self {
        Self {
            input,
            bytes: Vec::new(),
            start: 0,
            position,
            ended: false,
        }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next `len` bytes, or fewer at the end of the file.
    pub(crate) fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        while self.bytes.len() - self.start < len && !self.ended {
            // The bytes are not moved at every step: at least a chunk is consumed for each move of
            // the rest.
            if self.start >= CHUNK {
                self.bytes.drain(..self.start);
                self.start = 0;
            }
            let want = (len - (self.bytes.len() - self.start)).max(CHUNK) as u64;
            let got = self
                .input
                .by_ref()
                .take(want)
                .read_to_end(&mut self.bytes)?;
            self.ended = got == 0;
        }
        let rest = &self.bytes[self.start..];
        Ok(&rest[..len.min(rest.len())])
    }

    /// Advances by `len` bytes that `peek` has returned.
    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.bytes.len() - self.start);
        self.start += len;
        self.position += len as u64;
    }

    /// Advances to the next place that begins with `mark`, or to the end of the file.
    pub(crate) fn skip_to(&mut self, mark: [u8; 4]) -> io::Result<()> {
        loop {
            let bytes = self.peek(CHUNK)?;
            let len = bytes.len();
            if len < mark.len() {
                self.consume(len);
                return Ok(());
            }
            if let Some(at) = bytes.windows(mark.len()).position(|four| four == mark) {
                self.consume(at);
                return Ok(());
            }
            self.consume(len - (mark.len() - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn all_bytes_are_seen_in_order_and_few_are_kept() {
        let all = bytes(9 * CHUNK + 5);
        let mut window = Window::new(Cursor::new(&all));
        let mut at = 0;
        for step in [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 1000].iter().cycle() {
            let seen = window.peek(*step).unwrap();
            let left = &all[at..];
            assert_eq!(seen, &left[..left.len().min(*step)]);
            // What lies ahead, at most a chunk more, and at most a chunk that was consumed.
            assert!(window.bytes.len() <= 2 * (CHUNK + 1) + CHUNK);
            window.consume(*step);
            at = all.len().min(at + step);
            assert_eq!(window.position(), at as u64);
            if at == all.len() {
                break;
            }
        }
        assert_eq!(window.peek(1).unwrap(), b"");
        let mut window = Window::new(Cursor::new(&all[..9]));
        window.peek(9).unwrap();
        window.consume(4);
        window.consume(9);
        assert_eq!(window.position(), 9);
    }

    #[test]
    fn no_more_is_read_than_is_needed() {
        let all = bytes(9 * CHUNK);
        let mut window = Window::new(Cursor::new(&all));
        for (peeked, read) in [(1, 1), (CHUNK, 1), (CHUNK + 1, 2), (5 * CHUNK, 5)] {
            window.peek(peeked).unwrap();
            assert_eq!(window.input.position(), (read * CHUNK) as u64, "{peeked}");
        }
    }

    #[test]
    fn a_mark_is_found_wherever_it_lies() {
        for at in [0, 1, 3, CHUNK - 3, CHUNK - 1, CHUNK, 3 * CHUNK + 2] {
            let mut all = bytes(4 * CHUNK);
            all[at..at + 4].copy_from_slice(b"MARK");
            let mut window = Window::new(Cursor::new(&all));
            window.skip_to(*b"MARK").unwrap();
            assert_eq!(window.position(), at as u64);
            window.consume(1);
            window.skip_to(*b"MARK").unwrap();
            assert_eq!(window.position(), all.len() as u64);
        }
    }
}
