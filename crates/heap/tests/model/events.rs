//! What the observer receives, recorded.

use core::ffi::c_void;
use nthbyte_heap::{BlockDomain, Heap, HeapObserver, NOT_INTERESTED, SampledBlock};
use nthbyte_sampling::Period;

/// What the observer received, or should receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Sampled {
        block: usize,
        requested: usize,
        block_size: usize,
        points: u32,
        domain: BlockDomain,
    },
    /// The stamp is the second word of the contents.
    Freed { token: u32, stamp: u64 },
}

/// Expected if the program had written less than two words to the block.
pub const ANY_STAMP: u64 = 0;

/// The events of an observer, in order.
#[derive(Default)]
pub struct Recorder {
    pub events: Vec<Event>,
    /// The heap, and the period that the observer sets when it receives the next sample.
    pub period: Option<(*mut Heap, Period)>,
    tokens: u32,
}

impl Recorder {
    /// An observer that records into this. It must stay where it is.
    pub fn observer(this: *mut Self) -> HeapObserver {
        HeapObserver {
            context: this.cast(),
            sampled,
            freed,
        }
    }
}

/// The token of the sample with this number. The end of every fifth is not wanted.
pub fn token(number: u32) -> u32 {
    if number % 5 == 4 {
        NOT_INTERESTED
    } else {
        number
    }
}

unsafe extern "C" fn sampled(context: *mut c_void, sample: &SampledBlock) -> u32 {
    // SAFETY: the context is the model's recorder, and only this and `freed` use it while the heap runs.
    let recorder = unsafe { &mut *context.cast::<Recorder>() };
    let &SampledBlock {
        block,
        requested,
        block_size,
        points,
        domain,
        site: _,
        near: _,
    } = sample;
    let block = block.addr();
    recorder.events.push(Event::Sampled {
        block,
        requested,
        block_size,
        points,
        domain,
    });
    recorder.tokens += 1;
    if let Some((heap, period)) = recorder.period.take() {
        // SAFETY: this is the only thread that uses the heap, and an observer may call it.
        unsafe { Heap::set_period(heap, period) };
    }
    token(recorder.tokens - 1)
}

unsafe extern "C" fn freed(context: *mut c_void, contents: *const c_void, token: u32) {
    // SAFETY: as in `sampled`; all blocks have 16 bytes at least.
    unsafe {
        let recorder = &mut *context.cast::<Recorder>();
        let stamp = contents.cast::<u64>().add(1).read_unaligned();
        recorder.events.push(Event::Freed { token, stamp });
    }
}
