//! The snapshot: what leads to samples, as far as it is Python's.
//!
//! An object of Python is several of RPython: a dictionary has a table and a strategy, an instance a map. So nodes are of three
//! [kinds](Seen); a node inside of another one counts for that. Names of references come from Python, which gives them for
//! the nodes that it can have, parents first. The rest has the name of its type.

use nthbyte_holders::{Dominators, Graph, NONE, Subgraph, Ways};
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::holders::{
    Chains, Held, Holder, Interner, Kind, Link, Reason, Snapshot, SnapshotNode, SnapshotOutcome,
};

use super::dump::flag;
use crate::types::Types;

/// What Python sees of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Nothing: it is inside of another one.
    Inside = 0,
    /// An object.
    Object = 1,
    /// A root, whatever it is.
    Root = 2,
}

/// A node on a way to samples.
struct OnWay {
    address: usize,
    /// The node before it among these, and its dominator: their numbers plus 1; 0 for none.
    parent: u32,
    dominator: u32,
    seen: Seen,
    of_interpreter: bool,
    /// The name of its type.
    name: String,
}

/// A node that was drawn, or is the object of the recording's sample, or both.
#[derive(Clone, Copy)]
pub struct Sought {
    pub node: u32,
    pub is_drawn: bool,
    pub recorded: Option<SampleId>,
}

/// Such a node.
struct Drawn {
    /// The number of its node on a way plus 1; 0 if no root leads to it.
    node: u32,
    what: String,
    size: u64,
    is_drawn: bool,
    recorded: Option<SampleId>,
}

/// What the graph says, before references have names.
pub struct Unnamed {
    objects: u64,
    period: u64,
    outcome: SnapshotOutcome,
    on_way: Vec<OnWay>,
    pairs: Vec<(u32, u32)>,
    drawn: Vec<Drawn>,
}

impl Unnamed {
    /// # Safety
    /// Each node of the graph with an even address is an object of this process.
    #[allow(clippy::too_many_arguments)] // what was found, step by step
    pub unsafe fn new(
        graph: &Graph,
        sizes: &[u32],
        part: Subgraph,
        tree: Option<Dominators>,
        ways: Ways,
        drawn: Vec<Sought>,
        period: u64,
        outcome: SnapshotOutcome,
        types: &mut Types,
    ) -> Self {
        let mut numbers = vec![0_u32; part.len() as usize];
        let mut on_way: Vec<OnWay> = Vec::new();
        let of = |numbers: &[u32], node: u32| match node {
            NONE => 0,
            node => numbers[node as usize],
        };
        for node in (1..part.len()).filter(|&node| ways.is_on[node as usize]) {
            let in_graph = part.in_graph(node);
            let (address, flags) = (graph.address(in_graph), graph.flags(in_graph));
            let parent = of(&numbers, part.parent(node));
            let dominator = match &tree {
                Some(tree) => of(&numbers, tree.of(node)),
                None => parent,
            };
            let is_thread = flags & flag::THREAD != 0;
            let (name, is_object) = match is_thread || address % 2 == 1 {
                // A thread, or a step on the way to its frames.
                true => (String::new(), is_thread),
                // SAFETY: by the caller.
                false => unsafe { types.name_of(address) },
            };
            let is_inner_frame = || {
                let above = (parent as usize).checked_sub(1).map(|at| &on_way[at]);
                name == "frame" && above.is_some_and(|above| is_suspended(&above.name))
            };
            let seen = if flags & flag::ROOT != 0 || parent == 0 {
                Seen::Root
            } else if is_object && !is_inner_frame() {
                Seen::Object
            } else {
                Seen::Inside
            };
            on_way.push(OnWay {
                address,
                parent,
                dominator,
                seen,
                of_interpreter: flags & flag::ROOT == 0 && parent == 0,
                name,
            });
            numbers[node as usize] = on_way.len() as u32;
        }
        // What several hold, of which none holds the other, has a node of its own.
        for node in &mut on_way {
            if node.seen == Seen::Inside && node.dominator == 0 {
                node.seen = Seen::Object;
            }
        }
        let drawn = drawn.into_iter().map(|taken| {
            let node = taken.node;
            let address = graph.address(node);
            Drawn {
                node: match part.number(node) {
                    NONE => 0,
                    number if part.is_garbage(number) => 0,
                    number => numbers[number as usize],
                },
                // SAFETY: by the caller.
                what: unsafe { types.name_of(address) }.0,
                size: sizes[node as usize].into(),
                is_drawn: taken.is_drawn,
                recorded: taken.recorded,
            }
        });
        Self {
            objects: u64::from(graph.len()) - 1,
            period,
            outcome,
            drawn: drawn.collect(),
            pairs: ways
                .pairs
                .into_iter()
                .map(|(node, other)| (of(&numbers, node), of(&numbers, other)))
                .collect(),
            on_way,
        }
    }

    pub const fn len(&self) -> usize {
        self.on_way.len()
    }

    /// For each node: its address, the number of its parent plus 1, and what Python sees of it ([`Seen`]).
    pub fn nodes(&self, into: &mut [u64]) {
        for (of, node) in into.chunks_exact_mut(3).zip(&self.on_way) {
            of.copy_from_slice(&[node.address as u64, node.parent.into(), node.seen as u64]);
        }
    }

    /// The snapshot, but for the time that it took.
    pub fn snapshot(self, named: &[Named<'_>]) -> Snapshot {
        let mut names = Interner::default();
        let mut by_number: Vec<Option<&Named<'_>>> = vec![None; self.on_way.len()];
        for one in named {
            if let Some(place) = by_number.get_mut(one.number) {
                *place = Some(one);
            }
        }
        // In each of the trees, the node that a node counts for: its own number in the snapshot, or the number of the one
        // above.
        let (mut shown, mut held) = (vec![0_u32; self.len() + 1], vec![0_u32; self.len() + 1]);
        let mut chains = Chains::default();
        for (at, node) in self.on_way.iter().enumerate() {
            let parent = shown[node.parent as usize];
            let dominator = held[node.dominator as usize];
            if node.seen == Seen::Inside {
                (shown[at + 1], held[at + 1]) = (parent, dominator);
                continue;
            }
            let is_root = node.parent == 0;
            let kept = match by_number[at] {
                Some(one) => SnapshotNode {
                    dominator,
                    parent,
                    kind: one.kind,
                    held_by_c: node.of_interpreter,
                    name: names.intern(one.name),
                    link: if is_root { Link::Unknown } else { one.link },
                    reference: names.intern(if is_root { "" } else { one.reference }),
                    len: one.len,
                    chain: 1,
                },
                None => SnapshotNode {
                    dominator,
                    parent,
                    kind: Kind::Object,
                    held_by_c: node.of_interpreter,
                    name: names.intern(&node.name),
                    link: Link::Unknown,
                    reference: 0,
                    len: None,
                    chain: 1,
                },
            };
            let number = chains.push(kept);
            (shown[at + 1], held[at + 1]) = (number, number);
        }
        let mut others: Vec<(u32, u32)> = self
            .pairs
            .iter()
            .filter(|&&(of, _)| of > 0 && self.on_way[of as usize - 1].seen != Seen::Inside)
            .map(|&(of, other)| (shown[of as usize], shown[other as usize]))
            .filter(|&(of, other)| of != other && of != 0 && other != 0)
            .collect();
        others.sort_unstable();
        others.dedup();
        let samples = self.drawn.iter().map(|drawn| Held {
            by: match drawn.node {
                0 => Holder::Garbage,
                node => match held[node as usize] {
                    0 => Holder::NotFound,
                    number => Holder::Node(number),
                },
            },
            what: names.intern(&drawn.what),
            size: drawn.size,
            is_drawn: drawn.is_drawn,
            counts: drawn.is_drawn,
            recorded: drawn.recorded,
        });
        let samples = samples.collect();
        Snapshot {
            outcome: self.outcome,
            objects: self.objects,
            period: self.period,
            nodes: chains.finish(),
            others,
            samples,
            texts: names.finish(),
            ..Snapshot::empty(Nanos(0), Reason::End)
        }
    }
}

/// Whether the frame of an object is its own call's.
fn is_suspended(name: &str) -> bool {
    matches!(name, "generator" | "coroutine" | "async_generator") || name == "Coroutine"
}

/// What Python says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    number: usize,
    kind: Kind,
    link: Link,
    len: Option<u32>,
    name: &'a str,
    reference: &'a str,
}

impl<'a> Named<'a> {
    /// Lines of: the node's number, its kind, how its parent refers to it, the number of its elements or nothing, its name, and
    /// the reference's name; with tabs between them. Other lines are left out.
    pub fn read(text: &'a str) -> Vec<Self> {
        text.lines().filter_map(Self::line).collect()
    }

    fn line(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(6, '\t');
        Some(Self {
            number: parts.next()?.parse().ok()?,
            kind: Kind::of_number(parts.next()?.parse().ok()?)?,
            link: Link::of_number(parts.next()?.parse().ok()?)?,
            len: parts.next()?.parse().ok(),
            name: parts.next()?,
            reference: parts.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(parent: u32, seen: Seen, name: &str) -> OnWay {
        OnWay {
            address: 0,
            parent,
            dominator: parent,
            seen,
            of_interpreter: false,
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_is_inside_counts_for_what_is_around_it() {
        let found = Unnamed {
            objects: 4,
            period: 100,
            outcome: SnapshotOutcome::Complete,
            on_way: vec![
                node(0, Seen::Root, "module dict"),
                node(1, Seen::Inside, "dict or set table"),
                node(2, Seen::Object, "list"),
                node(3, Seen::Inside, "list items"),
            ],
            pairs: vec![(3, 2), (4, 1)],
            drawn: [(4, "list items"), (2, "dict or set table"), (0, "str")]
                .map(|(node, what)| Drawn {
                    node,
                    what: what.to_owned(),
                    size: 64,
                    is_drawn: node != 2,
                    recorded: (node == 2).then_some(SampleId(7)),
                })
                .into(),
        };
        let mut words = [9; 12];
        found.nodes(&mut words);
        assert_eq!(words[6..9], [0, 2, 1]);
        let named = Named::read("0\t1\t0\t\tapp\t\n2\t0\t1\t7\tlist\tcache\nno line\n");
        let snapshot = found.snapshot(&named);
        let text = |number| snapshot.texts.get(number);
        let [module, list] = snapshot.nodes[..] else {
            panic!("{:?}", snapshot.nodes);
        };
        assert_eq!((module.kind, text(module.name)), (Kind::Module, "app"));
        assert_eq!((list.parent, list.dominator, list.len), (1, 1, Some(7)));
        assert_eq!(
            (list.link, text(list.reference)),
            (Link::Attribute, "cache")
        );
        let by: Vec<_> = snapshot.samples.iter().map(|held| held.by).collect();
        assert_eq!(by, [Holder::Node(2), Holder::Node(1), Holder::Garbage]);
        // What was not drawn adds nothing to amounts.
        let recorded = snapshot.samples.iter();
        let recorded: Vec<_> = recorded.map(|of| (of.counts, of.recorded)).collect();
        let counts = (true, None);
        assert_eq!(recorded, [counts, (false, Some(SampleId(7))), counts]);
        assert_eq!(snapshot.others, [(2, 1)]);
    }
}
