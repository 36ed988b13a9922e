//! A file seen through a window that moves forward only.

use std::io::{self, Read};

/// How much is asked of the file at a time.
const CHUNK: usize = 256 << 10;

/// Looks ahead in a file as far as it is asked to.
pub(crate) struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    /// Index in `bytes` of the next byte that is not consumed.
    start: usize,
    /// Offset in the file of `bytes[start]`.
    position: u64,
    /// Whether `bytes` reaches the end of the file.
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

    /// The next `len` bytes, or fewer at the end of the file. More are never returned.
    pub(crate) fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        while self.bytes.len() - self.start < len && !self.ended {
            // Not at every step: at least a chunk is consumed for each time that the rest is moved.
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

    /// Moves on by `len` bytes that were peeked at.
    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.bytes.len() - self.start);
        self.start += len;
        self.position += len as u64;
    }

    /// Moves on to the next place that begins with `mark`, or to the end of the file.
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
