//! The dump of the heap, as PyPy writes it (`rpython/memory/gc/inspector.py`): for each object its address, the number of its
//! type, its size in bytes, the addresses that it refers to, and −1. What roots refer to comes first, then an object of zeroes.

use std::ops::Range;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_holders::Graph;

/// Bits of a node.
pub mod flag {
    /// A module, its dictionary, a class, a thread.
    pub const ROOT: u8 = 1;
    /// A root of the interpreter's.
    pub const OF_INTERPRETER: u8 = 2;
    /// A thread: its address is an odd number, which no object has.
    pub const THREAD: u8 = 4;
    /// It lies in the interpreter's library: nobody has allocated it.
    pub const PREBUILT: u8 = 8;
    /// Python can have it.
    pub const OF_PYTHON: u8 = 16;
}

const END: usize = usize::MAX;
/// From a thread to its frames: more steps than from a module to what its variables refer to.
const STEPS_TO_FRAME: usize = 4;
const STEP: usize = 1 << 62;

/// The dump that is read. Only the one thread of a copy uses it.
static READING: AtomicPtr<Dump> = AtomicPtr::new(std::ptr::null_mut());

/// Bytes that PyPy has written.
pub fn take(bytes: &[u8]) {
    // SAFETY: `Dump::read` has set it, and the copy has one thread.
    if let Some(dump) = unsafe { READING.load(Relaxed).as_mut() } {
        for word in bytes.chunks_exact(8) {
            dump.word(usize::from_ne_bytes(word.try_into().unwrap_or_default()));
        }
    }
}

/// What the next word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Address,
    Type,
    Size,
    Reference,
}

/// What an object is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Python can have it.
    OfPython,
    /// It only remembers what others hold.
    Cache,
    /// It is the compiler's, and remembers objects of Python that a compiled loop uses.
    Compiled,
    Other,
}

/// The objects and their references.
pub struct Dump {
    pub graph: Graph,
    /// The size of each node, as the collector has it: with its header. 0 of one that nobody has allocated.
    pub sizes: Vec<u32>,
    /// The sum.
    pub bytes: u64,
    /// Where prebuilt objects lie.
    prebuilt: Range<usize>,
    /// The role of each type, by its number in a dump, and the role of the node that is read.
    roles: Vec<Role>,
    role: Role,
    /// References of the compiler's objects: to which of them it depends on what they refer to, which may come later.
    of_compiler: Vec<[u32; 2]>,
    next: Next,
    /// The node that is read; 0 is none.
    current: u32,
    are_roots: bool,
}

impl Dump {
    /// Before the first word. `prebuilt`: where objects lie that are part of the interpreter's library. `roles`: of each type,
    /// in the collector's order.
    pub fn new(prebuilt: Range<usize>, roles: Vec<Role>) -> Self {
        Self {
            graph: Graph::new(),
            sizes: vec![0],
            bytes: 0,
            prebuilt,
            roles,
            role: Role::Other,
            of_compiler: Vec::new(),
            next: Next::Address,
            current: 0,
            are_roots: true,
        }
    }

    /// Begins to read what PyPy writes, until the process ends.
    pub fn read(self) -> *mut Self {
        let dump = Box::into_raw(Box::new(self));
        READING.store(dump, Relaxed);
        dump
    }

    /// The number of an object's node.
    fn node(&mut self, address: usize) -> u32 {
        match self.graph.find(address) {
            0 => {
                let is_prebuilt = self.prebuilt.contains(&address);
                let flags = if is_prebuilt { flag::PREBUILT } else { 0 };
                self.sizes.push(0);
                self.graph.add(address, flags)
            }
            node => node,
        }
    }

    fn word(&mut self, word: usize) {
        self.next = match self.next {
            Next::Address => {
                self.current = match word {
                    0 => {
                        self.are_roots = false;
                        0
                    }
                    address => self.node(address),
                };
                Next::Type
            }
            Next::Type => {
                self.role = self.roles.get(word).copied().unwrap_or(Role::Other);
                Next::Size
            }
            Next::Size => {
                self.object(word);
                Next::Reference
            }
            Next::Reference if word == END => Next::Address,
            Next::Reference => {
                if word != 0 && self.current != 0 && self.role != Role::Cache {
                    let to = self.node(word);
                    match self.role {
                        Role::Compiled => self.of_compiler.push([self.current, to]),
                        _ => self.graph.connect(self.current, to),
                    }
                }
                Next::Reference
            }
        };
    }

    fn object(&mut self, size: usize) {
        if self.current == 0 {
            return;
        }
        let root = match self.are_roots {
            true => flag::OF_INTERPRETER,
            false => 0,
        };
        self.graph.set(self.current, root);
        if self.graph.flags(self.current) & flag::PREBUILT == 0 {
            self.sizes[self.current as usize] = u32::try_from(size).unwrap_or(u32::MAX);
            self.bytes += size as u64;
        }
        if self.role == Role::OfPython {
            self.graph.set(self.current, flag::OF_PYTHON);
        }
    }

    /// Called after the last word: what the compiler's objects refer to is theirs, unless Python can have it.
    pub fn finish(&mut self) {
        for [from, to] in std::mem::take(&mut self.of_compiler) {
            if self.graph.flags(to) & flag::OF_PYTHON == 0 {
                self.graph.connect(from, to);
            }
        }
    }

    /// Marks an object as a root that has a name. An object that is not in the dump is none.
    pub fn root(&mut self, address: usize) {
        let node = self.graph.find(address);
        if node != 0 {
            self.graph.set(node, flag::ROOT);
        }
    }

    /// Notes that a thread runs a frame. `thread`: an odd number.
    ///
    /// A global variable is some steps of RPython's away from its module, and what a frame works on is near the frame. So the way
    /// from the thread to its frames is made longer: what both refer to has the name of the variable.
    pub fn frame_of(&mut self, thread: usize, frame: usize) {
        let mut node = match self.graph.find(thread) {
            0 => self.no_object(thread, flag::ROOT | flag::THREAD),
            node => node,
        };
        let frame = self.graph.find(frame);
        if frame == 0 {
            return;
        }
        for step in 0..STEPS_TO_FRAME {
            // Odd numbers, too, and larger than threads'.
            let address = STEP | thread << 3 | step << 1 | 1;
            let next = match self.graph.find(address) {
                0 => {
                    let next = self.no_object(address, 0);
                    self.graph.connect(node, next);
                    next
                }
                next => next,
            };
            node = next;
        }
        self.graph.connect(node, frame);
    }

    fn no_object(&mut self, address: usize, flags: u8) -> u32 {
        self.sizes.push(0);
        self.graph.add(address, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(words: &[usize]) -> Dump {
        let roles = [Role::Other, Role::OfPython, Role::Cache, Role::Compiled];
        let mut dump = Dump::new(0x1000..0x2000, roles.into());
        words.iter().for_each(|&word| dump.word(word));
        dump
    }

    #[test]
    fn objects_references_and_roots_are_read() {
        let [root, prebuilt, list, items, cache] = [0x8000, 0x1100, 0x8100, 0x8200, 0x8300];
        let [compiled, loops] = [0x8400, 0x8500];
        let mut dump = fed(&[
            root, 0, 24, prebuilt, list, END, prebuilt, 0, 800, list, END, //
            0, 0, 0, END, compiled, 3, 8, list, loops, END, list, 1, 32, items, 0, END, //
            items, 9, 1000, END, cache, 2, 8, items, END,
        ]);
        dump.finish();
        assert_eq!(dump.bytes, 24 + 32 + 1000 + 8 + 8);
        let node = |dump: &Dump, address| dump.graph.find(address);
        let sources = |dump: &Dump, address| -> Vec<usize> {
            let node = dump.graph.find(address);
            let sources = dump.graph.predecessors(node);
            sources.map(|from| dump.graph.address(from)).collect()
        };
        assert_eq!(sources(&dump, list), [prebuilt, root]);
        assert_eq!(sources(&dump, items), [list]);
        assert_eq!(sources(&dump, loops), [compiled]);
        let flags = |dump: &Dump, address| dump.graph.flags(node(dump, address));
        assert_eq!(flags(&dump, root), flag::OF_INTERPRETER);
        assert_eq!(flags(&dump, list), flag::OF_PYTHON);
        assert_ne!(flags(&dump, prebuilt) & flag::PREBUILT, 0);
        assert_eq!(dump.sizes[node(&dump, prebuilt) as usize], 0);
        dump.root(list);
        dump.root(0x9999);
        dump.frame_of(7, items);
        assert_ne!(flags(&dump, list) & flag::ROOT, 0);
        let mut way = Vec::new();
        let mut before = sources(&dump, items);
        assert_eq!(before.pop(), Some(list));
        while before != [7] {
            assert!(before.len() == 1 && before[0] % 2 == 1);
            way.push(before[0]);
            before = sources(&dump, before[0]);
        }
        assert_eq!(way.len(), STEPS_TO_FRAME);
        assert_eq!(dump.sizes.len(), dump.graph.len() as usize);
    }
}
