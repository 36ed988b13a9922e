//! How one gets to a node, as a person would write it: `registry._entries`, `class View.recent`, `MainThread: main, local tasks`.

use nthbyte_profile::Profile;
use nthbyte_profile::holders::{Kind, Link, Snapshot, SnapshotNode};

use crate::text;

/// Steps of a path that are shown.
const MOST_STEPS: usize = 12;
/// Nodes on a path that are looked at: a file may have any number.
const LONGEST: usize = 256;
/// In a container with more elements, one of them says nothing about the others.
const MANY: u32 = 20;
/// The main module: `multiprocessing` gives it a second name when it is imported.
const MAIN: [&str; 2] = ["__main__", "__mp_main__"];

/// Names of a snapshot's nodes.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    pub profile: &'a Profile,
    pub snapshot: &'a Snapshot,
}

impl Names<'_> {
    /// The shortest path to a node from its root, or from below a node on the way.
    pub fn path(&self, node: u32, below: u32) -> String {
        let of = self.snapshot.node(node);
        if of.parent == 0 {
            return self.root(of, true);
        }
        let mut steps = Vec::new();
        let mut at = node;
        while at != 0 && at != below && steps.len() < LONGEST {
            steps.push(at);
            at = self.snapshot.node(at).parent;
        }
        let is_cut = steps.len() > MOST_STEPS;
        steps.truncate(MOST_STEPS);
        let mut path = String::new();
        if is_cut {
            path.push('…');
        }
        for at in steps.into_iter().rev() {
            let step = self.step(at);
            if step.starts_with(", ") && (path.is_empty() || path.ends_with(": ")) {
                path.push_str(&step[2..]);
            } else if path.is_empty() && step.starts_with('.') {
                path.push_str(&step[1..]);
            } else {
                path.push_str(&step);
            }
        }
        match path.is_empty() {
            true => self.root(of, true),
            false => path,
        }
    }

    /// The same for nodes that are shown as one: entries of a large dictionary are alike, whatever their keys are.
    pub fn group_path(&self, node: u32, dominator: u32) -> String {
        let of = self.snapshot.node(node);
        let is_large = |parent: u32| self.snapshot.node(parent).len.is_some_and(|len| len > MANY);
        if of.link != Link::Key || of.parent == 0 || !is_large(of.parent) {
            return self.path(node, dominator);
        }
        match of.parent == dominator {
            true => "[*]".to_owned(),
            false => format!("{}[*]", self.path(of.parent, dominator)),
        }
    }

    /// How its parent refers to a node, or what the root is. Empty for what says nothing: a dictionary of attributes, a cell.
    pub fn step(&self, number: u32) -> String {
        let node = self.snapshot.node(number);
        if node.parent == 0 {
            return self.root(node, false);
        }
        let name = text::clean(self.snapshot.texts.get(node.reference));
        let parent = self.snapshot.node(node.parent);
        match node.link {
            Link::Attribute if name.is_empty() => String::new(),
            Link::Attribute => format!(".{name}"),
            Link::Key if name.is_empty() => "[*]".to_owned(),
            Link::Key => format!("[{name}]"),
            Link::Element if name.is_empty() || parent.len.is_none_or(|len| len > MANY) => {
                "[*]".to_owned()
            }
            Link::Element => format!("[{name}]"),
            Link::Local if name.is_empty() => String::new(),
            Link::Local => format!(", local {name}"),
            Link::Closure if name.is_empty() => String::new(),
            Link::Closure => format!(", closure {name}"),
            Link::Dictionary => String::new(),
            Link::Class => ", class".to_owned(),
            Link::Call => self.name(node),
            Link::KeyItself => ", key".to_owned(),
            Link::Unknown => match node.kind {
                Kind::Frame => format!(", frame {}", self.name(node)),
                // What belongs to an object of C: the dictionary of an `lru_cache`.
                _ => String::new(),
            },
        }
    }

    /// A root, alone or before what it leads to. The main module is where a user begins, so its name is left out there.
    fn root(&self, node: &SnapshotNode, is_alone: bool) -> String {
        let name = self.name(node);
        match node.kind {
            Kind::Module if !is_alone && MAIN.contains(&&*name) => String::new(),
            Kind::Module | Kind::Generator | Kind::Frame | Kind::Function => name,
            Kind::Class => format!("class {name}"),
            Kind::Thread if !is_alone => format!("{name}: "),
            Kind::Object if node.held_by_c => format!("{name} (held by C code)"),
            Kind::Thread | Kind::Object => name,
        }
    }

    /// The name of a node. For a thread, the one that the recording knows.
    pub fn name(&self, node: &SnapshotNode) -> String {
        let name = self.snapshot.texts.get(node.name);
        if node.kind == Kind::Thread {
            let number = name.parse::<u64>().ok();
            let mut threads = self.profile.threads.iter();
            let known = threads.find(|thread| Some(thread.os_id) == number);
            if let Some(known) = known.filter(|known| !known.name.is_empty()) {
                return text::clean(&known.name);
            }
            return format!("thread {}", text::clean(name));
        }
        text::clean(name)
    }

    /// What a node is: its type, or the function.
    pub fn what(&self, node: &SnapshotNode) -> String {
        let name = self.name(node);
        match node.kind {
            Kind::Object => name,
            Kind::Module => format!("module {name}"),
            Kind::Class => format!("class {name}"),
            Kind::Function => format!("function {name}"),
            Kind::Frame => format!("frame of {name}"),
            Kind::Generator => format!("generator {name}"),
            Kind::Thread => "thread".to_owned(),
        }
    }
}
