//! The state of a session with respect to forks: one word. See [`crate::fork`].

use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::lock::LockHolder;
use nthbyte_host::sync::AtomicU64;

/// How long the writer thread stays stopped after the first recording since a fork, in nanoseconds, if the host does not
/// say before that that it may run.
pub(crate) const WRITER_AWAY: u64 = 250_000_000;

/// The state of a session with respect to forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There was no fork, or its handling is complete.
    Undisturbed,
    /// This process has forked, and has recorded nothing since.
    Forked,
    /// This process has forked. The writer thread stays stopped until this time (`CLOCK_MONOTONIC`, in nanoseconds).
    WriterAway(u64),
    /// This process is the child of a fork, and has recorded nothing since.
    Child {
        /// Whether no other thread was recording at the moment of the fork. If another thread was, the data behind the
        /// lock may be half changed: the child must neither use nor drop it.
        is_whole: bool,
        /// Whether this process has forked too. Then the writer thread stays stopped as in [`State::WriterAway`].
        has_forked: bool,
    },
}

impl State {
    pub(crate) const fn word(self) -> u64 {
        match self {
            Self::Undisturbed => 0,
            Self::Forked => 1,
            Self::WriterAway(until) => 2 | until << 3,
            Self::Child {
                is_whole,
                has_forked,
            } => 4 | is_whole as u64 | (has_forked as u64) << 1,
        }
    }

    pub(crate) const fn of_word(word: u64) -> Self {
        match word & 7 {
            0 => Self::Undisturbed,
            1 => Self::Forked,
            2 => Self::WriterAway(word >> 3),
            child => Self::Child {
                is_whole: child & 1 != 0,
                has_forked: child & 2 != 0,
            },
        }
    }
}

/// What a recording must do first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToDo {
    Nothing,
    /// Begin a profile of this process. The field is as in [`State::Child`].
    BeginAnew {
        is_whole: bool,
    },
    /// Start the writer thread, which a fork has stopped.
    StartWriter,
}

/// The fork state of one session.
#[derive(Debug)]
pub(crate) struct ForkState(AtomicU64);

impl ForkState {
    /// The state without a fork. The word must be zero.
    pub(crate) const fn new(word: AtomicU64) -> Self {
        Self(word)
    }

    pub(crate) fn reset(&self) {
        self.set(State::Undisturbed);
    }

    /// Costs one load.
    #[inline]
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.0.load(Relaxed) == State::Undisturbed.word()
    }

    /// Returns what the recording must do; each answer is given once only. The caller holds the session's lock; `now`
    /// is a time of `CLOCK_MONOTONIC`.
    pub(crate) fn notice(&self, now: u64) -> ToDo {
        let away = State::WriterAway(now.saturating_add(WRITER_AWAY));
        loop {
            let before = self.get();
            let (after, to_do) = match before {
                State::Forked => (away, ToDo::Nothing),
                State::WriterAway(until) if now >= until => (State::Undisturbed, ToDo::StartWriter),
                State::Undisturbed | State::WriterAway(_) => return ToDo::Nothing,
                State::Child {
                    is_whole,
                    has_forked,
                } => {
                    let after = if has_forked { away } else { State::Undisturbed };
                    (after, ToDo::BeginAnew { is_whole })
                }
            };
            if self.replace(before, after) {
                return to_do;
            }
        }
    }

    /// Lets the writer thread run: the next recording starts it. The caller need not hold the session's lock. Returns
    /// whether there is such a thread: not in a child that has recorded nothing.
    pub(crate) fn let_writer_run(&self) -> bool {
        loop {
            let before = self.get();
            let (after, is_there) = match before {
                State::Undisturbed => return false,
                State::Forked | State::WriterAway(_) => (State::WriterAway(0), true),
                State::Child { is_whole, .. } => (
                    State::Child {
                        is_whole,
                        has_forked: false,
                    },
                    false,
                ),
            };
            if self.replace(before, after) {
                return is_there;
            }
        }
    }

    /// Whether the writer thread may run at this time.
    pub(crate) fn lets_writer_run(&self, now: u64) -> bool {
        match self.get() {
            State::Undisturbed => true,
            State::WriterAway(until) => now >= until,
            State::Forked | State::Child { .. } => false,
        }
    }

    /// Whether the last recorded data is the parent's, and this process has not begun its own profile.
    pub(crate) fn is_child(&self) -> bool {
        matches!(self.get(), State::Child { .. })
    }

    /// Records that this process has forked. A child that forks before it records anything stays a child.
    pub(crate) fn forked(&self) {
        self.set(match self.get() {
            State::Child { is_whole, .. } => State::Child {
                is_whole,
                has_forked: true,
            },
            _ => State::Forked,
        });
    }

    /// Records that this process is the child of a fork.
    pub(crate) fn become_child(&self, holder: LockHolder) {
        let was_broken = matches!(
            self.get(),
            State::Child {
                is_whole: false,
                ..
            }
        );
        self.set(State::Child {
            is_whole: !was_broken && holder != LockHolder::Other,
            has_forked: false,
        });
    }

    pub(crate) fn get(&self) -> State {
        State::of_word(self.0.load(Relaxed))
    }

    /// Changes the state, unless another thread has changed it. Returns whether it did.
    fn replace(&self, before: State, after: State) -> bool {
        self.0
            .compare_exchange(before.word(), after.word(), Relaxed, Relaxed)
            .is_ok()
    }

    fn set(&self, state: State) {
        self.0.store(state.word(), Relaxed);
    }
}
