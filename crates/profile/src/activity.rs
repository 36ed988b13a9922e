//! How busy a process was until some moments: whether it works without a pause, or waits for work.
//!
//! A process that waits for a request, a message or the time is idle. One that waits for a processor because the machine
//! is busy with others is not. So a reading has both: the processor time that the process has used, and the time that its
//! threads were ready to run and had no processor.

use crate::event::Nanos;
use crate::varint::{put, take};

/// The kind of an event that holds an [`Activity`].
pub const ACTIVITY: u8 = 76;

/// How busy a process was until a moment. Both sums are since the first reading of the session, over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When it was read.
    pub time: Nanos,
    /// Processor time that was used.
    pub used: Nanos,
    /// Time in which a thread was ready to run, but waited for a processor.
    pub ready: Nanos,
}

impl Activity {
    /// The bytes of the event: the number of the process (0, except in a merged file), the time, and both sums in
    /// nanoseconds.
    #[must_use]
    pub fn encode(&self, process: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [u64::from(process), self.time.0, self.used.0, self.ready.0] {
            put(&mut bytes, number);
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<(u32, Self)> {
        let process = u32::try_from(take(&mut bytes)?).ok()?;
        let mut next = || take(&mut bytes).map(Nanos);
        let (time, used, ready) = (next()?, next()?, next()?);
        Some((process, Self { time, used, ready }))
    }

    /// The part of the time between two readings in which the process was busy, from 0 to 1: at least one of its threads
    /// ran or was ready to run, as far as the sums tell.
    #[must_use]
    pub fn busy_since(&self, before: &Self) -> f64 {
        let passed = self.time.0.saturating_sub(before.time.0);
        let used = self.used.0.saturating_sub(before.used.0);
        let ready = self.ready.0.saturating_sub(before.ready.0);
        (used.saturating_add(ready) as f64 / passed.max(1) as f64).min(1.0)
    }
}
