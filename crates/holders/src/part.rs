//! The part of a graph that leads to samples, and its shortest paths.

use crate::{Graph, Steps, WorkLimit};

/// No node, or a node that is not in the part.
pub const NONE: u32 = u32::MAX;

/// The part of a graph that leads to some nodes. Its nodes are numbered anew, in the order of a breadth-first search: roots
/// first, and a node's parent before the node. Those that no root leads to come last.
///
/// Node 0 is above all roots.
pub struct Subgraph {
    /// The number in the graph of each node.
    nodes: Vec<u32>,
    numbers: Numbers,
    /// The nodes that refer to each node: `sources[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    sources: Vec<u32>,
    /// The nodes that each one refers to, in the same way.
    target_starts: Vec<u32>,
    targets: Vec<u32>,
    /// The node before it on a shortest path; 0 of a root, [`NONE`] of what no root leads to.
    parents: Vec<u32>,
    /// The first node that no root of kind 1 leads to.
    first_of_second: u32,
}

impl Subgraph {
    /// The part that leads to `samples`. `root` says whether a node is one, and which kind: roots of kind 1 are those that
    /// count; of kind 2, only where none of kind 1 leads to; 0 is no root. What refers to a root of kind 1 does not matter.
    ///
    /// `None` if the limit was reached.
    pub fn new(
        graph: &Graph,
        samples: impl Iterator<Item = u32>,
        root: impl Fn(u32) -> u8,
        limit: &mut impl WorkLimit,
    ) -> Option<Self> {
        let mut steps = Steps::new(limit);
        let mut part = Self {
            nodes: vec![0],
            numbers: Numbers::of(graph.len()),
            starts: Vec::new(),
            sources: Vec::new(),
            target_starts: Vec::new(),
            targets: Vec::new(),
            parents: Vec::new(),
            first_of_second: 0,
        };
        part.numbers.add(0);
        for sample in samples {
            part.keep(sample);
        }
        let mut at = 1;
        while let Some(&node) = part.nodes.get(at) {
            if root(node) != 1 {
                for from in graph.predecessors(node) {
                    steps.step()?;
                    part.keep(from);
                }
            }
            at += 1;
        }
        part.numbers.set(&part.nodes);
        part.connect(graph, &root, &mut steps)?;
        let order = part.search(&root, &mut steps)?;
        part.renumber(&order, &mut steps)?;
        Some(part)
    }

    fn keep(&mut self, node: u32) {
        if self.numbers.add(node) {
            self.nodes.push(node);
        }
    }

    /// Finds the sources and the targets of each node.
    fn connect(
        &mut self,
        graph: &Graph,
        root: &impl Fn(u32) -> u8,
        steps: &mut Steps<'_, impl WorkLimit>,
    ) -> Option<()> {
        let len = self.nodes.len();
        self.target_starts = vec![0; len + 2];
        self.starts.reserve_exact(len + 1);
        self.starts.push(0);
        for &node in &self.nodes {
            if node != 0 && root(node) != 1 {
                for from in graph.predecessors(node) {
                    steps.step()?;
                    let from = self.numbers.get(from);
                    self.sources.push(from);
                    self.target_starts[from as usize + 2] += 1;
                }
            }
            self.starts.push(self.sources.len() as u32);
        }
        for at in 2..self.target_starts.len() {
            self.target_starts[at] += self.target_starts[at - 1];
        }
        // While they are filled, each start is the start of the node before.
        self.targets = vec![0; self.sources.len()];
        for node in 0..len {
            for at in self.starts[node]..self.starts[node + 1] {
                let next = &mut self.target_starts[self.sources[at as usize] as usize + 1];
                self.targets[*next as usize] = node as u32;
                *next += 1;
            }
        }
        self.target_starts.pop();
        Some(())
    }

    /// Sets the parents, and returns the order in which the nodes were found.
    fn search(
        &mut self,
        root: &impl Fn(u32) -> u8,
        steps: &mut Steps<'_, impl WorkLimit>,
    ) -> Option<Vec<u32>> {
        let len = self.nodes.len();
        self.parents = vec![NONE; len];
        self.parents[0] = 0;
        let mut order = Vec::with_capacity(len);
        order.push(0);
        let mut at = 1;
        for kind in [1, 2] {
            for number in 1..len {
                if root(self.nodes[number]) != kind || self.parents[number] != NONE {
                    continue;
                }
                self.parents[number] = 0;
                order.push(number as u32);
                // What one root of kind 2 leads to, another one does not need to be a root of.
                if kind == 2 {
                    self.spread(&mut order, &mut at, steps)?;
                }
            }
            self.spread(&mut order, &mut at, steps)?;
            if kind == 1 {
                self.first_of_second = order.len() as u32;
            }
        }
        let is_left = |&number: &u32| self.parents[number as usize] == NONE;
        order.extend((1..len as u32).filter(is_left));
        Some(order)
    }

    fn spread(
        &mut self,
        order: &mut Vec<u32>,
        at: &mut usize,
        steps: &mut Steps<'_, impl WorkLimit>,
    ) -> Option<()> {
        while let Some(&node) = order.get(*at) {
            *at += 1;
            let node = node as usize;
            for target in self.target_starts[node]..self.target_starts[node + 1] {
                steps.step()?;
                let target = self.targets[target as usize];
                if self.parents[target as usize] == NONE {
                    self.parents[target as usize] = node as u32;
                    order.push(target);
                }
            }
        }
        Some(())
    }

    /// Numbers the nodes in the order of the search: their numbers until now, in that order.
    fn renumber(&mut self, order: &[u32], steps: &mut Steps<'_, impl WorkLimit>) -> Option<()> {
        let mut new = vec![0; order.len()];
        for (number, &old) in (0..).zip(order) {
            new[old as usize] = number;
        }
        let renumbered = |old: u32| if old == NONE { NONE } else { new[old as usize] };
        self.parents = order
            .iter()
            .map(|&old| renumbered(self.parents[old as usize]))
            .collect();
        self.nodes = order.iter().map(|&old| self.nodes[old as usize]).collect();
        for (starts, ends) in [
            (&mut self.starts, &mut self.sources),
            (&mut self.target_starts, &mut self.targets),
        ] {
            let mut moved = Vec::with_capacity(ends.len());
            let mut first = Vec::with_capacity(starts.len());
            first.push(0);
            for &old in order {
                for at in starts[old as usize]..starts[old as usize + 1] {
                    steps.step()?;
                    moved.push(new[ends[at as usize] as usize]);
                }
                first.push(moved.len() as u32);
            }
            (*starts, *ends) = (first, moved);
        }
        self.numbers.set(&self.nodes);
        Some(())
    }

    /// Leaves out the references from what only roots of kind 2 lead to, to what roots of kind 1 lead to.
    pub fn forget_second(&mut self) {
        let first = self.first_of_second as usize;
        let is_kept = |from: usize, to: usize| from < first || to >= first;
        retain(&mut self.starts, &mut self.sources, |to, from| {
            is_kept(from, to)
        });
        retain(&mut self.target_starts, &mut self.targets, is_kept);
    }

    /// The number of nodes and one: numbers are below it.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// The number in the graph of a node.
    #[must_use]
    pub fn in_graph(&self, node: u32) -> u32 {
        self.nodes[node as usize]
    }

    /// The number here of a node of the graph; [`NONE`] if it is not in the part.
    #[must_use]
    pub fn number(&self, in_graph: u32) -> u32 {
        self.numbers.get(in_graph)
    }

    /// The node before a node on a shortest path from a root; 0 of a root, [`NONE`] if no root leads to the node.
    #[must_use]
    pub fn parent(&self, node: u32) -> u32 {
        self.parents[node as usize]
    }

    /// The nodes that refer to a node, once for each reference. None of a root of kind 1.
    #[must_use]
    pub fn sources(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.sources[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The nodes that a node refers to, once for each reference.
    #[must_use]
    pub fn targets(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.targets[self.target_starts[node] as usize..self.target_starts[node + 1] as usize]
    }

    /// Whether no root leads to a node.
    #[must_use]
    pub fn is_garbage(&self, node: u32) -> bool {
        self.parent(node) == NONE
    }
}

/// The number of each node of a graph that has one. Of ten million nodes, some thousands do: a bit for each node and the
/// number of bits before each word, a fifth of a byte together, say where the number is.
struct Numbers {
    bits: Vec<u64>,
    before: Vec<u32>,
    /// In the order of the graph.
    numbers: Vec<u32>,
}

impl Numbers {
    fn of(nodes: u32) -> Self {
        Self {
            bits: vec![0; nodes as usize / 64 + 1],
            before: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Adds a node, and returns whether it is new. Before [`Self::set`].
    fn add(&mut self, node: u32) -> bool {
        let (word, bit) = (node as usize / 64, 1 << (node % 64));
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }

    /// Numbers the nodes that were added, all of them, in an order.
    fn set(&mut self, nodes: &[u32]) {
        let mut count = 0;
        let before = self.bits.iter().map(|word| {
            let before = count;
            count += word.count_ones();
            before
        });
        self.before = before.collect();
        self.numbers = vec![0; nodes.len()];
        for (number, &node) in (0..).zip(nodes) {
            if let Some(place) = self.place(node) {
                self.numbers[place] = number;
            }
        }
    }

    /// [`NONE`] if the node has none.
    fn get(&self, node: u32) -> u32 {
        self.place(node).map_or(NONE, |place| self.numbers[place])
    }

    fn place(&self, node: u32) -> Option<usize> {
        let (word, bit) = (node as usize / 64, 1_u64 << (node % 64));
        let bits = self.bits.get(word).filter(|&bits| bits & bit != 0)?;
        Some((self.before[word] + (bits & (bit - 1)).count_ones()) as usize)
    }
}

/// Keeps some of the lists of nodes: `is_kept` is asked with the list's own node and the node in it.
fn retain(starts: &mut [u32], ends: &mut Vec<u32>, is_kept: impl Fn(usize, usize) -> bool) {
    let mut kept = 0;
    for node in 0..starts.len() - 1 {
        let list = starts[node] as usize..starts[node + 1] as usize;
        starts[node] = kept as u32;
        for at in list {
            if is_kept(node, ends[at] as usize) {
                ends[kept] = ends[at];
                kept += 1;
            }
        }
    }
    if let Some(last) = starts.last_mut() {
        *last = kept as u32;
    }
    ends.truncate(kept);
}
