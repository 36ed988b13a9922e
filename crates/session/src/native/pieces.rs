//! One mapping: its pieces, and the sample points in them.

use std::ops::Range;

use nthbyte_profile::event::{Allocation, Nanos, SampleId};
use nthbyte_sampling::{Distances, Period, Random, Sampler};

use crate::recording::Recording;

/// A mapping of so many periods is sampled in any case: the probability that it is not is 10^-28.
const SURE: u64 = 64;
/// Parts of a mapping that are kept apart when it is unmapped in the middle.
const MOST_PARTS: usize = 64;
/// A piece that is larger than what was given back is kept if the difference is less than this, or than an eighth of what
/// the mapping has in memory.
const TOLERATED: u64 = 1 << 20;

/// Bytes of a mapping that came into memory together.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// `None` if no sample point lies in it.
    sample: Option<SampleId>,
    bytes: u64,
}

pub(crate) struct SampledMapping {
    pub(crate) number: u32,
    /// Its mapped parts, in the order of addresses.
    pub(crate) parts: Vec<Range<usize>>,
    /// What its samples have in common, with the size of the request and its time.
    pub(crate) sample: Allocation,
    /// The period under which its sample points were drawn.
    pub(crate) period: Period,
    /// Sample points in what was not touched yet. Not used where the mapping has [`SURE`] periods.
    pub(crate) points: u32,
    pub(crate) pieces: Vec<Piece>,
    /// The sum of the pieces.
    pub(crate) bytes: u64,
    pub(crate) was_seen: bool,
    /// Whether the stack is known; before that, no piece is recorded.
    pub(crate) has_stack: bool,
    /// When it was freed, if its stack was not known then.
    pub(crate) freed: Option<Nanos>,
}

impl SampledMapping {
    /// Bytes of addresses.
    pub(crate) fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// The samples of the parts in memory.
    pub(crate) fn samples(&self) -> Vec<SampleId> {
        self.pieces
            .iter()
            .filter_map(|piece| piece.sample)
            .collect()
    }

    /// Notes that so much of it is in memory now.
    pub(crate) fn seen(
        &mut self,
        resident: u64,
        now: Nanos,
        recording: &mut Recording<'_>,
        random: &mut Random,
    ) {
        let resident = resident.min(self.sample.size);
        let time = if self.was_seen { now } else { self.sample.time };
        if resident > self.bytes {
            self.grow(resident - self.bytes, time, recording, random);
        } else {
            self.give_back(self.bytes - resident, now, recording, random);
        }
        self.was_seen = true;
    }

    /// Adds a piece of so many bytes.
    pub(crate) fn grow(
        &mut self,
        bytes: u64,
        time: Nanos,
        recording: &mut Recording<'_>,
        random: &mut Random,
    ) {
        let sample = self.sample_of(bytes, time, recording, random);
        self.add(Piece { sample, bytes });
    }

    /// Notes that a part is unmapped, of which so much was in memory. Returns whether nothing is left.
    pub(crate) fn unmap(
        &mut self,
        gone: &Range<usize>,
        resident: u64,
        now: Nanos,
        recording: &mut Recording<'_>,
        random: &mut Random,
    ) -> bool {
        if resident > self.bytes {
            self.seen(resident, now, recording, random);
        }
        let mut left = Vec::new();
        if left.try_reserve_exact(self.parts.len() + 1).is_err() {
            return false;
        }
        for part in &self.parts {
            let before = part.start..part.end.min(gone.start);
            let after = part.start.max(gone.end)..part.end;
            left.extend([before, after].into_iter().filter(|part| !part.is_empty()));
        }
        left.truncate(MOST_PARTS);
        self.parts = left;
        if self.parts.is_empty() {
            return self.end(now, recording);
        }
        self.give_back(resident, now, recording, random);
        false
    }

    /// Records that all pieces are freed. Returns whether the mapping is over: if its stack is not known yet, it is not.
    pub(crate) fn end(&mut self, time: Nanos, recording: &mut Recording<'_>) -> bool {
        if !self.has_stack {
            self.freed.get_or_insert(time);
            self.parts.clear();
            return false;
        }
        for piece in self.pieces.drain(..) {
            if let Some(sample) = piece.sample {
                recording.freed(sample, time);
            }
        }
        self.bytes = 0;
        true
    }

    /// The sample of bytes that came into memory; `None` if no sample point lies in them, or while the stack is not known.
    fn sample_of(
        &mut self,
        bytes: u64,
        time: Nanos,
        recording: &mut Recording<'_>,
        random: &mut Random,
    ) -> Option<SampleId> {
        if !self.has_stack {
            return None;
        }
        let points = self.points_in(bytes, random);
        let sample = Allocation {
            time,
            size: bytes,
            block: bytes,
            points,
            ..self.sample
        };
        (points > 0)
            .then(|| recording.allocation(sample, self.period.bytes()))
            .flatten()
    }

    /// The sample points in bytes that were not touched before.
    fn points_in(&mut self, bytes: u64, random: &mut Random) -> u32 {
        if self.sample.size / self.period.bytes() >= SURE {
            return drawn(self.period, bytes, random);
        }
        let untouched = self
            .sample
            .size
            .saturating_sub(self.bytes)
            .max(bytes)
            .max(1);
        let part = bytes as f64 / untouched as f64;
        let is_in = |_: &u32| random.next_unit() < part;
        let points = (0..self.points).filter(is_in).count() as u32;
        self.points -= points;
        points
    }

    /// Adds a piece, if there is memory for it.
    fn add(&mut self, piece: Piece) {
        if self.pieces.try_reserve(1).is_err() {
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.sample.is_none() && piece.sample.is_none() => {
                last.bytes += piece.bytes;
            }
            _ => self.pieces.push(piece),
        }
        self.bytes += piece.bytes;
    }

    /// Frees so many bytes of the pieces: the latest ones that are not larger. If there is none, a larger piece is
    /// freed, and its rest counts anew.
    fn give_back(
        &mut self,
        mut bytes: u64,
        now: Nanos,
        recording: &mut Recording<'_>,
        random: &mut Random,
    ) {
        while bytes > 0 {
            let fits = |piece: &Piece| piece.bytes <= bytes;
            if let Some(at) = self.pieces.iter().rposition(fits) {
                bytes -= self.remove(at, now, recording, random).bytes;
                continue;
            }
            if bytes < TOLERATED.max(self.bytes / 8) {
                return;
            }
            let all = self.pieces.iter().enumerate();
            let Some((at, _)) = all.min_by_key(|(_, piece)| piece.bytes) else {
                return;
            };
            let mut rest = self.remove(at, now, recording, random).bytes - bytes;
            bytes = 0;
            // In pieces of falling sizes, so that more can be given back without another such step.
            while rest > 0 {
                let half = rest.div_ceil(2);
                let next = if half < TOLERATED { rest } else { half };
                self.grow(next, now, recording, random);
                rest -= next;
            }
        }
    }

    /// Frees a piece. What may be touched again has sample points again.
    fn remove(
        &mut self,
        at: usize,
        now: Nanos,
        recording: &mut Recording<'_>,
        random: &mut Random,
    ) -> Piece {
        let piece = self.pieces.remove(at);
        if let Some(sample) = piece.sample {
            recording.freed(sample, now);
        }
        self.bytes -= piece.bytes;
        self.points = self
            .points
            .saturating_add(drawn(self.period, piece.bytes, random));
        piece
    }
}

/// The number of sample points in so many bytes.
fn drawn(period: Period, bytes: u64, random: &mut Random) -> u32 {
    Sampler::new(period, Distances::Exponential, random.next_u64()).advance(bytes)
}

/// The sample points of a mapping of so many bytes, for tests.
#[cfg(test)]
pub(crate) fn points_of(period: u64, bytes: u64, seed: u64) -> u32 {
    let period = Period::new(period).expect("a period");
    drawn(period, bytes, &mut Random::new(seed))
}
