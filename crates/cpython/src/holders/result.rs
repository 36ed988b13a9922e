//! What a walk has found, as a snapshot: the nodes on the way to samples, with their names.

use nthbyte_holders::{Dominators, NONE, Subgraph, Ways};
use nthbyte_profile::event::Nanos;
use nthbyte_profile::holders::{
    Chains, Held, Holder, Interner, Kind, Link, Reason, Snapshot, SnapshotNode, SnapshotOutcome,
};

use super::blocks::Wanted;
use super::links::{Above, Asked, FRAME_OF_OBJECT, FUNCTION_CODE, Links};
use super::text;
use super::types::{is, word};
use super::walk::{Walk, flag};
use crate::layout::type_flags;

/// A node on the way into the snapshot.
#[derive(Clone, Default)]
struct Kept {
    /// Its number in the snapshot: its own, or its chain's. 0 if it is not kept.
    number: u32,
    link: Option<Link>,
    name: String,
}

pub struct Naming<'a, 'w> {
    pub walk: &'a mut Walk<'w>,
    pub part: &'a Subgraph,
    /// `None` if there was no time.
    pub dominators: Option<&'a Dominators>,
    pub with_keys: bool,
    pub names: Interner,
}

impl Naming<'_, '_> {
    /// The snapshot, but for the time that it took.
    ///
    /// # Safety
    /// As for the walk.
    pub unsafe fn snapshot(mut self, outcome: SnapshotOutcome) -> Snapshot {
        let graph = &self.walk.graph;
        let Ways { is_on, pairs } = Ways::of(
            self.part,
            self.dominators,
            self.walk.blocks.all.iter().map(|block| self.holder(block)),
            |way| graph.flags(self.part.in_graph(way)) & flag::THREAD != 0,
        );
        let kept = |is_on| Kept {
            number: if is_on { NONE } else { 0 },
            ..Kept::default()
        };
        let mut kept: Vec<Kept> = is_on.into_iter().map(kept).collect();
        // SAFETY: by the caller.
        unsafe {
            self.link(&mut kept);
            let nodes = self.nodes(&mut kept);
            let mut others: Vec<(u32, u32)> = pairs
                .into_iter()
                .map(|(of, other): (u32, u32)| {
                    (kept[of as usize].number, kept[other as usize].number)
                })
                .filter(|&(of, other)| of != other && of != 0 && other != 0)
                .collect();
            others.sort_unstable();
            others.dedup();
            let samples = self.samples(&kept);
            Snapshot {
                outcome,
                objects: u64::from(self.walk.graph.len()) - 1,
                period: self.walk.blocks.period,
                texts: self.names.finish(),
                nodes,
                others,
                samples,
                ..Snapshot::empty(Nanos(0), Reason::End)
            }
        }
    }

    fn dominator(&self, node: u32) -> u32 {
        match self.dominators {
            Some(dominators) => dominators.of(node),
            None => self.part.parent(node),
        }
    }

    /// The node that holds a block: it is the object, or has its address. [`NONE`] if there is none.
    fn holder(&self, block: &Wanted) -> u32 {
        let node = if block.object != 0 {
            block.object
        } else {
            block.owner
        };
        match node {
            0 => NONE,
            node => self.part.number(node),
        }
    }

    /// Names the reference of each kept node's parent to it.
    unsafe fn link(&mut self, kept: &mut [Kept]) {
        let is_kept = |&node: &u32| kept[node as usize].number != 0;
        let mut children: Vec<(u32, usize, u32)> = (1..self.part.len())
            .filter(is_kept)
            .map(|node| {
                let address = self.walk.graph.address(self.part.in_graph(node));
                (self.part.parent(node), address, node)
            })
            .collect();
        // Parents come before their children, so how something refers to a parent is known by then.
        children.sort_unstable();
        for family in children.chunk_by(|one, other| one.0 == other.0) {
            let parent = family[0].0;
            if parent == 0 {
                continue;
            }
            let asked = family.iter().map(|&(_, address, _)| Asked {
                address,
                link: Link::Unknown,
                name: String::new(),
            });
            let asked = asked.collect();
            let link = kept[parent as usize].link.unwrap_or(Link::Unknown);
            // SAFETY: by the caller.
            let found = unsafe { self.found(parent, link, asked) };
            for (asked, &(_, _, node)) in found.into_iter().zip(family) {
                kept[node as usize].link = Some(asked.link);
                kept[node as usize].name = asked.name;
            }
        }
    }

    unsafe fn found(&mut self, parent: u32, link: Link, asked: Vec<Asked>) -> Vec<Asked> {
        let above = self.part.parent(parent);
        let in_graph = self.part.in_graph(parent);
        // SAFETY: by the caller.
        unsafe {
            let above = match above {
                0 | NONE => Above {
                    kind: Kind::Object,
                    address: 0,
                    link,
                },
                above => {
                    let above = self.part.in_graph(above);
                    Above {
                        kind: self.kind(above).0,
                        address: self.walk.graph.address(above),
                        link,
                    }
                }
            };
            let mut links = Links {
                walk: self.walk,
                with_keys: self.with_keys,
                asked,
            };
            links.of_node(in_graph, above);
            links.asked
        }
    }

    /// What a node is, and its name.
    unsafe fn kind(&mut self, node: u32) -> (Kind, String) {
        let (address, flags) = (self.walk.graph.address(node), self.walk.graph.flags(node));
        let layout = *self.walk.layout;
        let functions = *self.walk.functions;
        // SAFETY: by the caller.
        unsafe {
            if flags & flag::THREAD != 0 {
                let number = word(address, layout.native_thread_id);
                return (Kind::Thread, number.to_string());
            }
            if flags & flag::FRAME != 0 {
                let code = self.walk.code_of(address & !1);
                return (Kind::Frame, self.qualified(code));
            }
            if flags & flag::MODULE_DICT != 0 {
                let names = &self.walk.module_names;
                let found = names.partition_point(|&(dict, _)| dict < address);
                let name = names.get(found).map_or(0, |&(_, name)| name);
                return (Kind::Module, self.text(name));
            }
            let of = self.walk.types.of(address);
            if of.bits & is::CLASS != 0 {
                return (Kind::Class, text::of_type(&layout, address));
            }
            if of.address == functions.function_type {
                let code = word(address, FUNCTION_CODE);
                return (Kind::Function, self.qualified(code));
            }
            if functions.generator_types.contains(&of.address) {
                let frame = address + of.basic_size - layout.frame_locals;
                let code = word(frame, layout.frame_code) & !layout.features.reference_tags;
                return (Kind::Generator, self.qualified(code));
            }
            if of.address == functions.frame_type {
                let code = self.walk.code_of(word(address, FRAME_OF_OBJECT));
                return (Kind::Frame, self.qualified(code));
            }
            if address == functions.modules {
                return (Kind::Module, "sys.modules".to_owned());
            }
            (Kind::Object, text::of_type(&layout, of.address))
        }
    }

    unsafe fn text(&mut self, text: usize) -> String {
        if text == 0 {
            return String::new();
        }
        // SAFETY: by the caller, it is an object.
        unsafe {
            let flags = self.walk.types.of(text).flags;
            text::of_str(self.walk.layout, text, flags)
        }
    }

    /// The qualified name of a code object.
    unsafe fn qualified(&mut self, code: usize) -> String {
        if code == 0 {
            return String::new();
        }
        // SAFETY: by the caller.
        unsafe {
            if word(code, 8) != self.walk.functions.code_type {
                return String::new();
            }
            self.text(word(code, self.walk.layout.code_qualname))
        }
    }

    /// The number of elements of a container; of a running call, how many its outermost loop has taken.
    unsafe fn elements(&mut self, node: u32) -> Option<u32> {
        let flags = self.walk.graph.flags(node);
        if flags & (flag::THREAD | flag::LEAF) != 0 {
            return None;
        }
        let object = self.walk.graph.address(node);
        if flags & flag::FRAME != 0 {
            // SAFETY: by the caller.
            return unsafe { self.walk.taken(object & !1) };
        }
        const SET_USED: usize = 24;
        // SAFETY: by the caller.
        let count = unsafe {
            let of = self.walk.types.of(object);
            if of.flags
                & (type_flags::DICT_SUBCLASS
                    | type_flags::LIST_SUBCLASS
                    | type_flags::TUPLE_SUBCLASS)
                != 0
                || of.bits & is::DEQUE != 0
            {
                word(object, 16)
            } else if self.walk.functions.set_types.contains(&of.address) {
                word(object, SET_USED)
            } else {
                return None;
            }
        };
        u32::try_from(count).ok().filter(|&count| count != u32::MAX)
    }

    /// The nodes of the snapshot; chains are folded.
    unsafe fn nodes(&mut self, kept: &mut [Kept]) -> Vec<SnapshotNode> {
        let mut nodes = Chains::default();
        for at in 1..self.part.len() {
            if kept[at as usize].number == 0 {
                continue;
            }
            let (parent, dominator) = (self.part.parent(at), self.dominator(at));
            let in_graph = self.part.in_graph(at);
            // SAFETY: by the caller.
            let (kind, name) = unsafe { self.kind(in_graph) };
            let name = self.names.intern(&name);
            let link = kept[at as usize].link.unwrap_or(Link::Unknown);
            let own_name = std::mem::take(&mut kept[at as usize].name);
            let reference = self.names.intern(&own_name);
            let above = |of: u32| {
                if of == NONE {
                    0
                } else {
                    kept[of as usize].number
                }
            };
            let (parent_number, dominator_number) = (above(parent), above(dominator));
            // SAFETY: by the caller.
            let len = unsafe { self.elements(in_graph) };
            kept[at as usize].number = nodes.push(SnapshotNode {
                dominator: dominator_number,
                parent: parent_number,
                kind,
                held_by_c: parent == 0 && self.walk.root_kind(in_graph) == 2,
                name,
                link,
                reference,
                len,
                chain: 1,
            });
        }
        nodes.finish()
    }

    unsafe fn samples(&mut self, kept: &[Kept]) -> Vec<Held> {
        let blocks = std::mem::take(&mut self.walk.blocks.all);
        let held = blocks.iter().map(|block| {
            let holder = self.holder(block);
            // SAFETY: by the caller.
            let what = unsafe { self.what(block) };
            Held {
                by: match holder {
                    NONE => Holder::NotFound,
                    node if self.part.is_garbage(node) => Holder::Garbage,
                    node => match kept[node as usize].number {
                        0 | NONE => Holder::NotFound,
                        number => Holder::Node(number),
                    },
                },
                what: self.names.intern(&what),
                size: block.size.max(1) as u64,
                is_drawn: block.is_drawn,
                counts: block.is_drawn || block.size == 0,
                recorded: block.recorded,
            }
        });
        held.collect()
    }

    /// What a block is: the type of its object, or which memory of its owner.
    unsafe fn what(&mut self, block: &Wanted) -> String {
        let layout = *self.walk.layout;
        let node = if block.object != 0 {
            block.object
        } else {
            block.owner
        };
        let flags = self.walk.graph.flags(node);
        if node == 0 || flags & (flag::FRAME | flag::THREAD) != 0 {
            return String::new();
        }
        // SAFETY: by the caller, it is an object.
        unsafe {
            let of = self.walk.types.of(self.walk.graph.address(node));
            if block.object != 0 {
                return text::of_type(&layout, of.address);
            }
            let at = block.at;
            let is_at = |offset: usize| at == offset as i32;
            let what = if at < 0 {
                "attribute values"
            } else if of.flags & type_flags::LIST_SUBCLASS != 0
                && is_at(layout.containers.list_items)
            {
                "list items"
            } else if of.flags & type_flags::DICT_SUBCLASS != 0 && is_at(layout.dict_keys) {
                "dict keys"
            } else if of.flags & type_flags::DICT_SUBCLASS != 0 && is_at(layout.dict_keys + 8) {
                "attribute values"
            } else if self.walk.functions.set_types.contains(&of.address) {
                "set table"
            } else {
                let name = text::of_type(&layout, of.address);
                return format!("memory of {name}");
            };
            what.to_owned()
        }
    }
}
