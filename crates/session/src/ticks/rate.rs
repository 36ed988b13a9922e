//! The rate of time samples.

/// Time samples per second of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    wanted: u32,
    resolution: u64,
}

impl Rate {
    /// The highest possible rate up to `hz`: the kernel looks at CPU clocks at its own timer's rate.
    #[must_use]
    pub fn possible(hz: u32) -> Self {
        Self {
            wanted: hz.max(1),
            resolution: resolution(),
        }
    }

    /// The CPU time between two samples of a thread, in nanoseconds.
    #[must_use]
    pub const fn period_nanos(self) -> u64 {
        let wanted = 1_000_000_000 / self.wanted as u64;
        if wanted > self.resolution {
            wanted
        } else {
            self.resolution
        }
    }

    /// Samples per second.
    #[must_use]
    pub fn hz(self) -> u32 {
        u32::try_from(1_000_000_000 / self.period_nanos()).unwrap_or(1)
    }

    /// What the profile says if the rate is lower than wanted.
    #[must_use]
    pub fn note(self) -> Option<String> {
        (self.hz() < self.wanted).then(|| {
            format!(
                "this kernel's CPU timers expire at most {} times a second, so there are so many time samples, not {}",
                self.hz(),
                self.wanted
            )
        })
    }
}

/// The CPU time between two looks of the kernel at CPU clocks, in nanoseconds.
fn resolution() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    let asked = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    if asked == 0 {
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn a_rate_above_the_kernels_is_not_promised() {
        let kernel = Rate {
            wanted: 1000,
            resolution: 4_000_000,
        };
        assert_eq!((kernel.hz(), kernel.period_nanos()), (250, 4_000_000));
        assert!(kernel.note().is_some());
        let slow = Rate {
            wanted: 100,
            ..kernel
        };
        assert_eq!((slow.hz(), slow.note()), (100, None));
    }
}
