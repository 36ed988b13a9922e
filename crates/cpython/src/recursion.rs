//! Calls a program so that the frames below it do not count towards its recursion limit.
//!
//! Each thread's state has two neighbouring numbers: how many more calls it may make, and the limit
//! (`recursion_remaining`, `recursion_limit` in 3.11; `py_recursion_remaining`, `py_recursion_limit` from 3.12 on). They
//! are found by their values, before and after a change of the limit by CPython's public function. If they are not
//! found, the program is called all the same.

use crate::api::Gil;

/// The part of the thread's state that is searched, in numbers of 32 bits: less than its size in any version.
const SEARCHED: usize = 48;
/// By how much the limit is raised for a moment. No other number of the state changes by this.
const RAISED: i32 = 1_000_003;
/// More calls than a launcher makes.
const DEEPEST: i32 = 100;

/// The number of further calls that the thread may make.
struct Remaining(*mut i32);

impl Remaining {
    /// Finds the number of the calling thread.
    fn find(gil: &Gil) -> Option<Self> {
        let state: *mut i32 = gil.thread_state().cast();
        let limit = gil.recursion_limit();
        let read = |at: usize| {
            // SAFETY: the state is larger than the searched part, and the GIL is held, so it does not change.
            let two = unsafe { [state.add(at).read(), state.add(at + 1).read()] };
            (state.wrapping_add(at), two)
        };
        let before: Vec<_> = (0..SEARCHED)
            .map(read)
            .filter(|&(_, [remaining, of])| of == limit && (1..DEEPEST).contains(&(of - remaining)))
            .collect();
        gil.set_recursion_limit(limit.checked_add(RAISED)?);
        let found: Vec<_> = before
            .into_iter()
            .filter(|&(place, [remaining, of])| {
                // SAFETY: as above.
                let now = unsafe { [place.read(), place.add(1).read()] };
                now == [remaining + RAISED, of + RAISED]
            })
            .collect();
        gil.set_recursion_limit(limit);
        match found[..] {
            [(place, before)] => {
                // SAFETY: as above.
                let now = unsafe { [place.read(), place.add(1).read()] };
                (now == before).then_some(Self(place))
            }
            _ => None,
        }
    }

    fn get(&self) -> i32 {
        // SAFETY: as in `add`.
        unsafe { self.0.read() }
    }

    /// Adds to the number.
    fn add(&self, calls: i32) {
        // SAFETY: the thread's state lives as long as the thread runs Python, and only this thread changes the number.
        unsafe { self.0.write(self.0.read().wrapping_add(calls)) };
    }
}

/// Runs `work` as if no call were below it.
pub fn without_calls_below<T>(gil: &Gil, work: impl FnOnce() -> T) -> T {
    let found = Remaining::find(gil);
    let below = found.as_ref().map_or(0, |remaining| {
        let below = gil.recursion_limit() - remaining.get();
        remaining.add(below);
        below
    });
    let result = work();
    // The program may have changed the limit, which keeps the difference.
    if let Some(remaining) = &found {
        remaining.add(-below);
    }
    result
}
