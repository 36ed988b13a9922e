//! What the session has defined, of which each file gets what it refers to.

use std::io;

use nthbyte_profile::Writer;
use nthbyte_profile::event::{CodeId, Event, Label, LabelSetId, Node, NodeId, ThreadId, TypeId};

use super::live::Live;
use crate::output::Output;
use crate::ring::{Bulky, text};

/// The present file.
pub(super) type File = Writer<Output>;

/// Not defined in the present file.
const NOT_HERE: u32 = u32::MAX;

/// A definition.
struct Entry<T> {
    /// Its number in the session, and in the present file.
    number: u32,
    here: u32,
    item: T,
}

/// Definitions of one kind, in the order of their numbers. Some are dropped: see [`Table::drop_unused`].
struct Table<T> {
    /// The number of the first one, in the session and in a file.
    first: u32,
    all: Vec<Entry<T>>,
    /// The session's number of the next one.
    end: u32,
    /// The file's number of the next one.
    next: u32,
    /// What was defined before this one is not referred to, but by samples that are alive; and what comes from there on was
    /// defined before the one after.
    old: u32,
    renewed: u32,
}

impl<T> Table<T> {
    const fn starting_at(first: u32) -> Self {
        Self {
            first,
            all: Vec::new(),
            end: first,
            next: first,
            old: first,
            renewed: first,
        }
    }

    fn push(&mut self, item: Option<T>) -> io::Result<()> {
        let item = item.ok_or(io::ErrorKind::OutOfMemory)?;
        self.all.try_reserve(1)?;
        self.all.push(Entry {
            number: self.end,
            here: NOT_HERE,
            item,
        });
        self.end += 1;
        Ok(())
    }

    /// Where it is. At the end, none is missing.
    fn at(&self, number: u32) -> Option<usize> {
        let behind = self.end.checked_sub(number)? as usize;
        match self.all.len().checked_sub(behind) {
            Some(at) if self.all.get(at)?.number == number => Some(at),
            _ => self
                .all
                .binary_search_by_key(&number, |one| one.number)
                .ok(),
        }
    }

    fn get(&self, number: u32) -> Option<&T> {
        Some(&self.all[self.at(number)?].item)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let at = self.at(number)?;
        Some(&mut self.all[at].item)
    }

    /// The number in the file; `None` if it has none yet.
    fn here(&self, number: u32) -> Option<u32> {
        let here = self.all[self.at(number)?].here;
        (here != NOT_HERE).then_some(here)
    }

    fn define(&mut self, number: u32) -> u32 {
        let here = self.next;
        if let Some(at) = self.at(number) {
            self.all[at].here = here;
        }
        self.next += 1;
        here
    }

    fn begin_file(&mut self) {
        for one in &mut self.all {
            one.here = NOT_HERE;
        }
        self.next = self.first;
    }

    /// What was defined until now is defined anew if it is needed. Events that are under way may still refer to it, so it is the
    /// generation before that is old now.
    const fn renew(&mut self) {
        self.old = self.renewed;
        self.renewed = self.end;
    }

    /// Those that are not old are in use.
    fn in_use(&self) -> Vec<bool> {
        self.all.iter().map(|one| one.number >= self.old).collect()
    }

    fn drop_unused(&mut self, in_use: &[bool]) {
        let mut in_use = in_use.iter();
        self.all.retain(|_| in_use.next().is_none_or(|&is| is));
        if self.all.capacity() > 2 * self.all.len() + 1024 {
            self.all.shrink_to(self.all.len());
        }
    }
}

struct OwnedLabel {
    parent: LabelSetId,
    key: String,
    value: String,
}

impl OwnedLabel {
    fn of(label: &Label<'_>) -> Option<Self> {
        Some(Self {
            parent: label.parent,
            key: text(label.key)?,
            value: text(label.value)?,
        })
    }
}

pub(super) struct Definitions {
    codes: Table<Bulky>,
    nodes: Table<Node>,
    types: Table<Bulky>,
    threads: Table<Bulky>,
    labels: Table<OwnedLabel>,
    /// For the path from a node to the first one that is defined.
    path: Vec<NodeId>,
}

impl Definitions {
    pub(super) const fn new() -> Self {
        Self {
            codes: Table::starting_at(0),
            nodes: Table::starting_at(1),
            types: Table::starting_at(1),
            threads: Table::starting_at(0),
            labels: Table::starting_at(1),
            path: Vec::new(),
        }
    }

    /// A new file, which has none of them.
    pub(super) fn begin_file(&mut self) {
        self.codes.begin_file();
        self.nodes.begin_file();
        self.types.begin_file();
        self.threads.begin_file();
        self.labels.begin_file();
    }

    /// Definitions from before the last time are dropped, unless they are in use: by later definitions, samples that are alive,
    /// and sums. Threads only if `threads`.
    pub(super) fn renewed(
        &mut self,
        threads: bool,
        live: &Live,
        in_sums: [impl Iterator<Item = u32>; 2],
    ) {
        self.codes.renew();
        self.nodes.renew();
        self.types.renew();
        if threads {
            self.threads.renew();
        }
        let mut codes = self.codes.in_use();
        let mut nodes = self.nodes.in_use();
        let mut types = self.types.in_use();
        let mut of_threads = self.threads.in_use();
        fn mark<T>(table: &Table<T>, in_use: &mut [bool], number: u32) {
            if let Some(at) = table.at(number) {
                in_use[at] = true;
            }
        }
        for sample in live.alive() {
            mark(&self.nodes, &mut nodes, sample.stack.0);
            mark(&self.types, &mut types, sample.type_id.0);
            mark(&self.threads, &mut of_threads, sample.thread.0);
        }
        // A node comes after its parent.
        for at in (0..nodes.len()).rev() {
            if nodes[at] {
                let Node { parent, code, .. } = self.nodes.all[at].item;
                mark(&self.nodes, &mut nodes, parent.0);
                mark(&self.codes, &mut codes, code.0);
            }
        }
        let [of_codes, of_types] = in_sums;
        of_codes.for_each(|number| mark(&self.codes, &mut codes, number));
        of_types.for_each(|number| mark(&self.types, &mut types, number));
        self.codes.drop_unused(&codes);
        self.nodes.drop_unused(&nodes);
        self.types.drop_unused(&types);
        self.threads.drop_unused(&of_threads);
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.codes.all.len() + self.nodes.all.len() + self.types.all.len() + self.threads.all.len()
    }

    /// Keeps a definition. Returns whether the event is one.
    pub(super) fn keep(&mut self, event: &Event<'_>, file: &mut File) -> io::Result<bool> {
        match event {
            Event::Code(code) => self.codes.push(Bulky::code(code))?,
            Event::Node(node) => self.nodes.push(Some(*node))?,
            Event::Type(_) => self.types.push(Bulky::copy(event))?,
            Event::Thread(_) => self.threads.push(Bulky::copy(event))?,
            Event::Label(label) => self.labels.push(OwnedLabel::of(label))?,
            Event::ThreadName(thread, name) => {
                let copy = text(name).ok_or(io::ErrorKind::OutOfMemory)?;
                if let Some(Bulky::Thread { name, .. }) = self.threads.get_mut(thread.0) {
                    *name = copy;
                }
                if let Some(here) = self.threads.here(thread.0) {
                    file.write(&Event::ThreadName(ThreadId(here), name))?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The number of a stack node in the file, which gets the missing definitions; so below.
    pub(super) fn node(&mut self, node: NodeId, file: &mut File) -> io::Result<NodeId> {
        let mut path = std::mem::take(&mut self.path);
        let mut at = node;
        let mut here = loop {
            if at == NodeId::ROOT {
                break NodeId::ROOT;
            }
            if let Some(here) = self.nodes.here(at.0) {
                break NodeId(here);
            }
            // A node that is not known: the definition was lost with its record.
            let Some(known) = self.nodes.get(at.0) else {
                break NodeId::ROOT;
            };
            path.try_reserve(1)?;
            path.push(at);
            at = known.parent;
        };
        while let Some(next) = path.pop() {
            let Some(known) = self.nodes.get(next.0).copied() else {
                continue;
            };
            let code = self.code(known.code, file)?;
            file.write(&Event::Node(Node {
                parent: here,
                code,
                ..known
            }))?;
            here = NodeId(self.nodes.define(next.0));
        }
        self.path = path;
        Ok(here)
    }

    fn code(&mut self, code: CodeId, file: &mut File) -> io::Result<CodeId> {
        Ok(CodeId(define(&mut self.codes, code.0, file)?))
    }

    pub(super) fn type_id(&mut self, of: TypeId, file: &mut File) -> io::Result<TypeId> {
        match of {
            TypeId::UNKNOWN => Ok(of),
            of => Ok(TypeId(define(&mut self.types, of.0, file)?)),
        }
    }

    pub(super) fn thread(&mut self, of: ThreadId, file: &mut File) -> io::Result<ThreadId> {
        Ok(ThreadId(define(&mut self.threads, of.0, file)?))
    }

    pub(super) fn labels(&mut self, of: LabelSetId, file: &mut File) -> io::Result<LabelSetId> {
        if of == LabelSetId::NONE {
            return Ok(of);
        }
        if let Some(here) = self.labels.here(of.0) {
            return Ok(LabelSetId(here));
        }
        let Some(parent) = self.labels.get(of.0).map(|label| label.parent) else {
            return Ok(LabelSetId::NONE);
        };
        // As deep as labels are nested: a parent has a smaller number.
        let parent = self.labels(parent, file)?;
        if let Some(OwnedLabel { key, value, .. }) = self.labels.get(of.0) {
            file.write(&Event::Label(Label { parent, key, value }))?;
        }
        Ok(LabelSetId(self.labels.define(of.0)))
    }

    /// The function of a stack's innermost frame; `None` of the empty stack.
    pub(super) fn function(&self, node: NodeId) -> Option<CodeId> {
        self.nodes.get(node.0).map(|node| node.code)
    }

    /// A function's name and file.
    pub(super) fn names_of_code(&self, code: u32) -> (&str, &str) {
        match self.codes.get(code) {
            Some(Bulky::Code { name, file, .. }) => (name, file),
            _ => (nthbyte_profile::UNKNOWN, ""),
        }
    }

    /// A type's name.
    pub(super) fn name_of_type(&self, of: u32) -> &str {
        match self.types.get(of) {
            Some(Bulky::Type { name, .. }) => name,
            _ => nthbyte_profile::UNKNOWN,
        }
    }
}

/// The number of a definition in the file, which gets it if it has none. One that is not known has a number that the file does not define.
fn define(table: &mut Table<Bulky>, number: u32, file: &mut File) -> io::Result<u32> {
    if let Some(here) = table.here(number) {
        return Ok(here);
    }
    let Some(item) = table.get(number) else {
        return Ok(NOT_HERE - 1);
    };
    file.write(&item.event())?;
    Ok(table.define(number))
}
