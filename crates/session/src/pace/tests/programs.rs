//! A program that allocates, in simulated time, and what sampling makes it pay.

use crate::pace::{Kind, Pace, Seen};

/// What a program does for a while, and what its samples cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// Bytes of the interpreter's memory that are allocated in a second, and of native memory.
    pub(super) own: f64,
    pub(super) native: f64,
    /// Bytes of a native block; the interpreter's blocks are small.
    pub(super) block: f64,
    /// CPU seconds a second: less while the program waits, more with several threads.
    pub(super) cpu: f64,
    /// Nanoseconds that a sample of each kind costs where no clock of the pace sees it.
    pub(super) hidden: [f64; 2],
    /// Bytes of the file for each sample.
    pub(super) each: f64,
}

impl Phase {
    /// A program that does nothing but compute and allocate so many bytes a second.
    pub(super) const fn busy(own: f64) -> Self {
        Self {
            own,
            native: 0.0,
            block: 1000.0,
            cpu: 1.0,
            hidden: [0.0; 2],
            each: 8.0,
        }
    }
}

/// A program that runs under a pace.
pub(super) struct Program {
    pub(super) pace: Pace,
    /// Seconds since the start, CPU seconds, bytes of the file, and samples.
    pub(super) now: f64,
    pub(super) cpu: f64,
    pub(super) file: f64,
    pub(super) samples: f64,
    /// Mean CPU time of a record in the writer thread, in nanoseconds.
    pub(super) record: u32,
    /// CPU seconds that samples took where no clock sees it.
    pub(super) paid: f64,
    /// Draws, so that samples come by chance; 0 if they come evenly.
    pub(super) seed: u64,
    /// Samples and decisions that are not whole yet.
    rest: [f64; 2],
}

impl Program {
    pub(super) fn new(mut pace: Pace) -> Self {
        pace.last = Seen::default();
        Self {
            pace,
            now: 0.0,
            cpu: 0.0,
            file: 0.0,
            samples: 0.0,
            record: 150,
            paid: 0.0,
            seed: 0,
            rest: [0.0; 2],
        }
    }

    /// Runs until the next decision. Returns whether the periods have changed.
    pub(super) fn step(&mut self, phase: Phase) -> bool {
        let present = self.pace.present;
        let [own, native] = present.0;
        let p = -(-phase.block / native as f64).exp_m1();
        // Samples a second of program time, of each kind.
        let rates = [phase.own / own as f64, phase.native / phase.block * p];
        let rate = rates[0] + rates[1];
        // What of them chance decides: of large blocks, most are sampled for certain.
        let spread = ((rates[0] + rates[1] * (1.0 - p)) / rate.max(1e-9)).max(1e-3);
        // A sample makes the program itself slower.
        let paid = rates[0] * phase.hidden[0] + rates[1] * phase.hidden[1];
        let slower = 1.0 + paid / 1e9 / phase.cpu;
        let until_due = (self.pace.due as f64 / 1e9 - self.now).max(1e-6);
        let most = f64::from(self.pace.decide_at);
        let is_by_number = rate / slower * until_due >= most;
        let time = if is_by_number {
            most / rate * slower * self.chance(most / spread)
        } else {
            until_due
        };
        let mut taken = [0; 2];
        for at in 0..2 {
            let number = rates[at] / slower * time;
            let number = match is_by_number {
                true => rates[at] / rate * most,
                false => number * self.chance(number / spread),
            };
            self.rest[at] += number;
            taken[at] = self.rest[at].floor() as u32;
            self.rest[at] -= self.rest[at].floor();
        }
        self.now += time;
        self.cpu += time * phase.cpu;
        let number = f64::from(taken[0] + taken[1]);
        self.samples += number;
        self.file += number * phase.each;
        for (number, hidden) in taken.iter().zip(phase.hidden) {
            self.paid += f64::from(*number) * hidden / 1e9;
        }
        self.pace.taken = taken[0] + taken[1];
        for (kind, block) in [(Kind::Own, 100), (Kind::Native, phase.block as u64)] {
            for _ in 0..taken[kind as usize] {
                self.pace.sampled(kind, block, present.of(kind));
            }
        }
        let seen = Seen {
            now: (self.now * 1e9) as u64,
            cpu: (self.cpu * 1e9) as u64,
            file: self.file as u64,
            record: self.record,
            is_crowded: false,
        };
        self.pace.decide(seen).is_some()
    }

    pub(super) fn run(&mut self, phase: Phase, seconds: f64) {
        let end = self.now + seconds;
        while self.now < end {
            self.step(phase);
        }
    }

    /// Samples a second for so many seconds.
    pub(super) fn rate(&mut self, phase: Phase, seconds: f64) -> f64 {
        let (samples, now) = (self.samples, self.now);
        self.run(phase, seconds);
        (self.samples - samples) / (self.now - now)
    }

    /// About what chance makes of a number: a mean of so many exponential distances, over their mean.
    fn chance(&mut self, number: f64) -> f64 {
        if self.seed == 0 {
            return 1.0;
        }
        let sum: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        (1.0 + sum / number.max(1.0).sqrt()).max(0.01)
    }

    /// Between 0 and 1.
    pub(super) fn uniform(&mut self) -> f64 {
        // splitmix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.seed;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
