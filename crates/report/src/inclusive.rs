//! Totals by function, line or file: of its own samples, and of the samples of everything that it called.
//!
//! A stack counts once for a function, even if the function occurs in it several times. So a node of
//! the stack tree adds the samples below it only if its function does not occur in its callers. One
//! walk through the tree checks this: the cost is the size of the tree, not samples times depth.
//!
//! A sum is large (a summary's has 232 bytes), and a file may have millions of stacks of which few have samples. So sums are
//! kept for the stacks that have samples ([`ByStack`]), and for those that at least two of them meet in ([`WithCallees`]):
//! for all others, a sum is the sum of the one stack below them. Such a table has four bytes for each stack.

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;

/// A sum over samples.
pub trait Sum: Copy + Default {
    /// Adds another one.
    fn add(&mut self, other: &Self);
}

/// No sum, in a table of places.
const NONE: u32 = u32::MAX;

/// Appends a sum. These are large, so a table has a quarter more room than it needs at most, not twice as much.
pub(crate) fn push<T>(sums: &mut Vec<T>, sum: T) {
    if sums.len() == sums.capacity() {
        sums.reserve_exact((sums.len() / 4).max(64));
    }
    sums.push(sum);
}

/// Sums by number (of a stack, of a type), of those that have samples.
#[derive(Clone, Debug)]
pub struct Sparse<T> {
    /// By number: the index of its sum, or [`NONE`].
    places: Vec<u32>,
    /// The numbers that have a sum.
    numbers: Vec<u32>,
    sums: Vec<T>,
}

/// Sums by stack: of the samples with exactly this stack. The numbers are [`NodeId`]s'.
pub type ByStack<T> = Sparse<T>;

impl<T: Copy + Default> Sparse<T> {
    /// A table without sums, for numbers below `len`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            places: vec![NONE; len],
            numbers: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// The sum of a number, to be added to.
    #[inline]
    pub fn of_mut(&mut self, number: usize) -> &mut T {
        let place = &mut self.places[number];
        if *place == NONE {
            *place = self.sums.len() as u32;
            self.numbers.push(number as u32);
            push(&mut self.sums, T::default());
        }
        &mut self.sums[*place as usize]
    }

    /// The sum of a number.
    #[must_use]
    pub fn of(&self, number: usize) -> T {
        let place = self.places[number] as usize;
        self.sums.get(place).copied().unwrap_or_default()
    }

    /// The numbers that have samples, with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.numbers.iter().copied().zip(&self.sums)
    }
}

/// Sums by stack: of it and of all that it called.
pub(crate) struct WithCallees<T> {
    /// By stack: the index of its sum, or [`NONE`]. Several stacks may have one sum.
    places: Vec<u32>,
    sums: Vec<T>,
}

impl<T: Sum> WithCallees<T> {
    pub(crate) fn of(profile: &Profile, stacks: ByStack<T>) -> Self {
        let ByStack {
            mut places,
            numbers: mut owners,
            mut sums,
        } = stacks;
        // Callers come before what they call.
        for at in (1..places.len()).rev() {
            let (place, caller) = (places[at] as usize, profile.stacks[at].parent);
            let Some(&below) = sums.get(place) else {
                continue;
            };
            let of_caller = places[caller.index()];
            match sums.get_mut(of_caller as usize) {
                // The caller has one sum with another callee until now.
                Some(&mut mut sum) if owners[of_caller as usize] != caller.0 => {
                    sum.add(&below);
                    places[caller.index()] = sums.len() as u32;
                    owners.push(caller.0);
                    push(&mut sums, sum);
                }
                Some(sum) => sum.add(&below),
                None => places[caller.index()] = place as u32,
            }
        }
        Self { places, sums }
    }

    /// The sum of a stack; `None` if neither it nor what it called has samples.
    pub(crate) fn get(&self, stack: NodeId) -> Option<&T> {
        self.sums.get(self.places[stack.index()] as usize)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KeyTotals<T> {
    /// Of stacks whose innermost frame has the key.
    pub(crate) own: T,
    /// Of stacks in which any frame has the key.
    pub(crate) total: T,
}

/// The totals of keys. Most keys of a deep stack have the sum of the one stack that they are in, so it is kept once.
pub(crate) struct ByKey<T> {
    /// By key: where its own sum and its total are, or [`NONE`].
    places: Vec<[u32; 2]>,
    own: Vec<T>,
    /// The sums of stacks, then the sums of keys.
    totals: Vec<T>,
}

impl<T: Sum> ByKey<T> {
    /// The totals of each key that has samples, from the totals of each stack. `keys[frame]` is the key of a frame; all
    /// keys are less than `len`. Samples without a stack count for no key.
    pub(crate) fn of(profile: &Profile, stacks: ByStack<T>, keys: &[u32], len: usize) -> Self {
        let key = |node: NodeId| keys[profile.stacks[node.index()].frame as usize] as usize;
        let mut places = vec![[NONE; 2]; len];
        let mut own = Vec::new();
        for (node, sum) in stacks.iter().filter(|(node, _)| *node > 0) {
            let place = &mut places[key(NodeId(node))][0];
            if *place == NONE {
                *place = own.len() as u32;
                push(&mut own, T::default());
            }
            own[*place as usize].add(sum);
        }
        let WithCallees {
            places: of_nodes,
            mut sums,
        } = WithCallees::of(profile, stacks);
        let shared = sums.len() as u32;
        let mut open = vec![0_u32; len];
        let children = Children::of(profile, |node| of_nodes[node.index()] != NONE);
        walk(&children, |step| match step {
            Step::Enter(node) => {
                let (key, of_node) = (key(node), of_nodes[node.index()]);
                if open[key] == 0 {
                    let place = &mut places[key][1];
                    let below = sums[of_node as usize];
                    match *place {
                        NONE => *place = of_node,
                        before if before < shared => {
                            let mut sum = sums[before as usize];
                            sum.add(&below);
                            *place = sums.len() as u32;
                            push(&mut sums, sum);
                        }
                        own => sums[own as usize].add(&below),
                    }
                }
                open[key] += 1;
            }
            Step::Leave(node) => open[key(node)] -= 1,
        });
        Self {
            places,
            own,
            totals: sums,
        }
    }

    /// The totals of a key; `None` if it has no samples.
    pub(crate) fn get(&self, key: usize) -> Option<KeyTotals<T>> {
        let [own, total] = self.places[key].map(|place| place as usize);
        Some(KeyTotals {
            own: self.own.get(own).copied().unwrap_or_default(),
            total: self.totals.get(total).copied()?,
        })
    }
}

#[derive(Clone, Copy)]
enum Step {
    Enter(NodeId),
    Leave(NodeId),
}

/// Visits all nodes except the root. Callees are visited between entering and leaving their caller.
fn walk(children: &Children, mut visit: impl FnMut(Step)) {
    let mut todo: Vec<Step> = children.of_node(NodeId::ROOT).map(Step::Enter).collect();
    while let Some(step) = todo.pop() {
        visit(step);
        if let Step::Enter(node) = step {
            todo.push(Step::Leave(node));
            todo.extend(children.of_node(node).map(Step::Enter));
        }
    }
}

/// The callees of every node, as lists: eight bytes for each node.
pub(crate) struct Children {
    /// By node: its first callee, or the root.
    first: Vec<NodeId>,
    /// By node: the next callee of its caller, or the root.
    next: Vec<NodeId>,
}

impl Children {
    /// Those that are chosen; with a node, its callers must be.
    pub(crate) fn of(profile: &Profile, is_chosen: impl Fn(NodeId) -> bool) -> Self {
        let mut first = vec![NodeId::ROOT; profile.stacks.len()];
        let mut next = first.clone();
        // From the end, so that lists are in the order of the nodes.
        for at in (1..profile.stacks.len()).rev() {
            // A NodeId can number all nodes.
            let node = NodeId(at as u32);
            if is_chosen(node) {
                let of_caller = &mut first[profile.stacks[at].parent.index()];
                next[at] = std::mem::replace(of_caller, node);
            }
        }
        Self { first, next }
    }

    pub(crate) fn of_node(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let chosen = |node: NodeId| (node != NodeId::ROOT).then_some(node);
        std::iter::successors(chosen(self.first[node.index()]), move |node| {
            chosen(self.next[node.index()])
        })
    }
}
