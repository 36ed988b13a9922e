//! A file seen through a window that moves forward only.

use std::io::{self, Read};

/// How much is asked of the file at a time.
const CHUNK: usize = 256 << 10;

/// Looks ahead in a file as far as it is asked to.
pub(crate) struct Source<R> {
    input: R,
    window: Vec<u8>,
    /// Where in the window the file has not been dealt with.
    start: usize,
    /// Offset in the file of `window[start]`.
    position: u64,
    /// Whether the window reaches the end of the file.
    ended: bool,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            window: Vec::new(),
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
        while self.window.len() - self.start < len && !self.ended {
            // Not at every step: what is moved here must be little against what was dealt with.
            if self.start >= CHUNK {
                self.window.drain(..self.start);
                self.start = 0;
            }
            let want = (len - (self.window.len() - self.start)).max(CHUNK) as u64;
            let got = self
                .input
                .by_ref()
                .take(want)
                .read_to_end(&mut self.window)?;
            self.ended = got == 0;
        }
        let rest = &self.window[self.start..];
        Ok(&rest[..len.min(rest.len())])
    }

    /// Moves on by `len` bytes that were peeked at.
    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.window.len() - self.start);
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
