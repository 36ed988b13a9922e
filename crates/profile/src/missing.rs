//! What a process did, or started, that is not in any profile.

use serde::{Deserialize, Serialize};

use crate::varint::{put, take};

/// The kind of an event that holds a [`Missing`]. The last one of a process counts.
pub const MISSING: u8 = 77;

/// The longest reason that is kept, in bytes.
const LONGEST_REASON: usize = 512;

/// Work of a process, and processes that it forked, of which there are no samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// Whether interpreters with a GIL of their own ran.
    pub interpreters: bool,
    /// Forked processes of the family whose profile could not be created.
    pub children: u64,
    /// Why the first of them has none; empty if that is not known.
    pub reason: String,
}

impl Missing {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.interpreters && self.children == 0
    }

    /// One clause for each thing that is missing, without a full stop.
    #[must_use]
    pub fn clauses(&self) -> Vec<String> {
        let mut clauses = Vec::new();
        if self.children > 0 {
            let who = match self.children {
                1 => "1 child process has no profile".to_owned(),
                several => format!("{several} child processes have no profile"),
            };
            clauses.push(match self.reason.is_empty() {
                true => who,
                false => format!("{who} ({})", self.reason),
            });
        }
        if self.interpreters {
            clauses.push(
                "interpreters with their own GIL ran, and what they allocate is not sampled"
                    .to_owned(),
            );
        }
        clauses
    }

    /// The bytes of the event: 1 if such interpreters ran, else 0; the number of processes; the reason, up to the end.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.interpreters.into());
        put(&mut bytes, self.children);
        bytes.extend_from_slice(self.reason.as_bytes());
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid. A long reason is cut, and takes one line: a
    /// file may contain anything.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let interpreters = take(&mut bytes)? != 0;
        let children = take(&mut bytes)?;
        let reason = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_REASON)]);
        Some(Self {
            interpreters,
            children,
            reason: reason.replace(char::is_control, " "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_what_is_missing() {
        for missing in [
            Missing::default(),
            Missing {
                interpreters: true,
                children: 300,
                reason: "ä: not allowed".to_owned(),
            },
        ] {
            assert_eq!(Missing::parse(&missing.encode()), Some(missing));
        }
        assert_eq!(Missing::parse(&[0]), None);
        let hostile = Missing {
            reason: "\n".repeat(2000),
            ..Missing::default()
        };
        let read = Missing::parse(&hostile.encode()).unwrap();
        assert_eq!(read.reason, " ".repeat(LONGEST_REASON));
    }
}
