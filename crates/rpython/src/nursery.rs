//! The arithmetic of sections 3.2 to 3.4 of "Low Overhead Allocation Sampling in a Garbage Collected
//! Virtual Machine": the nursery's limit stands at the next sample point, or at the nursery's end.
//!
//! ```text
//!      mark           sample point        end
//!       |                  |               |
//! +-----v------------------v---------------v---+
//! | used|       free       |               |   |   end: where the collector wants nursery_top
//! +-----^------------------^---------------^---+
//!       nursery_free       nursery_top = the nearer of both
//! ```
//!
//! *Invariant:* the bytes up to `mark` have been counted, and the next sample point is at `mark +
//! bytes_until_sample`. Bytes that were allocated beyond `mark` without the slow path contain no sample
//! point. A collection keeps the invariant: it moves `nursery_free` and `mark` together (3.3). An object
//! outside the nursery keeps it too: its bytes are counted, and `mark` stays (3.4).
//!
//! One detail is not in the paper. Under memory pressure PyPy ends the nursery early: it sets `nursery_free
//! = nursery_top` (`raw_malloc_memory_pressure`). To distinguish this from allocated bytes, the limit is
//! never a multiple of 8 while sampling is on: it is the last byte *before* the point at which
//! `nursery_free` would pass the sample point or reach the end.

use nthbyte_sampling::{Period, Sampler};

/// The result of a call of the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPathOutcome {
    /// The nursery has room: the address of the object, and the number of sample points that it
    /// covers.
    Fits(usize, u32),
    /// The nursery is full up to its end, and `nursery_top` is the end again.
    Full,
}

/// The nursery's two pointers while sampling is on.
#[derive(Debug)]
pub struct Nursery {
    free: *mut usize,
    top: *mut usize,
    sampler: Sampler,
    mark: usize,
    end: usize,
    limit: usize,
    /// A collection is due although the nursery is not full.
    closed: bool,
    allocated: u64,
    pressures: u64,
}

impl Nursery {
    /// Switches sampling on.
    ///
    /// # Safety
    /// `free` and `top` are the addresses of `nursery_free` and `nursery_top` as long as the value
    /// exists, and every method is called with the interpreter's lock held.
    pub unsafe fn begin(free: *mut usize, top: *mut usize, sampler: Sampler) -> Self {
        // SAFETY: the caller's promise.
        let (mark, end) = unsafe { (free.read(), top.read()) };
        let mut nursery = Self {
            free,
            top,
            sampler,
            mark,
            end,
            limit: end,
            closed: false,
            allocated: 0,
            pressures: 0,
        };
        nursery.set_limit();
        nursery
    }

    /// Switches sampling off: both pointers get the values that they would have without sampling.
    pub fn end(&mut self) {
        self.catch_up();
        self.set_top(self.end);
    }

    /// Bytes that were allocated since [`Nursery::begin`] and counted.
    #[must_use]
    pub const fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Counts from zero again in the child of a fork, which has a profile of its own.
    pub const fn forget_allocated(&mut self) {
        self.allocated = 0;
    }

    /// The number of times that memory pressure ended the nursery early. Each time, less than a period
    /// of bytes is not counted.
    #[must_use]
    pub const fn pressures(&self) -> u64 {
        self.pressures
    }

    /// Handles a call of the slow path for an object of `size` bytes, which `nursery_free` already
    /// includes.
    pub fn slow_path(&mut self, size: usize) -> SlowPathOutcome {
        let free = self.get_free();
        let object = free.wrapping_sub(size);
        if self.get_top() != self.limit {
            // No hook saw this collection. The number of bytes that were allocated before this object is not
            // known.
            self.end = self.get_top();
            self.mark = object;
        }
        if !object.is_multiple_of(8) {
            self.pressures += 1;
            self.mark = self.end;
            self.set_top(self.end);
            return SlowPathOutcome::Full;
        }
        self.count(object.saturating_sub(self.mark));
        self.mark = object;
        if free > self.end || self.closed {
            self.set_top(self.end);
            return SlowPathOutcome::Full;
        }
        let points = self.count(size);
        self.mark = free;
        self.set_limit();
        SlowPathOutcome::Fits(object, points)
    }

    /// After [`SlowPathOutcome::Full`], the collector found room for an object of `size` bytes. Returns the
    /// number of sample points that the object covers. `size` is 0 if the collector found no room.
    pub fn reserved(&mut self, size: usize) -> u32 {
        let points = self.count(size);
        self.resume();
        points
    }

    /// Makes the nursery look full to the next allocation, so that the collector empties it.
    pub fn close(&mut self) {
        self.catch_up();
        self.closed = true;
        self.set_limit();
    }

    /// Called before a minor collection that the slow path did not start.
    pub fn before_collection(&mut self) {
        self.catch_up();
        self.set_top(self.end);
    }

    /// Called after such a collection: the pointers have changed.
    pub fn resume(&mut self) {
        self.mark = self.get_free();
        self.end = self.get_top();
        self.closed = false;
        self.set_limit();
    }

    /// Counts an object of `size` bytes that was allocated outside the nursery (3.4). Returns the
    /// number of sample points that the object covers.
    pub fn outside(&mut self, size: usize) -> u32 {
        self.catch_up();
        let points = self.count(size);
        self.set_limit();
        points
    }

    /// The period, in bytes.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.sampler.period().bytes()
    }

    /// Changes the period: what remains of the distance to the next sample point is drawn anew. Called between two
    /// allocations, outside of collections.
    pub fn set_period(&mut self, period: Period) {
        self.catch_up();
        self.sampler.set_period(period);
        self.set_limit();
    }

    /// Continues with other sample points, for the child of a fork; see [`Sampler::diverge`]. Called as
    /// [`Self::set_period`] is.
    pub fn diverge(&mut self, number: u64) {
        self.catch_up();
        self.sampler.diverge(number);
        self.set_limit();
    }

    /// Counts the bytes that were allocated since `mark`.
    fn catch_up(&mut self) {
        let free = self.get_free();
        if free.is_multiple_of(8) {
            self.count(free.saturating_sub(self.mark));
            self.mark = free;
        } else {
            // Memory pressure: PyPy set it to `nursery_top`. Without sampling that would be the end.
            self.pressures += 1;
            // SAFETY: the promise of `begin`.
            unsafe { self.free.write(self.end) };
            self.mark = self.end;
        }
    }

    fn count(&mut self, bytes: usize) -> u32 {
        self.allocated += bytes as u64;
        if bytes == 0 {
            0
        } else {
            self.sampler.advance(bytes as u64)
        }
    }

    /// `nursery_free` is a multiple of 8, so `free > limit` is true exactly if `free` has passed
    /// the sample point (`free >= mark + until`) or has reached the end.
    fn set_limit(&mut self) {
        let until = if self.closed {
            0
        } else {
            usize::try_from(self.sampler.bytes_until_sample()).unwrap_or(usize::MAX)
        };
        let point = self
            .mark
            .saturating_add(until.min(usize::MAX / 4))
            .next_multiple_of(8);
        self.set_top(point.min(self.end) - 1);
    }

    fn get_free(&self) -> usize {
        // SAFETY: the promise of `begin`.
        unsafe { self.free.read() }
    }

    fn get_top(&self) -> usize {
        // SAFETY: the promise of `begin`.
        unsafe { self.top.read() }
    }

    fn set_top(&mut self, top: usize) {
        self.limit = top;
        // SAFETY: the promise of `begin`.
        unsafe { self.top.write(top) };
    }
}

#[cfg(test)]
mod tests {
    use nthbyte_sampling::Distances;

    use super::*;

    /// PyPy's side, reduced to the two pointers. The addresses are only numbers: there is no memory
    /// behind them.
    struct Collector {
        pointers: Box<[usize; 2]>,
        base: usize,
        size: usize,
        /// Pinned objects in the nursery: address and size, in order.
        pinned: Vec<(usize, usize)>,
        /// The pinned objects that `nursery_top` has not reached since the last collection.
        ahead: Vec<(usize, usize)>,
        /// The number of calls of `collect_and_reserve`.
        asked: u32,
    }

    impl Collector {
        fn new(size: usize) -> Self {
            let base = 0x10_0000;
            Self {
                pointers: Box::new([base, base + size]),
                base,
                size,
                pinned: Vec::new(),
                ahead: Vec::new(),
                asked: 0,
            }
        }

        fn collect(&mut self) {
            self.ahead = self.pinned.iter().rev().copied().collect();
            self.pointers[0] = self.base;
            self.pointers[1] = self.next_top();
        }

        fn next_top(&self) -> usize {
            self.ahead
                .last()
                .map_or(self.base + self.size, |&(at, _)| at)
        }

        /// `collect_and_reserve`: jumps over pinned objects, then collects.
        fn reserve(&mut self, size: usize) -> usize {
            let mut collected = false;
            self.asked += 1;
            loop {
                if let Some((at, length)) = self.ahead.pop() {
                    assert_eq!(
                        self.pointers[1], at,
                        "the collector must find its own nursery_top"
                    );
                    *self.pointers = [at + length, self.next_top()];
                } else if collected {
                    return 0;
                } else {
                    collected = true;
                    self.collect();
                }
                if self.pointers[0] + size <= self.pointers[1] {
                    self.pointers[0] += size;
                    return self.pointers[0] - size;
                }
            }
        }
    }

    /// xorshift64*: random enough to choose the next action.
    struct Choice(u64);

    impl Choice {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
        }
    }

    /// The collector's allocation, once with a [`Nursery`] in its slow path and once without.
    fn allocate(collector: &mut Collector, nursery: &mut Nursery, size: usize) -> u32 {
        let object = collector.pointers[0];
        if object + size <= collector.pointers[1] {
            collector.pointers[0] += size;
            return 0;
        }
        collector.pointers[0] += size;
        match nursery.slow_path(size) {
            SlowPathOutcome::Fits(at, points) => {
                assert_eq!(at, object);
                points
            }
            SlowPathOutcome::Full => {
                let found = collector.reserve(size);
                nursery.reserved(if found == 0 { 0 } else { size })
            }
        }
    }

    /// Each allocation covers the same number of sample points as with a sampler that sees all
    /// allocations: in the nursery, around pinned objects, outside the nursery, and across
    /// requested and other collections.
    #[test]
    fn each_sampled_byte_is_found_and_no_other() {
        for seed in 1..300u64 {
            let mut choice = Choice(seed);
            let period = [64, 1000, 4096, 65_536, 300_000, 1 << 20][choice.below(6)];
            let distances = [Distances::Fixed, Distances::Exponential][choice.below(2)];
            let sampler = Sampler::new(Period::new(period).unwrap(), distances, seed);
            let mut truth = sampler.clone();
            let mut collector = Collector::new(65_536 << choice.below(3));
            collector.pointers[0] += 8 * choice.below(100);
            let [free, top]: [*mut usize; 2] = {
                let at = collector.pointers.as_mut_ptr();
                [at, at.wrapping_add(1)]
            };
            // SAFETY: the pointers stay in their box; the collector is not used elsewhere meanwhile.
            let mut nursery = unsafe { Nursery::begin(free, top, sampler) };
            let mut bytes = 0;
            for _ in 0..2000 {
                let (size, points) = match choice.below(100) {
                    0 => {
                        let size = 135_168 + 8 * choice.below(1 << 18);
                        (size, nursery.outside(size))
                    }
                    1 => {
                        nursery.before_collection();
                        let at = collector.base + 8 * choice.below(4000);
                        collector.pinned = match choice.below(3) {
                            0 => vec![(at, 64), (at + 4096, 1024)],
                            1 => vec![(at, 16)],
                            _ => Vec::new(),
                        };
                        collector.collect();
                        nursery.resume();
                        continue;
                    }
                    3 => {
                        let period = Period::new(64 << choice.below(16)).unwrap();
                        nursery.set_period(period);
                        truth.set_period(period);
                        continue;
                    }
                    2 => {
                        nursery.close();
                        let asked = collector.asked;
                        let points = allocate(&mut collector, &mut nursery, 16);
                        assert_eq!(collector.asked, asked + 1);
                        (16, points)
                    }
                    many => {
                        let size = 16 + 8 * choice.below(if many < 90 { 8 } else { 2000 });
                        (size, allocate(&mut collector, &mut nursery, size))
                    }
                };
                assert_eq!(
                    points,
                    truth.advance(size as u64),
                    "seed {seed}, object of {size} bytes"
                );
                bytes += size as u64;
            }
            nursery.end();
            assert_eq!(nursery.allocated(), bytes);
            assert_eq!(
                collector.pointers[1] % 8,
                0,
                "nursery_top is the collector's again"
            );
        }
    }

    /// `raw_malloc_memory_pressure` sets `nursery_free = nursery_top`: the bytes in between were not
    /// allocated, and the collector sees a full nursery.
    #[test]
    fn memory_pressure_is_no_allocation() {
        for period in [64, 4096, 1 << 20] {
            let sampler = Sampler::new(Period::new(period).unwrap(), Distances::Fixed, 0);
            let mut collector = Collector::new(1 << 18);
            let end = collector.pointers[1];
            let at = collector.pointers.as_mut_ptr();
            // SAFETY: the pointers stay in their box.
            let mut nursery = unsafe { Nursery::begin(at, at.wrapping_add(1), sampler) };
            collector.pointers[0] = collector.pointers[1];
            collector.pointers[0] += 16;
            assert_eq!(nursery.slow_path(16), SlowPathOutcome::Full);
            assert_eq!((collector.pointers[1], nursery.pressures()), (end, 1));
            collector.reserve(16);
            nursery.reserved(16);
            assert_eq!(nursery.allocated(), 16);
        }
    }

    #[test]
    fn off_again_is_as_before() {
        let sampler = Sampler::new(Period::new(64).unwrap(), Distances::Fixed, 0);
        let mut collector = Collector::new(1 << 18);
        let before = *collector.pointers;
        let at = collector.pointers.as_mut_ptr();
        // SAFETY: the pointers stay in their box.
        let mut nursery = unsafe { Nursery::begin(at, at.wrapping_add(1), sampler) };
        assert_ne!(*collector.pointers, before);
        nursery.end();
        assert_eq!(*collector.pointers, before);
    }
}
