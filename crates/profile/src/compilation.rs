//! Work of an interpreter's JIT compiler: a loop or a bridge that it has traced, and what came of it.

use crate::event::{Nanos, ThreadId};
use crate::varint::{put, take};

/// The kind of an event that holds a [`Compilation`].
pub const COMPILATION: u8 = 78;

/// What came of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompilationOutcome {
    /// Machine code of a loop, or of a whole function.
    Loop,
    /// Machine code of a bridge, which goes on where a guard of other code fails.
    Bridge,
    /// Nothing: a trace that was given up.
    Aborted,
    /// Something else.
    Other,
}

impl CompilationOutcome {
    const ALL: [Self; 4] = [Self::Loop, Self::Bridge, Self::Aborted, Self::Other];

    /// For people to read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Bridge => "bridge",
            Self::Aborted => "aborted",
            Self::Other => "other",
        }
    }
}

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compilation {
    /// When it began.
    pub start: Nanos,
    /// How long it took.
    pub duration: Nanos,
    /// How much of that the optimizer took.
    pub optimizing: Nanos,
    /// How much of that the assembler took.
    pub assembling: Nanos,
    /// The thread that did it. It stops the others of an interpreter with a lock.
    pub thread: ThreadId,
    /// What came of it.
    pub outcome: CompilationOutcome,
}

impl Compilation {
    /// The bytes of the event: the number of the process (0, except in a merged file), the thread's, the start, the
    /// duration, the optimizer's and the assembler's part of it in nanoseconds, and the number of the outcome.
    #[must_use]
    pub fn encode(&self, process: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [
            u64::from(process),
            u64::from(self.thread.0),
            self.start.0,
            self.duration.0,
            self.optimizing.0,
            self.assembling.0,
            self.outcome as u64,
        ] {
            put(&mut bytes, number);
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid. An outcome of a later version is
    /// [`CompilationOutcome::Other`].
    #[must_use]
    pub fn parse(mut bytes: &[u8]) -> Option<(u32, Self)> {
        let process = u32::try_from(take(&mut bytes)?).ok()?;
        let thread = ThreadId(u32::try_from(take(&mut bytes)?).ok()?);
        let mut next = || take(&mut bytes).map(Nanos);
        let (start, duration, optimizing, assembling) = (next()?, next()?, next()?, next()?);
        let outcome = usize::try_from(take(&mut bytes)?).ok()?;
        let outcome = CompilationOutcome::ALL.get(outcome).copied();
        // Whatever a file contains, the end is a time.
        start.0.checked_add(duration.0)?;
        Some((
            process,
            Self {
                start,
                duration,
                optimizing: optimizing.min(duration),
                assembling: assembling.min(duration),
                thread,
                outcome: outcome.unwrap_or(CompilationOutcome::Other),
            },
        ))
    }

    /// When it ended.
    #[must_use]
    pub const fn end(&self) -> Nanos {
        Nanos(self.start.0.saturating_add(self.duration.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_a_compilation() {
        for outcome in CompilationOutcome::ALL {
            let one = Compilation {
                start: Nanos(1 << 40),
                duration: Nanos(300),
                optimizing: Nanos(100),
                assembling: Nanos(50),
                thread: ThreadId(3),
                outcome,
            };
            assert_eq!(Compilation::parse(&one.encode(7)), Some((7, one)));
        }
        let mut later = vec![0, 0, 1, 1, 9, 1, 200, 1];
        let (_, one) = Compilation::parse(&later).unwrap();
        assert_eq!(
            (one.outcome, one.optimizing),
            (CompilationOutcome::Other, Nanos(1))
        );
        later.truncate(6);
        assert_eq!(Compilation::parse(&later), None);
    }
}
