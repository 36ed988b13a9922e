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
        Self {
            input,
            bytes: Vec::new(),
            start: 0,
            position: 0,
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
