//! Names and numbers in the profile: threads, functions, types, labels, stack nodes.
//!
//! A definition is an event without a number: the file numbers definitions of one kind in the order in which they
//! appear. So the code that counts definitions must also write them: the recorder, under its lock. An interner belongs
//! to one [`Epoch`]; the next epoch has a new one.
//!
//! New definitions stay in two lists until an event refers to them. They then enter the ring before that event: first
//! definitions with text, then nodes, which refer to functions. Two slots of the ring hold any number of them, so a
//! stack with thousands of new frames is not lost. If the ring has no room even for two slots, the definitions stay in
//! the lists until it has: each number in use must reach the file.
//!
//! A program that makes new code all the time never stops to need new definitions. With `--keep`, an interner that has many
//! begins anew ([`Interner::begin_anew`]): names still in use are defined once more, under new numbers, and the writer drops
//! the old ones that no sample refers to. So a process that lives for weeks needs no more memory for them in the end.

mod epoch;
mod keyed;
mod labels;
mod nodes;
mod threads;

pub use epoch::{Epoch, PerEpoch};
pub use keyed::{Appearance, KeyMap, KnownType};
pub(crate) use labels::{Kept, OTHER};
pub(crate) use threads::KnownThread;
pub(crate) use threads::Naming;

use nthbyte_profile::event::{Node, NodeId};

use crate::ring::Bulky;
use keyed::{Functions, Types};
use labels::Labels;
use nodes::Nodes;
use threads::Threads;

/// The limit of new nodes outside the ring, of 16 bytes each.
const MOST_NEW_NODES: usize = 1 << 16;
/// The limit of new definitions with text outside the ring.
const MOST_NEW_BULKY: usize = 1 << 14;

/// With so many nodes, functions or types, or threads, an interner is full.
const FULL_OF_NODES: u32 = 1 << 16;
const FULL_OF_NAMES: u32 = 1 << 14;
const FULL_OF_THREADS: usize = 1 << 14;

/// The definitions of one epoch.
pub(crate) struct Interner {
    pub(crate) epoch: Epoch,
    /// The epoch of numbers of functions, types and nodes.
    pub(crate) definitions: Epoch,
    pub(crate) threads: Threads,
    pub(crate) functions: Functions,
    pub(crate) types: Types,
    pub(crate) labels: Labels,
    nodes: Nodes,
    /// Definitions that are not yet in the ring, in the order of their numbers.
    pub(crate) new_bulky: Vec<Bulky>,
    pub(crate) new_nodes: Vec<Node>,
}

impl Interner {
    /// An empty interner in a new epoch.
    pub(crate) fn begin() -> Self {
        let epoch = Epoch::begin();
        Self {
            epoch,
            definitions: epoch,
            threads: Threads::default(),
            functions: Functions::default(),
            types: Types::default(),
            labels: Labels::default(),
            nodes: Nodes::default(),
            new_bulky: Vec::new(),
            new_nodes: Vec::new(),
        }
    }

    /// The number of a node; a new node is defined first. `None` if there is no room.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn node(&mut self, node: Node) -> Option<NodeId> {
        if let Some(known) = self.nodes.find(&node) {
            return Some(known);
        }
        self.nodes.reserve()?;
        if self.new_nodes.len() >= MOST_NEW_NODES {
            return None;
        }
        self.new_nodes.try_reserve(1).ok()?;
        self.new_nodes.push(node);
        Some(self.nodes.define(&node))
    }

    /// Reserves space for one more definition with text. `None` if there is none.
    pub(crate) fn reserve_bulky(&mut self) -> Option<()> {
        if self.new_bulky.len() >= MOST_NEW_BULKY {
            return None;
        }
        self.new_bulky.try_reserve(1).ok()
    }

    /// Whether there are many definitions, of which most may not be in use any more.
    pub(crate) fn is_full(&self) -> bool {
        self.nodes.defined() >= FULL_OF_NODES
            || self.functions.defined() >= FULL_OF_NAMES
            || self.types.defined() >= FULL_OF_NAMES
            || self.is_full_of_threads()
    }

    pub(crate) fn is_full_of_threads(&self) -> bool {
        self.threads.defined() >= FULL_OF_THREADS
    }

    /// Forgets all functions, types and nodes, and the threads if they are many. Numbers go on, and what has an old one keeps it.
    pub(crate) fn begin_anew(&mut self) {
        self.definitions = Epoch::begin();
        self.functions.begin_anew();
        self.types.begin_anew();
        self.nodes.begin_anew();
        if self.is_full_of_threads() {
            self.threads.begin_anew();
        }
    }

    /// Removes the keys of all functions and types: the host has freed objects, and other objects may now have their
    /// addresses.
    pub(crate) fn forget_keys(&mut self) {
        self.functions.forget_keys();
        self.types.forget_keys();
    }
}
