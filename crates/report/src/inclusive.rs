//! Totals by function, line or file: of its own samples, and of those of everything that it called.
//!
//! A stack counts once for a function, even if the function occurs in it several times. So a node of
//! the stack tree adds the samples below it only if its function does not occur in its callers. One
//! walk through the tree checks this: the cost is the size of the tree, not samples times depth.

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;

/// A sum over samples.
pub(crate) trait Sum: Copy + Default {
    fn add(&mut self, other: &Self);
}

/// The totals of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KeyTotals<T> {
    /// Of stacks whose innermost frame has the key.
    pub(crate) own: T,
    /// Of stacks in which any frame has the key.
    pub(crate) total: T,
}

/// The totals of each node of the stack tree, including the nodes below it.
pub(crate) fn with_callees<T: Sum>(profile: &Profile, stacks: &[T]) -> Vec<T> {
    let mut nodes = stacks.to_vec();
    // Parents come before their children.
    for at in (1..nodes.len()).rev() {
        let below = nodes[at];
        nodes[profile.stacks[at].parent.index()].add(&below);
    }
    nodes
}

/// The totals of each key, from the totals of each stack. `keys[frame]` is the key of a frame; all keys are less than
/// `len`. Samples without a stack count for no key.
pub(crate) fn by_key<T: Sum>(
    profile: &Profile,
    stacks: &[T],
    keys: &[u32],
    len: usize,
) -> Vec<KeyTotals<T>> {
    let key = |node: usize| keys[profile.stacks[node].frame as usize] as usize;
    let none = KeyTotals {
        own: T::default(),
        total: T::default(),
    };
    let mut totals = vec![none; len];
    for (at, own) in stacks.iter().enumerate().skip(1) {
        totals[key(at)].own.add(own);
    }
    let nodes = with_callees(profile, stacks);
    let mut open = vec![0_u32; len];
    walk(profile, |step| match step {
        Step::Enter(node) => {
            let key = key(node.index());
            if open[key] == 0 {
                totals[key].total.add(&nodes[node.index()]);
            }
            open[key] += 1;
        }
        Step::Leave(node) => open[key(node.index())] -= 1,
    });
    totals
}

#[derive(Clone, Copy)]
enum Step {
    Enter(NodeId),
    Leave(NodeId),
}

/// Visits all nodes except the root. Callees are visited between entering and leaving their caller.
fn walk(profile: &Profile, mut visit: impl FnMut(Step)) {
    let children = Children::of(profile);
    let mut todo: Vec<Step> = children.of_node(NodeId::ROOT).map(Step::Enter).collect();
    while let Some(step) = todo.pop() {
        visit(step);
        if let Step::Enter(node) = step {
            todo.push(Step::Leave(node));
            todo.extend(children.of_node(node).map(Step::Enter));
        }
    }
}

/// The callees of every node.
pub(crate) struct Children {
    /// `nodes[starts[n]..starts[n + 1]]` are those of node `n`.
    starts: Vec<u32>,
    nodes: Vec<NodeId>,
}

impl Children {
    pub(crate) fn of(profile: &Profile) -> Self {
        let len = profile.stacks.len();
        let mut starts = vec![0_u32; len + 1];
        for node in &profile.stacks[1..] {
            starts[node.parent.index() + 1] += 1;
        }
        for at in 0..len {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut nodes = vec![NodeId::ROOT; len - 1];
        for (at, node) in profile.stacks.iter().enumerate().skip(1) {
            let place = &mut next[node.parent.index()];
            // A NodeId can number all nodes.
            nodes[*place as usize] = NodeId(at as u32);
            *place += 1;
        }
        Self { starts, nodes }
    }

    pub(crate) fn of_node(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let (start, end) = (self.starts[node.index()], self.starts[node.index() + 1]);
        self.nodes[start as usize..end as usize].iter().copied()
    }
}
