//! How near a process was to what would have ended it for want of memory.

use crate::event::Nanos;
use crate::varint::{put, take};

/// The kind of an event that holds a [`Pressure`].
pub const PRESSURE: u8 = 79;

/// What limits the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryLimit {
    /// The most memory of its control group; version 2 (`memory.max`), or version 1 (`memory.limit_in_bytes`).
    Group = 0,
    /// From here on, its control group is slowed down (`memory.high`).
    GroupHigh = 1,
    /// Its addresses (`RLIMIT_AS`, `ulimit -v`).
    Addresses = 2,
    /// The memory of the machine.
    Machine = 3,
}

impl MemoryLimit {
    const ALL: [Self; 4] = [Self::Group, Self::GroupHigh, Self::Addresses, Self::Machine];

    /// What sets it, for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "the limit of its control group",
            Self::GroupHigh => "memory.high of its control group",
            Self::Addresses => "ulimit -v",
            Self::Machine => "the memory of the machine",
        }
    }
}

/// Why a reading is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alarm {
    /// Much is in use, and it has changed.
    None = 0,
    /// Nine tenths of the limit are in use.
    Near = 1,
    /// At the rate of the last seconds, the limit is reached within half a minute.
    Growth = 2,
    /// Processes wait for memory much of the time.
    Stalls = 3,
}

impl Alarm {
    const ALL: [Self; 4] = [Self::None, Self::Near, Self::Growth, Self::Stalls];
}

/// A reading of the limit that is nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// When it was read.
    pub time: Nanos,
    /// What it is.
    pub limit: MemoryLimit,
    /// Why it is in the file.
    pub alarm: Alarm,
    /// The limit, in bytes.
    pub most: u64,
    /// The bytes of it in use, without caches of files that the kernel can drop.
    pub used: u64,
    /// How many processes of the control group the kernel has killed for memory since the session began.
    pub kills: u64,
}

impl Pressure {
    /// The bytes of the event: the number of the process (0, except in a merged file), and the members in order.
    #[must_use]
    pub fn encode(&self, process: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let numbers = [
            u64::from(process),
            self.time.0,
            self.limit as u64,
            self.alarm as u64,
            self.most,
            self.used,
            self.kills,
        ];
        for number in numbers {
            put(&mut bytes, number);
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<(u32, Self)> {
        let mut next = || take(&mut bytes);
        let process = u32::try_from(next()?).ok()?;
        let time = Nanos(next()?);
        let limit = *MemoryLimit::ALL.get(usize::try_from(next()?).ok()?)?;
        let alarm = *Alarm::ALL.get(usize::try_from(next()?).ok()?)?;
        let pressure = Self {
            time,
            limit,
            alarm,
            most: next()?,
            used: next()?,
            kills: next()?,
        };
        Some((process, pressure))
    }

    /// The part of the limit that is in use.
    #[must_use]
    pub fn part(&self) -> f64 {
        self.used as f64 / self.most.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read() {
        for limit in MemoryLimit::ALL {
            for alarm in Alarm::ALL {
                let pressure = Pressure {
                    time: Nanos(5),
                    limit,
                    alarm,
                    most: 1 << 40,
                    used: 3,
                    kills: 2,
                };
                let bytes = pressure.encode(7);
                assert_eq!(Pressure::parse(&bytes), Some((7, pressure)));
                assert_eq!(Pressure::parse(&bytes[..bytes.len() - 1]), None);
            }
        }
        let mut unknown = vec![0, 5, 9, 0, 1, 1, 0];
        assert_eq!(Pressure::parse(&unknown), None);
        unknown[2] = 3;
        assert!(Pressure::parse(&unknown).is_some());
    }
}
