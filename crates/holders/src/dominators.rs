//! Dominators by semi-NCA.

use crate::part::NONE;
use crate::{Steps, Subgraph, WorkLimit};

/// The dominators of a part's nodes.
pub struct Dominators {
    /// The number of each node in a depth-first search; 0 of what no root leads to.
    order: Vec<u32>,
    /// By that number: the immediate dominator's number; 0 is above all roots.
    dominators: Vec<u32>,
    /// By that number: the node.
    nodes: Vec<u32>,
    /// By that number: one more than the largest number below it in the tree of dominators, in the order of `ranks`.
    ends: Vec<u32>,
    ranks: Vec<u32>,
}

/// The dominators of all nodes. A node is dominated by another one if each path from a root to it leads through that one.
/// `None` if the limit was reached.
pub fn dominators(part: &Subgraph, limit: &mut impl WorkLimit) -> Option<Dominators> {
    let mut steps = Steps::new(limit);
    let (order, nodes, parents) = depth_first(part, &mut steps)?;
    let count = nodes.len();
    let mut semi: Vec<u32> = (0..count as u32).collect();
    let mut forest = Forest {
        labels: semi.clone(),
        ancestors: parents.clone(),
        path: Vec::new(),
    };
    for number in (1..count as u32).rev() {
        let node = nodes[number as usize];
        let mut least = parents[number as usize];
        if part.parent(node) == 0 {
            least = 0;
        }
        for &source in part.sources(node) {
            steps.step()?;
            // What no root leads to is no way to anything.
            let source = order[source as usize];
            if source == 0 {
                continue;
            }
            let candidate = match source <= number {
                true => source,
                false => semi[forest.evaluate(&semi, source, number + 1, &mut steps)? as usize],
            };
            least = least.min(candidate);
        }
        semi[number as usize] = least;
    }
    let mut dominators = parents;
    for number in 1..count {
        let mut of = dominators[number];
        while of > semi[number] {
            steps.step()?;
            of = dominators[of as usize];
        }
        dominators[number] = of;
    }
    let (ranks, ends) = ranks(&dominators);
    Some(Dominators {
        order,
        dominators,
        nodes,
        ends,
        ranks,
    })
}

/// The depth-first numbers of all nodes that roots lead to, the nodes in that order, and the number of each one's parent.
#[allow(clippy::type_complexity)] // three tables
fn depth_first(
    part: &Subgraph,
    steps: &mut Steps<'_, impl WorkLimit>,
) -> Option<(Vec<u32>, Vec<u32>, Vec<u32>)> {
    let len = part.len();
    let mut order = vec![0; len as usize];
    let (mut nodes, mut parents) = (vec![0], vec![0]);
    let mut waiting: Vec<[u32; 2]> = Vec::new();
    for root in (1..len).filter(|&node| part.parent(node) == 0) {
        waiting.push([root, 0]);
        while let Some([node, parent]) = waiting.pop() {
            if order[node as usize] != 0 {
                continue;
            }
            let number = nodes.len() as u32;
            order[node as usize] = number;
            nodes.push(node);
            parents.push(parent);
            for &target in part.targets(node).iter().rev() {
                steps.step()?;
                if order[target as usize] == 0 {
                    waiting.push([target, number]);
                }
            }
        }
    }
    Some((order, nodes, parents))
}

/// The forest of what was looked at, with path compression. Numbers are depth-first ones; those from a number on are linked.
struct Forest {
    labels: Vec<u32>,
    ancestors: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    /// The number with the least semidominator on the path from `number` up to the first one below `linked`, which does
    /// not count.
    fn evaluate(
        &mut self,
        semi: &[u32],
        number: u32,
        linked: u32,
        steps: &mut Steps<'_, impl WorkLimit>,
    ) -> Option<u32> {
        let mut top = number;
        while self.ancestors[top as usize] >= linked {
            steps.step()?;
            self.path.push(top);
            top = self.ancestors[top as usize];
        }
        let mut before = top;
        while let Some(at) = self.path.pop() {
            let (best, own) = (self.labels[before as usize], self.labels[at as usize]);
            if semi[best as usize] < semi[own as usize] {
                self.labels[at as usize] = best;
            }
            self.ancestors[at as usize] = self.ancestors[top as usize];
            before = at;
        }
        Some(self.labels[number as usize])
    }
}

/// An order in which everything below a node in the tree of dominators follows it without a gap: each one's place, and the
/// end of the nodes below it.
fn ranks(dominators: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let count = dominators.len();
    // A dominator has a smaller number, so sizes add up from the end.
    let mut sizes = vec![1; count];
    for number in (1..count).rev() {
        let above = dominators[number] as usize;
        sizes[above] += sizes[number];
    }
    let mut ranks = vec![0; count];
    let mut next = vec![1; count];
    for number in 1..count {
        let above = dominators[number] as usize;
        ranks[number] = ranks[above] + next[above];
        next[above] += sizes[number];
    }
    let ends = ranks.iter().zip(&sizes);
    let ends = ends.map(|(rank, size)| rank + size).collect();
    (ranks, ends)
}

impl Dominators {
    /// The immediate dominator of a node: 0 if it is above all roots, [`NONE`] if no root leads to the node.
    #[must_use]
    pub fn of(&self, node: u32) -> u32 {
        match self.order[node as usize] {
            0 => NONE,
            number => self.nodes[self.dominators[number as usize] as usize],
        }
    }

    /// Whether one node dominates another one, or is the same.
    #[must_use]
    pub fn dominates(&self, above: u32, node: u32) -> bool {
        let (above, node) = (self.order[above as usize], self.order[node as usize]);
        let inside = self.ranks[above as usize]..self.ends[above as usize];
        above != 0 && node != 0 && inside.contains(&self.ranks[node as usize])
    }
}
