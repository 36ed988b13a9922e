//! Who holds what: dominators and shortest paths on the part of a graph that leads to samples.
//!
//! A graph of objects has millions of nodes, and the question is about a few thousand of them: the samples. Only what leads
//! to a sample can hold one. So the graph is kept backwards, as lists of predecessors, and the walk from the samples backwards
//! finds a part of it ([`Subgraph`]) with some thousand nodes. All paths to a sample lie in that part, so a result on it holds
//! for the whole graph.
//!
//! - [`Graph`]: nodes by address, and the references between them, in some 25 bytes for each node and 8 for each reference.
//! - [`Subgraph`]: the part that leads to samples, and its breadth-first tree: shortest paths from the roots.
//! - [`dominators()`]: of each node the nearest one without which it is unreachable. "Finding Dominators in Practice" (Georgiadis,
//!   Tarjan, Werneck 2006) describes the algorithm, semi-NCA.
//! - [`others()`]: who else refers to a node, by a path that avoids the first one.
//! - [`Ways`]: the nodes on all these paths, which a person is shown.
//! - [`Draw`]: which blocks are samples.
//!
//! # What this is for
//!
//! It runs in a copy of a process, which has been made in the middle of anything: so nothing here takes a lock, asks the
//! system for anything but memory, or is random. Memory comes from the global allocator, which must be one that can be used
//! there. Time is limited by the caller: what may take long asks a [`WorkLimit`].

mod addresses;
mod dominators;
mod draw;
mod graph;
mod node;
mod others;
mod part;
mod ways;

pub use dominators::{Dominators, dominators};
pub use draw::{Draw, hash};
pub use graph::Graph;
pub use others::others;
pub use part::{NONE, Subgraph};
pub use ways::Ways;

/// Says whether the work must end. It is asked once in some thousand steps.
pub trait WorkLimit {
    /// Whether the work must end now.
    fn is_over(&mut self) -> bool;
}

/// No limit.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl WorkLimit for Unlimited {
    fn is_over(&mut self) -> bool {
        false
    }
}

/// Steps between two questions to a [`WorkLimit`].
const STEPS: usize = 1 << 14;

/// Counts steps, and asks a limit once in a while.
struct Steps<'a, L> {
    left: usize,
    limit: &'a mut L,
}

impl<'a, L: WorkLimit> Steps<'a, L> {
    fn new(limit: &'a mut L) -> Self {
        Self { left: STEPS, limit }
    }

    /// `None` if the work must end.
    #[inline]
    fn step(&mut self) -> Option<()> {
        self.left -= 1;
        if self.left > 0 {
            return Some(());
        }
        self.left = STEPS;
        (!self.limit.is_over()).then_some(())
    }
}
