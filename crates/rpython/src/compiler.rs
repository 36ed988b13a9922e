//! What a JIT compiler does, by the sections of RPython's log: each begins and ends with a call that has the section's name,
//! whether the log is written or not.
//!
//! ```text
//! {jit-tracing                      a loop is hot, or a guard fails often: the interpreter is watched
//!   {jit-optimize  jit-optimize}    the trace is made shorter
//!   {jit-backend                    and made machine code
//!     {jit-log-compiling-loop …}    of a loop, or of a bridge from a guard
//!   jit-backend}
//! jit-tracing}                      without machine code: the trace was given up
//! ```

use std::ffi::CStr;

use nthbyte_profile::compilation::CompilationOutcome;

/// Sections may lie in each other so deep. Deeper ones are not timed.
const DEEPEST: usize = 16;

/// A part of the compiler's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Tracing,
    Optimizing,
    Assembling,
}

impl Part {
    fn of(category: &CStr) -> Option<Self> {
        match category.to_bytes() {
            b"jit-tracing" => Some(Self::Tracing),
            b"jit-optimize" => Some(Self::Optimizing),
            b"jit-backend" => Some(Self::Assembling),
            _ => None,
        }
    }
}

/// One piece of work, from the begin of the outermost section to its end. Times are nanoseconds of any clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Nanoseconds of it in the optimizer.
    pub optimizing: u64,
    /// Nanoseconds of it in the assembler.
    pub assembling: u64,
    /// What came of it.
    pub outcome: CompilationOutcome,
}

/// The open sections. The interpreter's lock protects them.
#[derive(Debug)]
pub struct Sections {
    open: [(Part, u64); DEEPEST],
    depth: usize,
    /// The thread that they are of. While it has open sections, the sections of other threads are not looked at.
    thread: usize,
    work: Compiled,
}

impl Sections {
    /// No section is open.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            open: [(Part::Tracing, 0); DEEPEST],
            depth: 0,
            thread: 0,
            work: NOTHING,
        }
    }

    /// A section begins.
    pub fn begin(&mut self, category: &CStr, thread: usize, now: u64) {
        if self.depth > 0 && self.thread != thread {
            return;
        }
        match category.to_bytes() {
            b"jit-log-compiling-loop" => self.work.outcome = CompilationOutcome::Loop,
            b"jit-log-compiling-bridge" => self.work.outcome = CompilationOutcome::Bridge,
            _ => {}
        }
        let Some(part) = Part::of(category) else {
            return;
        };
        if self.depth == 0 {
            self.thread = thread;
            self.work = Compiled {
                start: now,
                outcome: match part {
                    Part::Tracing => CompilationOutcome::Aborted,
                    Part::Optimizing | Part::Assembling => CompilationOutcome::Other,
                },
                ..NOTHING
            };
        }
        if let Some(place) = self.open.get_mut(self.depth) {
            *place = (part, now);
            self.depth += 1;
        }
    }

    /// A section ends. Returns the work that ends with it.
    pub fn end(&mut self, category: &CStr, thread: usize, now: u64) -> Option<Compiled> {
        let part = Part::of(category)?;
        if self.thread != thread {
            return None;
        }
        let open = &self.open[..self.depth];
        // An exception may have left sections inside of this one open.
        let at = open.iter().rposition(|&(one, _)| one == part)?;
        for inner in at..self.depth {
            let (part, began) = self.open[inner];
            let is_outermost = self.open[..inner].iter().all(|&(one, _)| one != part);
            let took = now.saturating_sub(began);
            match part {
                Part::Optimizing if is_outermost => self.work.optimizing += took,
                Part::Assembling if is_outermost => self.work.assembling += took,
                _ => {}
            }
        }
        self.depth = at;
        (at == 0).then_some(Compiled {
            end: now,
            ..self.work
        })
    }
}

impl Default for Sections {
    fn default() -> Self {
        Self::new()
    }
}

const NOTHING: Compiled = Compiled {
    start: 0,
    end: 0,
    optimizing: 0,
    assembling: 0,
    outcome: CompilationOutcome::Other,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The work of sections, each a category with `{` before it or `}` behind it, of a thread, one nanosecond after the other.
    fn work(sections: &[(&str, usize)]) -> Vec<Compiled> {
        let mut open = Sections::new();
        let mut found = Vec::new();
        for (now, (section, thread)) in sections.iter().enumerate() {
            let name = section.trim_matches(|sign| sign == '{' || sign == '}');
            let name = std::ffi::CString::new(name).unwrap();
            if section.starts_with('{') {
                open.begin(&name, *thread, now as u64);
            } else {
                found.extend(open.end(&name, *thread, now as u64));
            }
        }
        found
    }

    #[test]
    fn work_lasts_as_long_as_its_outermost_section() {
        let one = |sections: &[&str]| {
            let sections: Vec<_> = sections.iter().map(|&section| (section, 1)).collect();
            let [one] = work(&sections)[..] else {
                panic!("{sections:?}");
            };
            one
        };
        let compiled = one(&[
            "{jit-tracing",
            "{gc-minor",
            "gc-minor}",
            "{jit-optimize",
            "{jit-optimize",
            "jit-optimize}",
            "jit-optimize}",
            "{jit-backend",
            "{jit-log-compiling-bridge",
            "jit-log-compiling-bridge}",
            "jit-backend}",
            "jit-tracing}",
        ]);
        assert_eq!((compiled.start, compiled.end), (0, 11));
        assert_eq!((compiled.optimizing, compiled.assembling), (3, 3));
        assert_eq!(compiled.outcome, CompilationOutcome::Bridge);
        let aborted = one(&[
            "{jit-tracing",
            "{jit-optimize",
            "jit-tracing}",
            "jit-optimize}",
        ]);
        assert_eq!((aborted.optimizing, aborted.end), (1, 2));
        assert_eq!(aborted.outcome, CompilationOutcome::Aborted);
        let other = one(&["{jit-backend", "{jit-log-compiling-loop", "jit-backend}"]);
        assert_eq!(other.outcome, CompilationOutcome::Loop);
        assert_eq!(
            one(&["{jit-optimize", "jit-optimize}"]).outcome,
            CompilationOutcome::Other
        );
    }

    #[test]
    fn other_threads_and_ends_without_a_begin_are_left_out() {
        let mixed = [
            ("jit-tracing}", 1),
            ("{jit-tracing", 1),
            ("{jit-backend", 2),
            ("jit-backend}", 2),
            ("jit-backend}", 1),
            ("jit-tracing}", 2),
            ("jit-tracing}", 1),
            ("{jit-tracing", 2),
            ("jit-tracing}", 2),
        ];
        let times: Vec<_> = work(&mixed)
            .iter()
            .map(|one| (one.start, one.end))
            .collect();
        assert_eq!(times, [(1, 6), (7, 8)]);
        // Deeper than is timed.
        let deep: Vec<_> = (0..DEEPEST + 3)
            .map(|_| ("{jit-tracing", 1))
            .chain((0..DEEPEST).map(|_| ("jit-tracing}", 1)))
            .collect();
        assert_eq!(work(&deep).len(), 1);
    }
}
