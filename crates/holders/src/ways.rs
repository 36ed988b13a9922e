//! The nodes that a person is shown: those on the ways from the roots to the samples, in both trees.

use crate::others::others;
use crate::part::NONE;
use crate::{Dominators, Subgraph};

/// Others that refer to a node, as they are named in a report.
const MOST_OTHERS: usize = 2;
/// With so many pairs, no more others are looked for.
const MOST_PAIRS: usize = 20_000;

/// See [`Ways::of`].
#[derive(Debug)]
pub struct Ways {
    /// By number: whether the node is on a way.
    pub is_on: Vec<bool>,
    /// Pairs of a node on a way and another one that refers to it, by a path of its own ([`others`]). That one is on a way, too.
    pub pairs: Vec<(u32, u32)>,
}

impl Ways {
    /// The nodes that lead to `samples`, by shortest paths and by dominators, without garbage. Without dominators, nobody else is
    /// looked for. `is_apart`: see [`others`].
    #[must_use]
    pub fn of(
        part: &Subgraph,
        dominators: Option<&Dominators>,
        samples: impl Iterator<Item = u32>,
        is_apart: impl Fn(u32) -> bool,
    ) -> Self {
        let mut ways = Self {
            is_on: vec![false; part.len() as usize],
            pairs: Vec::new(),
        };
        let mut waiting: Vec<u32> = samples.collect();
        while let Some(node) = waiting.pop() {
            if node == NONE || node == 0 || part.is_garbage(node) || ways.is_on[node as usize] {
                continue;
            }
            ways.is_on[node as usize] = true;
            waiting.push(part.parent(node));
            let Some(dominators) = dominators else {
                continue;
            };
            waiting.push(dominators.of(node));
            if ways.pairs.len() < MOST_PAIRS {
                for other in others(part, dominators, node, MOST_OTHERS, &is_apart) {
                    ways.pairs.push((node, other));
                    waiting.push(other);
                }
            }
        }
        ways
    }
}
