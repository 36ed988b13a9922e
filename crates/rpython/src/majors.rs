//! Major collections, step by step. Each `major_collection_step` is timed; its phase follows from the collector's state
//! before and after it (`incminimark.py`):
//!
//! ```text
//! scanning ──► marking ──► sweeping ──► finalizing ──► scanning: the collection is over
//!              … steps …   … steps … ──► scanning: memory ran out
//! ```

use std::ops::Range;

use nthbyte_profile::event::{MajorPhase, Nanos};

use crate::binary::MAJOR_STATES;

/// The steps of one session.
#[derive(Debug)]
pub struct Majors {
    /// The address of the word with the collector's state.
    state: *const i64,
    /// The start of the current collection, if its first step was seen.
    began: Option<Nanos>,
    /// Bytes in use at the end of the sweep.
    left: Option<u64>,
}

/// The collector's state, as it numbers the phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State(i64);

/// The phase of each state, from 0 on.
const PHASES: [MajorPhase; MAJOR_STATES] = [
    MajorPhase::Scanning,
    MajorPhase::Marking,
    MajorPhase::Sweeping,
    MajorPhase::Finalizing,
];
const SCANNING: State = State(0);
const MARKING: State = State(1);
const SWEEPING: State = State(2);

impl State {
    fn phase(self) -> Option<MajorPhase> {
        PHASES.get(usize::try_from(self.0).ok()?).copied()
    }
}

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The phase of the step.
    pub phase: MajorPhase,
    /// After this step the collector knew which objects are garbage, and had called their destructors, which also
    /// free machine code.
    pub has_marked: bool,
    /// This step was the last of its collection: the start of the collection, and the bytes in use
    /// after it.
    pub ends: Option<(Nanos, Option<u64>)>,
}

impl Majors {
    /// `state` is the address of `gc_state` in the collector's struct. `None` if the word there is not a valid
    /// state. The interpreter's lock must be held.
    #[must_use]
    pub fn new(state: usize) -> Option<Self> {
        let majors = Self {
            state: state as *const i64,
            began: None,
            left: None,
        };
        majors.state().phase().map(|_| majors)
    }

    /// The collector's state. The interpreter's lock must be held.
    #[must_use]
    pub fn state(&self) -> State {
        // SAFETY: the word lies in the collector's struct, which is never freed; it changes with the lock held.
        State(unsafe { self.state.read_volatile() })
    }

    /// Whether the collector counts its memory again from zero.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.state() == SWEEPING
    }

    /// Notes a step that was executed between these times. `before` is the state before it. `None` if that is not a
    /// known phase. `in_use` returns the bytes that are in use now.
    pub fn step(
        &mut self,
        before: State,
        times: &Range<Nanos>,
        in_use: impl FnOnce() -> Option<u64>,
    ) -> Option<Step> {
        let phase = before.phase()?;
        let after = self.state();
        if before == SCANNING {
            self.began = Some(times.start);
        }
        if before == SWEEPING && after != SWEEPING {
            self.left = in_use();
        }
        let is_last = before >= SWEEPING && after == SCANNING;
        Some(Step {
            phase,
            has_marked: before <= MARKING && after >= SWEEPING,
            ends: self
                .began
                .take_if(|_| is_last)
                .map(|began| (began, self.left)),
        })
    }

    /// Forgets the current collection in the child of a fork: it began in the parent.
    pub fn forget(&mut self) {
        self.began = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_ends_with_its_last_step_if_its_first_was_seen() {
        let word = std::cell::Cell::new(1_i64);
        let mut majors = Majors::new(word.as_ptr() as usize).unwrap();
        let mut time = 0;
        let mut step = |majors: &mut Majors, after| {
            let before = majors.state();
            word.set(after);
            time += 10;
            majors.step(before, &(Nanos(time)..Nanos(time + 5)), || Some(time))
        };
        let states = [1, 2, 2, 3, 0, 1, 1, 2, 2, 2, 3, 0];
        let steps = states.map(|after| step(&mut majors, after).unwrap());
        let at = |is: fn(&Step) -> bool| -> Vec<usize> {
            let those = steps.iter().enumerate().filter(|(_, step)| is(step));
            those.map(|(index, _)| index).collect()
        };
        assert_eq!(at(|step| step.has_marked), [1, 7]);
        assert_eq!(at(|step| step.ends.is_some()), [11]);
        assert_eq!(steps[11].ends, Some((Nanos(60), Some(110))));
        assert_eq!(at(|step| step.phase == MajorPhase::Scanning), [5]);

        // A fork in the middle of a collection.
        step(&mut majors, 1);
        majors.forget();
        let rest = [2, 3, 0].map(|after| step(&mut majors, after).unwrap().ends);
        assert_eq!(rest, [None; 3]);

        // Memory runs out.
        let ends = [1, 2, 0].map(|after| step(&mut majors, after).unwrap().ends.is_some());
        assert_eq!(ends, [false, false, true]);

        // The collector has a state that is not known.
        step(&mut majors, 4);
        assert_eq!(step(&mut majors, 0), None);
        word.set(-1);
        assert!(Majors::new(word.as_ptr() as usize).is_none());
    }
}
