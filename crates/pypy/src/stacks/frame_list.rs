//! The stack of a thread, read from PyPy's own list.
//!
//! PyPy links the running frames of a thread into a list, the *frame list* (see [`super::links`]), whether or not
//! `_vmprof` is on. The handler of SIGPROF walks that list. For each piece of machine code it looks up the Python
//! frames that are inlined at that place; this costs a microsecond and many cold cache lines for each sample. Here a
//! place in machine code is a step of the stack like a frame. The handler is called only for the frames at new places,
//! and at intervals to check that the frames at all known places are still the same.
//!
//! The word where the list begins is found by its value. It is the one of PyPy's thread-local words that leads to the
//! frames that the handler has recorded. The first sample of each thread, and every 1024th sample after it, is compared
//! with the handler's record. If they ever differ, the handler walks all later stacks.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use nthbyte_host::process::CachedProbe;
use nthbyte_session::KeyMap;

use super::handler::Substitute;
use super::links::{OwnList, Step, StepKind, links, read, word_at};
use super::record::{CODE_TAG, RawFrame};
use nthbyte_rpython::binary::thread_pointer;

/// A record with fewer frames holds the whole stack. In a longer record the last frames may be
/// missing.
pub const WHOLE_RECORD: usize = 200;
const CUT: usize = 2;
/// Number of stacks between two comparisons with the handler's record.
const CHECK_EVERY: u32 = 1024;
/// Number of records after which the search for the word ends, even without a result.
const LOOKS: u32 = 64;
/// Number of interpreted frames that a record needs for the search: another word may lead to fewer frames
/// by chance.
const FEWEST_FRAMES: usize = 3;
/// If there are more known places than this for each minor collection since the last check, they are forgotten instead
/// of looked up again.
const RENEWED_A_MINOR: usize = 4;
/// A frame without code.
const OUTSIDE: RawFrame = RawFrame {
    compiled: false,
    unique_id: 1,
};
/// Number of places that are looked up in one call of the handler, at most. Most have one to three frames, and what does
/// not fit in the record is looked up again.
const TOGETHER: usize = 48;
/// Number of minor collections after which places are looked up again in any case: a minor collection frees the machine
/// code of a loop that dies young, and no hook sees that.
const MINORS: u32 = 128;

/// Number of frame lists of this process until now: one for each session.
static FRAME_LISTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The number of the [`FrameList`] that last compared this thread's list with a record.
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// PyPy's list of frames, if it was found.
#[derive(Debug)]
pub struct FrameList {
    state: State,
    number: u32,
    until_check: u32,
    /// The frames at places in machine code, innermost first.
    places: KeyMap<usize, Vec<RawFrame>>,
    /// Number of minor collections since the places were looked up.
    minors: u32,
    /// Whether machine code may have been freed since then.
    distrusted: bool,
    /// Whether some place now stands for other frames, or could not be looked up.
    mistaken: bool,
}

/// Distances are from the thread pointer. Thread-local words of a library that was loaded at the program's
/// start have the same distance in every thread.
#[derive(Debug)]
enum State {
    Sought {
        words: Vec<isize>,
        looks: u32,
    },
    Found(isize),
    /// The word was found, but then its list differed from the handler's record.
    Broken,
    None,
}

impl FrameList {
    /// A list that is not found yet. `thread_local` is the library's thread-local memory in the
    /// calling thread.
    #[must_use]
    pub fn sought(thread_local: Option<Range<usize>>) -> Self {
        let words: Vec<isize> = thread_local
            .unwrap_or_default()
            .step_by(8)
            .map(|word| word.wrapping_sub(thread_pointer()).cast_signed())
            .collect();
        let state = if words.is_empty() {
            State::None
        } else {
            State::Sought { words, looks: 0 }
        };
        Self {
            state,
            number: FRAME_LISTS.fetch_add(1, Ordering::Relaxed) + 1,
            until_check: 0,
            places: KeyMap::default(),
            minors: 0,
            distrusted: false,
            mistaken: false,
        }
    }

    /// Whether the list was found to differ from the stack.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken)
    }

    /// A minor collection has ended.
    pub fn collected(&mut self) {
        self.minors += 1;
    }

    /// Notes that machine code may have been freed: the known places may soon contain other code.
    pub fn distrust(&mut self) {
        self.distrusted = true;
    }

    /// Looks all known places up again if that is due. Returns whether they may stand for other frames than before.
    /// Call this after each [`FrameList::walk`], before [`FrameList::inlined`]. `raise` makes the handler walk a list.
    pub fn renew(&mut self, raise: impl FnMut(Substitute, &mut Vec<RawFrame>)) -> bool {
        let is_due = self.minors >= MINORS || self.distrusted || self.mistaken;
        // No place is known for a thread whose list was not compared with a record yet, and its list must not be
        // changed.
        if !is_due || SEEN.get() != self.number {
            return false;
        }
        let are_few = self.places.len() <= RENEWED_A_MINOR * self.minors as usize;
        let is_unchanged = if !self.mistaken && are_few {
            self.look_up_again(raise)
        } else {
            self.places.clear();
            false
        };
        (self.minors, self.distrusted, self.mistaken) = (0, false, false);
        !is_unchanged
    }

    /// Looks all known places up again. Returns whether they all still stand for the same frames.
    fn look_up_again(&mut self, mut raise: impl FnMut(Substitute, &mut Vec<RawFrame>)) -> bool {
        let mut is_unchanged = true;
        let known: Vec<usize> = self.places.keys().copied().collect();
        let mut rest = &known[..];
        while !rest.is_empty() {
            let mut frames = 0;
            let fits = rest.iter().take_while(|place| {
                frames += self.places[*place].len() + 1;
                frames < WHOLE_RECORD
            });
            let (together, later) = rest.split_at(fits.count().max(1));
            rest = later;
            let found = self.ask(together, &mut raise).unwrap_or_default();
            let mut found = complete(&found);
            for place in together {
                let Some(frames) = found.next() else {
                    self.places.remove(place);
                    is_unchanged = false;
                    continue;
                };
                let before = self.places.entry(*place).or_default();
                if before != frames {
                    *before = frames.to_vec();
                    is_unchanged = false;
                }
            }
        }
        is_unchanged
    }

    /// Fills `steps` with the calling thread's stack, innermost first. If it returns false, there are no steps:
    /// the handler must walk the stack, and [`FrameList::learn`] gets the result. After that a walk may succeed.
    pub fn walk(&mut self, steps: &mut Vec<Step>) -> bool {
        steps.clear();
        let State::Found(head) = self.state else {
            return false;
        };
        if self.until_check == 0 || SEEN.get() != self.number {
            return false;
        }
        // SAFETY: `learn` found that the list of this thread begins at this word.
        if unsafe { read(head, steps) } {
            self.until_check -= 1;
            return true;
        }
        steps.clear();
        false
    }

    /// Learns from the frames that the handler has found, after [`FrameList::walk`] has returned false. `raise` makes
    /// the handler walk another list.
    pub fn learn(
        &mut self,
        frames: &[RawFrame],
        mut raise: impl FnMut(Substitute, &mut Vec<RawFrame>),
    ) {
        match &mut self.state {
            State::Sought { words, looks } => {
                let interpreted = frames.iter().filter(|frame| !frame.compiled);
                if interpreted.count() < FEWEST_FRAMES {
                    return;
                }
                let probe = CachedProbe::new();
                words.retain(|&word| begins_at(word, frames, &probe));
                *looks += 1;
                self.state = match (&words[..], *looks) {
                    (&[head], _) => State::Found(head),
                    ([], _) | (_, LOOKS..) => State::None,
                    _ => return,
                };
            }
            &mut State::Found(head) => {
                let is_seen = SEEN.get() == self.number;
                if frames.is_empty() || is_seen && self.until_check > 0 {
                    return;
                }
                if !is_seen && !begins_at(head, frames, &CachedProbe::new()) {
                    return;
                }
                let mut steps = Vec::new();
                // SAFETY: the list of this thread begins at this word.
                if !unsafe { read(head, &mut steps) } {
                    return;
                }
                let mut agrees = self.agrees(&steps, frames, &mut raise);
                if agrees == Some(false) {
                    // The frames at known places may be the only error.
                    self.places.clear();
                    self.mistaken = true;
                    agrees = self.agrees(&steps, frames, &mut raise);
                }
                match agrees {
                    Some(true) => {
                        SEEN.set(self.number);
                        self.until_check = CHECK_EVERY;
                    }
                    Some(false) => self.state = State::Broken,
                    None => {}
                }
            }
            State::Broken | State::None => {}
        }
    }

    /// Whether the steps have the same frames as a record. `None` if the handler cannot be called
    /// now.
    fn agrees(
        &mut self,
        steps: &[Step],
        recorded: &[RawFrame],
        raise: impl FnMut(Substitute, &mut Vec<RawFrame>),
    ) -> Option<bool> {
        let own = self.frames(steps, raise)?;
        Some(agree(&own, certain(recorded), is_whole(recorded)))
    }

    /// The frames of the steps, innermost first. `None` if the handler cannot be called now.
    fn frames(
        &mut self,
        steps: &[Step],
        mut raise: impl FnMut(Substitute, &mut Vec<RawFrame>),
    ) -> Option<Vec<RawFrame>> {
        let mut frames = Vec::new();
        for &step in steps {
            match step.kind() {
                StepKind::Frame(frame) => frames.push(frame),
                StepKind::Place(place) => {
                    frames.extend_from_slice(self.inlined(place, steps, &mut raise)?)
                }
            }
        }
        Some(frames)
    }

    /// The frames at a place of the calling thread's stack, innermost first. `None` if the handler cannot be called
    /// now; then the next [`FrameList::renew`] returns true.
    ///
    /// `inside` are steps of the same stack. Their unknown places are looked up too, because most of the cost is that
    /// of the call.
    pub fn inlined(
        &mut self,
        place: usize,
        inside: &[Step],
        mut raise: impl FnMut(Substitute, &mut Vec<RawFrame>),
    ) -> Option<&[RawFrame]> {
        if !self.places.contains_key(&place) {
            let mut together = vec![place];
            for step in inside {
                if let StepKind::Place(other) = step.kind()
                    && together.len() < TOGETHER
                    && !self.places.contains_key(&other)
                {
                    together.push(other);
                }
            }
            let found = self.ask(&together, &mut raise).unwrap_or_default();
            for (place, frames) in together.into_iter().zip(complete(&found)) {
                if self.places.try_reserve(1).is_ok() {
                    self.places.insert(place, frames.to_vec());
                }
            }
        }
        let frames = self.places.get(&place).map(Vec::as_slice);
        self.mistaken |= frames.is_none();
        frames
    }

    /// The frames at places in machine code, innermost first. [`OUTSIDE`] follows the frames of each place. `None` if
    /// the list was not found.
    ///
    /// The handler walks a list of these places, with an interpreted frame after each: some machine code has no frames,
    /// and the handler writes no record of a stack without frames.
    fn ask(
        &self,
        places: &[usize],
        raise: impl FnOnce(Substitute, &mut Vec<RawFrame>),
    ) -> Option<Vec<RawFrame>> {
        let State::Found(head) = self.state else {
            return None;
        };
        let mut found = Vec::new();
        let made = OwnList::of(places, OUTSIDE.unique_id);
        if let Some(list) = made.list() {
            let head = word_at(head);
            raise(Substitute { head, list }, &mut found);
        }
        Some(found)
    }
}

/// The frames of each place in the answer to [`FrameList::ask`], without a place whose frames may be incomplete.
fn complete(found: &[RawFrame]) -> impl Iterator<Item = &[RawFrame]> {
    let last = found.iter().rposition(|&frame| frame == OUTSIDE);
    let places = last.map(|last| found[..last].split(|&frame| frame == OUTSIDE));
    places.into_iter().flatten()
}

/// Whether a list begins at this word and its interpreted frames are the frames of a record.
fn begins_at(word: isize, recorded: &[RawFrame], probe: &CachedProbe) -> bool {
    let frames = certain(recorded).iter().filter(|frame| !frame.compiled);
    let frames: Vec<u64> = frames.map(|frame| frame.unique_id).collect();
    links(word, |address| probe.word(address)).is_some_and(|links| {
        let own = links.iter().filter(|link| link.kind == CODE_TAG);
        let own: Vec<u64> = own.map(|link| link.value as u64).collect();
        agree(&own, &frames, is_whole(recorded))
    })
}

/// Whether a stack agrees with its record, which holds the whole stack or its innermost part.
fn agree<T: PartialEq>(own: &[T], recorded: &[T], is_whole: bool) -> bool {
    own.starts_with(recorded) && (own.len() == recorded.len() || !is_whole)
}

/// Whether a record holds all frames of its stack.
const fn is_whole(recorded: &[RawFrame]) -> bool {
    recorded.len() < WHOLE_RECORD
}

/// The frames of a record, without those that may be incomplete.
fn certain(recorded: &[RawFrame]) -> &[RawFrame] {
    let cut = if is_whole(recorded) { 0 } else { CUT };
    &recorded[..recorded.len() - cut]
}

#[cfg(test)]
mod tests;
