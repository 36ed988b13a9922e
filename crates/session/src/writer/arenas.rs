//! The arenas of samples, until they are written.

use nthbyte_profile::composition::ArenaRun;
use nthbyte_profile::event::SampleId;

/// Runs of samples with the same arena, since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Arenas {
    runs: Vec<ArenaRun>,
    /// The number of the next sample.
    next: u32,
}

impl Arenas {
    /// Adds the next sample. Without memory, its arena is not known.
    #[inline]
    pub(super) fn push(&mut self, arena: u32) {
        let first = self.next;
        self.next = self.next.saturating_add(1);
        if arena == 0 {
            return;
        }
        if let Some(run) = self.runs.last_mut()
            && run.arena == arena
            && run.first.0 + run.count == first
        {
            run.count += 1;
        } else if self.runs.try_reserve(1).is_ok() {
            self.runs.push(ArenaRun {
                first: SampleId(first),
                count: 1,
                arena,
            });
        }
    }

    /// The runs, each once.
    pub(super) fn take(&mut self) -> Vec<ArenaRun> {
        std::mem::take(&mut self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_one_arena_are_one_run() {
        let mut arenas = Arenas::default();
        for arena in [7, 7, 0, 7, 8] {
            arenas.push(arena);
        }
        let run = |first, count, arena| ArenaRun {
            first: SampleId(first),
            count,
            arena,
        };
        assert_eq!(arenas.take(), [run(0, 2, 7), run(3, 1, 7), run(4, 1, 8)]);
        arenas.push(8);
        assert_eq!(arenas.take(), [run(5, 1, 8)]);
        assert!(arenas.take().is_empty());
    }
}
