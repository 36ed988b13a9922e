//! Samples of native memory, and time samples, whose stack is not complete yet.
//!
//! A walk may meet code of a library that was loaded a moment ago. To look at it means to read `/proc` and to open a
//! file, for which no thread of the program may wait inside of `malloc`. So the host keeps what it has seen, and the
//! writer thread completes the stack before its next block ([`Host::prepare`](crate::Host::prepare)). Only then is the
//! sample recorded, and with it its free, if the block has been freed meanwhile.
//!
//! Its token is the number of its place in a list, with [`FLAG`]: a sample's own number is not known before it is
//! recorded.

use nthbyte_profile::event::{Allocation, CpuSample, LostKind, Nanos, NodeId, SampleId};

use crate::contract::UnfinishedStack;
use crate::native::touched;
use crate::recording::PerEpoch;
use crate::recording::Recording;
use crate::recording::RecordingCell;

/// In the upper half of a token, beside the epoch: the lower half is a place of the list.
pub(crate) const FLAG: u32 = 1 << 31;
/// The largest number of places. Each has 16 bytes, and stays until the session ends.
const MOST: usize = 1 << 20;
/// The largest number of samples that wait at a time, and of bytes that are kept for them before one more.
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 16 << 20;

/// More events than one sample has: 16 nodes or one record of all, a thread, a library, a period, the sample, its free.
const ROOM: usize = 64;

struct Waiting {
    sample: Sample,
    stack: Box<dyn UnfinishedStack>,
}

/// A sample without its stack.
enum Sample {
    /// The period under which it was taken, and when its block was freed, if it was.
    Allocation(Allocation, u64, Option<Nanos>),
    /// A mapping, by its number.
    Mapping(u32),
    /// So many equal time samples.
    Time(CpuSample, u32),
}

impl Sample {
    fn lose(&self, recording: &mut Recording<'_>) {
        match self {
            Self::Mapping(number) => touched::complete(recording, *number, None),
            Self::Allocation(..) => recording.lost(LostKind::Allocations, 1),
            Self::Time(_, samples) => recording.lost(LostKind::CpuSamples, (*samples).into()),
        }
    }

    /// Records the sample with its stack. Returns its number, if it is one of an allocation. A loss is counted.
    fn record(self, recording: &mut Recording<'_>, stack: NodeId) -> Option<SampleId> {
        match self {
            Self::Allocation(allocation, period, freed) => {
                let sample = recording.allocation(
                    Allocation {
                        stack,
                        ..allocation
                    },
                    period,
                )?;
                if let Some(time) = freed {
                    recording.freed(sample, time);
                }
                Some(sample)
            }
            Self::Mapping(number) => {
                touched::complete(recording, number, Some(stack));
                None
            }
            Self::Time(sample, samples) => {
                for _ in 0..samples {
                    recording.cpu(CpuSample { stack, ..sample });
                }
                None
            }
        }
    }
}

enum Entry {
    Waiting(Box<Waiting>),
    /// A sample whose free will be recorded.
    Recorded(SampleId),
    /// A sample of which nothing more is recorded.
    Done,
}

#[derive(Default)]
struct List {
    places: Vec<Entry>,
    /// All places before this one are settled.
    settled: usize,
    /// Bytes that are kept for those that wait.
    bytes: usize,
}

static LIST: RecordingCell<PerEpoch<List>> = RecordingCell::new(PerEpoch::new(List {
    places: Vec::new(),
    settled: 0,
    bytes: 0,
}));

/// The list of this recording's profile. In the child of a fork, what waits belongs to the parent's profile.
fn list<'a>(recording: &'a mut Recording<'_>) -> &'a mut List {
    LIST.in_epoch(recording)
}

/// Whether another sample may wait.
pub(crate) fn has_room(recording: &mut Recording<'_>) -> bool {
    let list = list(recording);
    list.places.len() < MOST
        && list.places.len() - list.settled < MOST_WAITING
        && list.bytes < MOST_BYTES
        && list.places.try_reserve(1).is_ok()
}

/// Keeps a sample. The caller has asked [`has_room`]. Returns the lower half of its token.
pub(crate) fn add(
    recording: &mut Recording<'_>,
    allocation: Allocation,
    period: u64,
    stack: Box<dyn UnfinishedStack>,
) -> u32 {
    push(
        recording,
        Sample::Allocation(allocation, period, None),
        stack,
    )
}

/// Keeps a mapping, by its number. The caller has asked [`has_room`].
pub(crate) fn add_mapping(
    recording: &mut Recording<'_>,
    number: u32,
    stack: Box<dyn UnfinishedStack>,
) {
    push(recording, Sample::Mapping(number), stack);
}

/// Keeps so many equal time samples. The caller has asked [`has_room`].
pub(crate) fn add_time(
    recording: &mut Recording<'_>,
    sample: CpuSample,
    samples: u32,
    stack: Box<dyn UnfinishedStack>,
) {
    push(recording, Sample::Time(sample, samples), stack);
}

fn push(recording: &mut Recording<'_>, sample: Sample, stack: Box<dyn UnfinishedStack>) -> u32 {
    let list = list(recording);
    list.bytes += stack.bytes();
    let waiting = Box::new(Waiting { sample, stack });
    list.places.push(Entry::Waiting(waiting));
    (list.places.len() - 1) as u32
}

/// Records that the block of a kept sample was freed.
pub(crate) fn freed(recording: &mut Recording<'_>, at: u32, time: Nanos) {
    let sample = match list(recording).places.get_mut(at as usize) {
        Some(Entry::Waiting(waiting)) => {
            if let Sample::Allocation(.., freed) = &mut waiting.sample {
                *freed = Some(time);
            }
            return;
        }
        Some(&mut Entry::Recorded(sample)) => sample,
        _ => return,
    };
    recording.freed(sample, time);
}

/// Whether a sample waits.
#[must_use]
pub fn are_waiting(recording: &mut Recording<'_>) -> bool {
    let list = list(recording);
    list.settled < list.places.len()
}

/// Completes the stacks that are ready, and records their samples, as long as there is room for them: the writer thread
/// must not wait for itself. Returns whether there was room for all.
pub fn complete(recording: &mut Recording<'_>) -> bool {
    while recording.room() >= ROOM {
        let list_now = list(recording);
        let at = list_now.settled;
        let Some(place) = list_now.places.get_mut(at) else {
            return true;
        };
        let Entry::Waiting(waiting) = std::mem::replace(place, Entry::Done) else {
            list_now.settled += 1;
            continue;
        };
        let is_ready = waiting.stack.is_ready(recording);
        let list_now = list(recording);
        if !is_ready {
            list_now.places[at] = Entry::Waiting(waiting);
            return true;
        }
        list_now.settled += 1;
        let Waiting { sample, stack } = *waiting;
        list_now.bytes -= stack.bytes();
        let Some(stack) = stack.stack(recording) else {
            sample.lose(recording);
            continue;
        };
        if let Some(sample) = sample.record(recording, stack) {
            list(recording).places[at] = Entry::Recorded(sample);
        }
    }
    false
}

/// The sample of a place; `None` if it was not recorded yet.
pub(crate) fn sample_at(recording: &mut Recording<'_>, at: u32) -> Option<SampleId> {
    match list(recording).places.get(at as usize) {
        Some(Entry::Recorded(sample)) => Some(*sample),
        _ => None,
    }
}

/// Counts the samples that still wait as lost, and forgets them.
pub(crate) fn give_up(recording: &mut Recording<'_>) {
    loop {
        let list = list(recording);
        let Some(place) = list.places.get_mut(list.settled) else {
            list.bytes = 0;
            return;
        };
        let place = std::mem::replace(place, Entry::Done);
        list.settled += 1;
        if let Entry::Waiting(waiting) = place {
            waiting.sample.lose(recording);
        }
    }
}
