//! A heap and a prediction of it, side by side (section 3.7 of "Low Overhead Allocation Sampling in a Garbage Collected
//! Virtual Machine").
//!
//! The prediction knows the seed and computes samples in the simplest way: for each
//! allocation it asks the class's countdown. For each operation it predicts which samples and
//! which frees of sampled blocks the observer receives, and the heap's totals. The contents of
//! all blocks are patterns, which are checked when a block is freed or resized.

mod block;
mod events;
mod prediction;
mod trust;

use self::block::Live;
use self::events::{ANY_STAMP, Event, Recorder, token};
use self::prediction::Prediction;
use self::trust::{is_trusted, next};
use core::ffi::c_void;
use nthbyte_heap::{
    BlockDomain, DomainFunctions, Fallback, Heap, HeapConfig, MEDIUM_LIMIT, NOT_INTERESTED,
    block_size,
};
use nthbyte_sampling::{Distances, Period, SamplePoints};

#[allow(unused_imports)] // the long run has the highest limits
pub use self::trust::trusts;

/// An operation on a heap. `block` is a number that chooses one of the blocks in use (modulo their count).
#[derive(Clone, Debug)]
pub enum Operation {
    Malloc {
        size: usize,
        domain: bool,
    },
    Calloc {
        size: usize,
        domain: bool,
    },
    Realloc {
        block: usize,
        size: usize,
        domain: bool,
    },
    Free {
        block: usize,
        domain: bool,
    },
    RemoteFree {
        block: usize,
    },
    /// Many allocations of one size, so that pages fill.
    Burst {
        size: usize,
        count: usize,
    },
    /// Frees every `step`-th block, so that pages become empty.
    Sweep {
        step: usize,
    },
    Start {
        period: u64,
        seed: u64,
    },
    /// A new period: at once, or when the observer receives the next sample.
    Period {
        period: u64,
        in_observer: bool,
    },
    /// This process is the child of a fork.
    Diverge {
        number: u64,
    },
    Stop,
}

/// The heap and its prediction.
pub struct Model {
    heap: *mut Heap,
    limits: [usize; 2],
    trusts: bool,
    functions: [DomainFunctions; 2],
    recorder: *mut Recorder,
    live: Vec<Live>,
    class_count: usize,
    class_by_step: Vec<usize>,
    prediction: Option<Prediction>,
    expected: Vec<Event>,
    tokens: u32,
    session: u32,
    stamp: u64,
    allocated: u64,
    allocated_large: u64,
    /// The number of samples that were predicted and received.
    pub samples: u64,
}

impl Model {
    pub fn new(config: HeapConfig) -> Self {
        let heap = Heap::create(config, [Fallback::LIBC; 2]).expect("address space");
        let mut sizes = vec![0];
        let mut class_by_step = vec![0];
        for step in 1..=MEDIUM_LIMIT / 16 {
            let size = block_size(step * 16);
            if sizes.last() != Some(&size) {
                sizes.push(size);
            }
            class_by_step.push(sizes.len() - 1);
        }
        Self {
            heap: heap.as_ptr(),
            limits: config.limits,
            trusts: config.trusts.is_some(),
            functions: [
                DomainFunctions::of(BlockDomain::Object),
                DomainFunctions::of(BlockDomain::Memory),
            ],
            recorder: Box::into_raw(Box::default()),
            live: Vec::new(),
            class_count: sizes.len(),
            class_by_step,
            prediction: None,
            expected: Vec::new(),
            tokens: 0,
            session: 0,
            stamp: 0,
            allocated: 0,
            allocated_large: 0,
            samples: 0,
        }
    }

    /// How many blocks are in use.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Does an operation, and checks that its events are those predicted.
    pub fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Malloc { size, domain } => self.malloc(size, domain),
            Operation::Calloc { size, domain } => self.calloc(size, domain),
            Operation::Burst { size, count } => (0..count).for_each(|_| self.malloc(size, false)),
            Operation::Realloc {
                block,
                size,
                domain,
            } => self.realloc(block, size, domain),
            Operation::Free { block, domain } => {
                if !self.live.is_empty() {
                    let index = block % self.live.len();
                    let live = self.live.swap_remove(index);
                    self.free(live, domain);
                }
            }
            Operation::RemoteFree { block } => self.remote_free(block),
            Operation::Sweep { step } => {
                let mut index = 0;
                let (gone, kept) = self.live.drain(..).partition(|_| {
                    index += 1;
                    index % step == 0
                });
                self.live = kept;
                let gone: Vec<Live> = gone;
                gone.into_iter().for_each(|live| self.free(live, false));
            }
            Operation::Start { period, seed } => self.start(period, seed),
            Operation::Period {
                period,
                in_observer,
            } => self.set_period(period, in_observer),
            Operation::Diverge { number } => {
                if let Some(prediction) = &mut self.prediction {
                    prediction.diverge(number);
                }
                // SAFETY: this is the only thread that uses the heap.
                unsafe { Heap::diverge(self.heap, number) };
            }
            Operation::Stop => {
                self.prediction = None;
                self.session += 1;
                // SAFETY: the observer uses the recorder only while the heap runs.
                unsafe { (*self.recorder).period = None };
                // SAFETY: this is the only thread that uses the heap.
                unsafe { Heap::stop(self.heap) };
            }
        }
        self.compare();
    }

    /// Checks the totals against the prediction.
    pub fn check_totals(&self) {
        // SAFETY: this is the only thread that uses the heap.
        let (exact, cheap, blocks, most_blocks, used) = unsafe {
            (
                Heap::statistics_exact(self.heap),
                Heap::statistics(self.heap),
                Heap::blocks_in_use(self.heap),
                Heap::blocks(self.heap),
                Heap::in_use(self.heap),
            )
        };
        let small = self.live.iter().filter(|live| !live.by_fallback);
        let in_use: usize = small.clone().map(|live| live.block_size).sum();
        assert_eq!(exact.in_use, in_use);
        assert!(most_blocks >= blocks);
        assert_eq!(blocks, small.count());
        assert_eq!(exact.allocated, self.allocated);
        assert_eq!(exact.allocated_large, self.allocated_large);
        assert_eq!(exact.lost, 0);
        assert_eq!(used, cheap.in_use as u64 + cheap.in_use_large);
        assert!(cheap.in_use >= exact.in_use && cheap.allocated <= exact.allocated);
        assert!(exact.in_pages >= exact.in_use && exact.reserved >= exact.in_pages);
        self.check_live();
    }

    /// Checks each block that the heap says is alive against those in use.
    fn check_live(&self) {
        let (mut listed, mut found) = (Vec::new(), Vec::new());
        // SAFETY: this is the only thread that uses the heap.
        unsafe {
            Heap::listed(self.heap, |block| listed.push(block));
            listed.sort_unstable();
            Heap::live(self.heap, &listed, |block| {
                found.push((block.address, block.size, block.token));
            });
        }
        let session = self.session;
        let token = |live: &Live| {
            let (token, of) = live.sampled?;
            (of == session && token != NOT_INTERESTED).then_some(token)
        };
        // Of the fallbacks' blocks, the heap knows those that were sampled.
        let known = self.live.iter();
        let is_kept = |of: (u32, u32)| of.0 != NOT_INTERESTED;
        let known = known.filter(|live| !live.by_fallback || live.sampled.is_some_and(is_kept));
        let mut expected: Vec<_> = known
            .map(|live| {
                let size = if live.by_fallback { 0 } else { live.block_size };
                (live.block.addr(), size, token(live))
            })
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert!(found == expected, "{} and {}", found.len(), expected.len());
    }

    /// Frees all blocks.
    pub fn finish(mut self) {
        for live in core::mem::take(&mut self.live) {
            self.free(live, true);
            self.compare();
        }
        self.check_totals();
        // SAFETY: as in `check_totals`.
        let left = unsafe { Heap::statistics_exact(self.heap) };
        assert_eq!(left.in_use, 0);
        self.run(&Operation::Stop);
        // SAFETY: made by Box::into_raw in `new`; the heap does not use it after `stop`.
        drop(unsafe { Box::from_raw(self.recorder) });
    }

    fn start(&mut self, period: u64, seed: u64) {
        let period = Period::new(period).expect("a period");
        let new = || SamplePoints::new(period, Distances::Exponential, seed);
        self.prediction = Some(Prediction::of(new(), self.class_count));
        self.session += 1;
        self.allocated = 0;
        self.allocated_large = 0;
        // SAFETY: the observer uses the recorder only while the heap runs.
        unsafe { (*self.recorder).period = None };
        let observer = Recorder::observer(self.recorder);
        // SAFETY: this is the only thread that uses the heap; the recorder lives until `finish`.
        unsafe { Heap::start(self.heap, new(), observer) };
    }

    fn set_period(&mut self, period: u64, in_observer: bool) {
        let period = Period::new(period).expect("a period");
        let Some(prediction) = &mut self.prediction else {
            // SAFETY: this is the only thread that uses the heap.
            return unsafe { Heap::set_period(self.heap, period) };
        };
        // SAFETY: as above; the observer uses the recorder only while the heap runs.
        unsafe {
            if in_observer {
                prediction.next_period = Some(period);
                (*self.recorder).period = Some((self.heap, period));
            } else {
                prediction.set_period(period);
                Heap::set_period(self.heap, period);
            }
        }
    }

    fn malloc(&mut self, size: usize, domain: bool) {
        // SAFETY: the context is a heap, used by this thread only.
        let block =
            unsafe { (self.functions[usize::from(domain)].malloc)(self.heap.cast(), next(size)) };
        let live = self.allocated(block, size, domain);
        self.live.push(live);
    }

    fn calloc(&mut self, size: usize, domain: bool) {
        let count = if size.is_multiple_of(3) { 3 } else { 1 };
        // SAFETY: the context is a heap; the block has `size` bytes.
        unsafe {
            let calloc = self.functions[usize::from(domain)].calloc;
            let block = calloc(self.heap.cast(), count, next(size) / count);
            assert!(!block.is_null());
            let bytes = core::slice::from_raw_parts(block.cast::<u8>(), size);
            assert!(bytes.iter().all(|&byte| byte == 0), "calloc");
            let live = self.allocated(block, size, domain);
            self.live.push(live);
        }
    }

    /// Whether the heap serves this size, and no fallback.
    fn serves(&self, size: usize, domain: bool) -> bool {
        size <= self.limits[usize::from(domain)]
            || self.trusts && is_trusted(size) && size <= MEDIUM_LIMIT
    }

    /// Predicts an allocation that just happened, and fills it.
    fn allocated(&mut self, block: *mut c_void, size: usize, domain: bool) -> Live {
        assert!(
            !block.is_null() && block.addr().is_multiple_of(16),
            "{block:?}"
        );
        let by_fallback = !self.serves(size, domain);
        let block_size = if by_fallback { size } else { block_size(size) };
        // SAFETY: the context is a heap, used by this thread only.
        assert_eq!(unsafe { Heap::owns(self.heap.cast(), block) }, !by_fallback);
        if !by_fallback {
            // SAFETY: the heap owns the block, which is in use.
            let usable = unsafe { Heap::usable_size(self.heap.cast(), block) };
            assert_eq!(usable, block_size);
        }
        self.allocated += block_size as u64;
        if by_fallback {
            self.allocated_large += block_size as u64;
        }
        let mut sampled = None;
        if let Some(prediction) = &mut self.prediction {
            let countdown = match by_fallback {
                true => &mut prediction.large,
                false => &mut prediction.classes[self.class_by_step[size.div_ceil(16)]],
            };
            let covered = countdown.advance(block_size as u64, &mut prediction.points);
            if covered > 0 {
                if let Some(period) = prediction.next_period.take() {
                    prediction.set_period(period);
                }
                self.samples += 1;
                sampled = Some((token(self.tokens), self.session));
                self.tokens += 1;
                self.expected.push(Event::Sampled {
                    block: block.addr(),
                    requested: size,
                    block_size,
                    points: covered,
                    domain: if domain {
                        BlockDomain::Memory
                    } else {
                        BlockDomain::Object
                    },
                });
            }
        }
        self.stamp += 1;
        let live = Live {
            block,
            size,
            block_size,
            stamp: self.stamp,
            sampled,
            by_fallback,
        };
        live.fill();
        live
    }

    /// Predicts that the observer receives the end of a sampled block, of which it can read `readable` bytes.
    fn ended(&mut self, live: &Live, readable: usize) {
        if let (Some((token, session)), Some(_)) = (live.sampled, &self.prediction)
            && session == self.session
            && token != NOT_INTERESTED
        {
            let stamp = if readable < 16 { ANY_STAMP } else { live.stamp };
            self.expected.push(Event::Freed { token, stamp });
        }
    }

    fn free(&mut self, live: Live, domain: bool) {
        live.check(live.size);
        self.ended(&live, live.size);
        // SAFETY: the block is in use, and not used again.
        unsafe { (self.functions[usize::from(domain)].free)(self.heap.cast(), live.block) };
    }

    fn remote_free(&mut self, number: usize) {
        let candidates = self.live.len();
        let Some(index) = (0..candidates.min(8))
            .map(|offset| (number + offset) % candidates)
            .find(|&index| !self.live[index].by_fallback)
        else {
            return;
        };
        let live = self.live.swap_remove(index);
        live.check(live.size);
        self.ended(&live, live.size);
        let (heap, block) = (self.heap.addr(), live.block.addr());
        // SAFETY: the block is in use, and not used again; `remote_free` may be called anywhere.
        unsafe { Heap::remote_free(heap as *mut c_void, block as *mut c_void) };
        // The next slow path frees it; until then the totals count it as in use.
        self.settle_remote();
    }

    /// Empties the list of a class, so that the heap takes its slow path.
    fn settle_remote(&mut self) {
        let before = self.live.len();
        for _ in 0..1000 {
            self.malloc(480, false);
        }
        for live in self.live.split_off(before) {
            self.free(live, false);
        }
    }

    fn realloc(&mut self, number: usize, size: usize, domain: bool) {
        let candidates = self.live.len();
        if candidates == 0 {
            return;
        }
        let old = self.live.swap_remove(number % candidates);
        old.check(old.size);
        // SAFETY: the block is in use, and only its new address is used from now on.
        let new = unsafe {
            (self.functions[usize::from(domain)].realloc)(self.heap.cast(), old.block, next(size))
        };
        assert!(!new.is_null());
        let kept = old.size.min(size);
        Live {
            block: new,
            ..old.clone()
        }
        .check(kept);
        if old.by_fallback {
            self.ended(&old, kept);
            let mut live = self.allocated_by_fallback(new, size, domain);
            live.by_fallback = true;
            self.live.push(live);
            return;
        }
        let same_class = size <= old.block_size && block_size(size) == old.block_size;
        let in_place = size <= old.block_size
            && (size > old.block_size - old.block_size / 4 || same_class)
            && self.serves(size, domain);
        assert_eq!(new == old.block, in_place);
        if in_place {
            let live = Live { size, ..old };
            live.fill();
            self.live.push(live);
        } else {
            let live = self.allocated(new, size, domain);
            self.live.push(live);
            self.ended(&old, old.size);
        }
    }

    /// As [`Model::allocated`], for a block of a fallback, of any size: it stays with the fallback.
    fn allocated_by_fallback(&mut self, block: *mut c_void, size: usize, domain: bool) -> Live {
        let (limits, trusts) = (
            core::mem::take(&mut self.limits),
            core::mem::take(&mut self.trusts),
        );
        let live = if size == 0 {
            // With the limit 0 it would count as the heap's own.
            let stamp = self.stamp;
            Live {
                block,
                size,
                block_size: 0,
                stamp,
                sampled: None,
                by_fallback: true,
            }
        } else {
            self.allocated(block, size, domain)
        };
        (self.limits, self.trusts) = (limits, trusts);
        live
    }

    fn compare(&mut self) {
        // SAFETY: the recorder is used by the observer only while the heap runs.
        let recorder = unsafe { &mut *self.recorder };
        if recorder.events.is_empty() && self.expected.is_empty() {
            return;
        }
        for (event, expected) in recorder.events.iter_mut().zip(&self.expected) {
            if let (
                Event::Freed { stamp, .. },
                Event::Freed {
                    stamp: ANY_STAMP, ..
                },
            ) = (event, expected)
            {
                *stamp = ANY_STAMP;
            }
        }
        assert_eq!(recorder.events, self.expected);
        recorder.events.clear();
        self.expected.clear();
    }
}
