//! Looks at all objects and the references between them. It runs in a copy of the process: nothing here changes an object,
//! runs Python, or calls the C library.
//!
//! Objects that refer to others are nodes. Of the rest, text and numbers for example, only those in blocks that are wanted
//! are nodes: a reference to any other one is not kept.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use nthbyte_holders::{Graph, WorkLimit};

use super::blocks::Blocks;
use super::functions::{Traverse, WalkFunctions};
use super::types::{NEXT, TYPE, Type, Types, is, word};
use crate::layout::{Layout, StackEnd, type_flags};

/// Bits of a node.
pub mod flag {
    /// A module, its dictionary, a class of a module, a thread.
    pub const ROOT: u8 = 1;
    /// It refers to nothing.
    pub const LEAF: u8 = 2;
    /// A frame: its address and 1.
    pub const FRAME: u8 = 4;
    /// A thread's state.
    pub const THREAD: u8 = 8;
    pub const MODULE_DICT: u8 = 16;
}

/// Words of an object that are looked at, in bytes: a class has most.
const LONGEST_OBJECT: usize = 1024;
/// Frames of a thread that are looked at.
const MOST_FRAMES: usize = 1 << 16;
const MOST_THREADS: usize = 1 << 16;
/// References of a frame.
const MOST_LOCALS: usize = 1 << 15;
/// Blocks of a deque, and its items in each.
const MOST_DEQUE_BLOCKS: usize = 1 << 20;
const DEQUE_BLOCK_NEXT: usize = 8 * 65;
/// Objects between two questions to the limit.
const BETWEEN_QUESTIONS: u32 = 1 << 14;
/// The least that an object which may refer to others, and a reference, take of the program's memory.
const SMALLEST_OBJECT: u64 = 32;
const REFERENCE: u64 = 8;
/// So many of both are looked at in any program: those of libraries are not resident before they are.
const ALWAYS: u64 = 1 << 20;

pub struct Walk<'a> {
    pub graph: Graph,
    pub blocks: Blocks,
    pub types: Types,
    pub functions: &'a WalkFunctions,
    pub layout: &'a Layout,
    /// The dictionary of each module, and the module's name: a `str`.
    pub module_names: Vec<(usize, usize)>,
    /// Keys of the dictionary that is visited.
    keys: Vec<usize>,
    /// The node whose references are visited.
    current: u32,
    /// References that may still be visited, and nodes: a function of an extension that loops, or a list that was overwritten,
    /// has more of them than the program has memory for.
    left: u64,
    most_nodes: u64,
    /// Nodes whose references were not visited yet, besides those that the collector knows.
    visited: u32,
}

impl<'a> Walk<'a> {
    /// `room`: the number of blocks in use; few objects are elsewhere. `resident`: the program's memory in bytes.
    pub fn new(
        functions: &'a WalkFunctions,
        layout: &'a Layout,
        blocks: Blocks,
        room: usize,
        resident: u64,
    ) -> Self {
        Self {
            graph: Graph::with_room(room),
            blocks,
            types: Types::new(layout, functions),
            functions,
            layout,
            module_names: Vec::new(),
            keys: Vec::new(),
            current: 0,
            left: ALWAYS + resident / REFERENCE,
            most_nodes: (ALWAYS + resident / SMALLEST_OBJECT).min(u32::MAX.into()),
            visited: 1,
        }
    }

    /// Looks at everything.
    ///
    /// # Safety
    /// This process is a copy that was made while the GIL was held, and the layout is right.
    ///
    /// # Errors
    /// Why that is not possible.
    pub unsafe fn run(&mut self, limit: &mut impl WorkLimit) -> Result<(), &'static str> {
        // SAFETY: by the caller.
        unsafe {
            if !self.collected() {
                return Err("the collector's lists are not known");
            }
            self.roots();
            while self.visited < self.graph.len() {
                if self.is_endless() {
                    return Err(ENDLESS);
                }
                if self.visited.is_multiple_of(BETWEEN_QUESTIONS) && limit.is_over() {
                    return Err("the objects are too many for its processor time");
                }
                self.current = self.visited;
                self.visited += 1;
                let (address, flags) = (
                    self.graph.address(self.current),
                    self.graph.flags(self.current),
                );
                if flags & flag::LEAF != 0 {
                } else if flags & flag::THREAD != 0 {
                    self.thread(address);
                } else if flags & flag::FRAME != 0 {
                    self.frame(address & !1);
                } else {
                    self.object(address);
                }
            }
            match self.is_endless() {
                true => Err(ENDLESS),
                false => Ok(()),
            }
        }
    }

    #[inline]
    fn is_endless(&self) -> bool {
        self.left == 0
    }

    /// Adds an object that the collector knows: each comes once, before all else. Returns whether more can be added.
    unsafe fn add_collected(&mut self, object: usize) -> bool {
        if u64::from(self.graph.len()) >= self.most_nodes {
            self.left = 0;
            return false;
        }
        // SAFETY: by the caller.
        unsafe { self.add(object) };
        true
    }

    /// Adds all objects that the collector knows. Returns whether it has found them.
    ///
    /// CPython's own function for that counts a reference to each of them, and so would copy the pages of the whole heap.
    unsafe fn collected(&mut self) -> bool {
        // SAFETY: the lists' heads were found; the function calls `on_collected` with each object, and this.
        unsafe {
            if let Some(heads) = self.lists() {
                for head in heads {
                    let mut at = link(head, NEXT_LINK);
                    while at != head && at != 0 && self.add_collected(at + HEADER) {
                        at = link(at, NEXT_LINK);
                    }
                }
                return true;
            }
            let Some(visit_all) = self.functions.visit_all else {
                return false;
            };
            visit_all(on_collected, (&raw mut *self).cast());
        }
        true
    }

    /// The heads of the collector's lists: of three generations (3.14: the young one and two spaces), and of the permanent one.
    unsafe fn lists(&self) -> Option<[usize; 4]> {
        // SAFETY: nothing changes the lists meanwhile.
        unsafe {
            let at = self.one_head()?;
            let lists = PERMANENT.into_iter().flat_map(|last| {
                let distances = [0, GENERATION, 2 * GENERATION, last];
                distances.map(|before| distances.map(|distance| at - before + distance))
            });
            lists
                .into_iter()
                .find(|heads| heads.iter().all(|&head| is_head(head)))
        }
    }

    /// The head of the list that an object is in: from it forwards, or backwards.
    unsafe fn one_head(&self) -> Option<usize> {
        let interpreter = self.functions.interpreter;
        let state = interpreter..interpreter + STATE;
        for direction in [NEXT_LINK, PREVIOUS_LINK] {
            let mut at = self.functions.collected - HEADER;
            for _ in 0..MOST_STEPS {
                // SAFETY: an object that the collector knows, and its neighbours.
                at = unsafe { link(at, direction) };
                if state.contains(&at) {
                    return Some(at);
                }
                if at < LOWEST {
                    break;
                }
            }
        }
        None
    }

    /// Marks modules, their dictionaries and classes, and threads.
    unsafe fn roots(&mut self) {
        // SAFETY: by the caller of `run`.
        unsafe {
            let modules = self.functions.modules;
            self.root(modules, 0);
            let mut of_modules = Vec::new();
            self.each_item(modules, |name, module| of_modules.push((name, module)));
            for (name, module) in of_modules {
                self.root(module, 0);
                if word(module, 8) != self.functions.module_type {
                    continue;
                }
                let dict = word(module, MODULE_DICT);
                if dict == 0 {
                    continue;
                }
                self.root(dict, flag::MODULE_DICT);
                self.module_names.push((dict, name));
                let mut values = Vec::new();
                self.each_item(dict, |_, value| values.push(value));
                for value in values {
                    if self.types.of(value).bits & is::CLASS != 0 {
                        self.root(value, 0);
                    }
                }
            }
            let mut thread = self.functions.first_thread;
            for _ in 0..MOST_THREADS {
                if thread == 0 {
                    break;
                }
                self.graph.add(thread, flag::THREAD | flag::ROOT);
                thread = (self.functions.next_thread)(thread);
            }
        }
        self.module_names.sort_unstable();
    }

    unsafe fn root(&mut self, object: usize, flags: u8) {
        let mut node = self.graph.find(object);
        if node == 0 {
            // SAFETY: by the caller of `run`.
            node = unsafe { self.add(object) };
        }
        self.graph.set(node, flag::ROOT | flags);
    }

    /// Calls `visit` with each key and value of a dictionary.
    ///
    /// # Safety
    /// It is one.
    pub unsafe fn each_item(&self, dict: usize, mut visit: impl FnMut(usize, usize)) {
        let (mut at, mut key, mut value) = (0, 0, 0);
        // SAFETY: by the caller; the function only reads.
        unsafe {
            while (self.functions.dict_next)(dict, &raw mut at, &raw mut key, &raw mut value) != 0 {
                visit(key, value);
            }
        }
    }

    /// Adds an object that may refer to others.
    unsafe fn add(&mut self, object: usize) -> u32 {
        let node = self.graph.add(object, 0);
        // SAFETY: by the caller of `run`.
        unsafe {
            let of = self.types.of(object);
            self.own(node, object, &of);
        }
        node
    }

    /// Notes which wanted blocks an object is in, and has the addresses of.
    unsafe fn own(&mut self, node: u32, object: usize, of: &Type) {
        if let Some(found) = self.blocks.at(object.wrapping_sub(of.pre_header)) {
            self.blocks.all[found].object = node;
        }
        // SAFETY: an object has the words of its type, and those before it.
        unsafe {
            // A built-in class has fewer words than its type says, which is for those made at run time. It lies in a library.
            if of.bits & is::CLASS != 0 && !self.is_heap_type(object) {
                return;
            }
            for at in (16..of.basic_size.min(LONGEST_OBJECT)).step_by(8) {
                self.blocks.refers(node, word(object, at), at as i32);
            }
            for before in (24..of.pre_header + 1).step_by(8) {
                // The lowest bit is a tag.
                let refers = word(object, before.wrapping_neg()).wrapping_add(1) & !1;
                self.blocks.refers(node, refers, -(before as i32));
            }
            if of.bits & is::DEQUE != 0 {
                let [first, last] = self.layout.containers.deque_blocks;
                let (mut block, last) = (word(object, first), word(object, last));
                for _ in 0..MOST_DEQUE_BLOCKS {
                    if block == last || block == 0 {
                        break;
                    }
                    block = word(block, DEQUE_BLOCK_NEXT);
                    self.blocks.refers(node, block, first as i32);
                }
            }
        }
    }

    /// Visits what an object refers to.
    unsafe fn object(&mut self, object: usize) {
        // SAFETY: by the caller of `run`. `visit` is called with this walk, which `traverse` does not use otherwise.
        unsafe {
            let of = self.types.of(object);
            if of.bits & is::CLASS != 0 && !self.is_heap_type(object) {
                // Its function for that ends the process.
                let dict = word(object, self.layout.type_dict);
                if dict > LOWEST {
                    self.visit(dict);
                }
                return;
            }
            if of.bits & is::CODE != 0 {
                let layout = self.layout;
                for at in [24, 32, 40, layout.references.code_locals]
                    .into_iter()
                    .chain([
                        layout.code_filename,
                        layout.code_filename + 8,
                        layout.code_qualname,
                        layout.code_linetable,
                    ])
                {
                    self.visit(word(object, at));
                }
                return;
            }
            if of.bits & is::TRAVERSED != 0 && of.traverse != 0 {
                let traverse = std::mem::transmute::<usize, Traverse>(of.traverse);
                traverse(object, on_child, (&raw mut *self).cast());
            }
            if of.bits & is::ARRAY != 0 {
                self.array(object);
            }
            if of.flags & type_flags::DICT_SUBCLASS != 0 {
                self.keys(object);
            }
        }
    }

    /// Visits the keys of a dictionary that are wanted: where all are text, its function for that leaves them out, as no cycle can
    /// go through them. Not those that instances of a class have in common.
    unsafe fn keys(&mut self, dict: usize) {
        // SAFETY: as for `object`.
        unsafe {
            if word(dict, self.layout.dict_keys + 8) != 0 {
                return;
            }
            let mut keys = std::mem::take(&mut self.keys);
            self.each_item(dict, |key, _| {
                if self.blocks.at(key).is_some() {
                    keys.push(key);
                }
            });
            for key in keys.drain(..) {
                if self.types.of(key).flags & type_flags::UNICODE_SUBCLASS != 0 {
                    self.visit(key);
                }
            }
            self.keys = keys;
        }
    }

    /// Visits what an array of NumPy refers to (`PyArrayObject_fields` of `ndarraytypes.h`).
    unsafe fn array(&mut self, array: usize) {
        // SAFETY: as for `object`.
        unsafe {
            let (data, base, description) = (word(array, 16), word(array, 48), word(array, 56));
            self.visit(base);
            self.visit(description);
            let is_of_objects =
                description != 0 && ((description + 24) as *const u8).read() == b'O';
            // Its own memory, so that there are no gaps.
            if is_of_objects && base == 0 {
                let dimensions = ((array + 24) as *const i32).read().clamp(0, 64) as usize;
                let sizes = word(array, 32);
                let items: usize = (0..dimensions).map(|at| word(sizes, 8 * at)).product();
                for item in 0..items {
                    self.visit(word(data, 8 * item));
                }
            }
        }
    }

    /// Whether a class was made at run time.
    pub unsafe fn is_heap_type(&self, class: usize) -> bool {
        // SAFETY: it is a class.
        unsafe { word(class, self.layout.type_flags) as u64 & type_flags::HEAP_TYPE != 0 }
    }

    /// Visits the frames of a thread.
    unsafe fn thread(&mut self, thread: usize) {
        let layout = self.layout;
        // SAFETY: the thread's state, and frames that it is in.
        unsafe {
            let mut frame = match layout.thread_cframe {
                crate::layout::UNUSED => word(thread, layout.current_frame),
                cframe => word(word(thread, cframe), layout.current_frame),
            };
            for _ in 0..MOST_FRAMES {
                if frame == 0 {
                    break;
                }
                let mut node = self.graph.find(frame | 1);
                if node == 0 {
                    node = self.graph.add(frame | 1, flag::FRAME);
                }
                self.graph.connect(self.current, node);
                frame = word(frame, layout.frame_previous);
            }
        }
    }

    /// The code object of a frame; 0 if it has none.
    pub unsafe fn code_of(&self, frame: usize) -> usize {
        let layout = self.layout;
        // SAFETY: it is a frame.
        unsafe {
            let owner = ((frame + layout.frame_owner) as *const u8).read();
            if owner >= layout.features.first_owner_without_code {
                return 0;
            }
            let code = word(frame, layout.frame_code) & !layout.features.reference_tags;
            match code > LOWEST && word(code, 8) == self.functions.code_type {
                true => code,
                false => 0,
            }
        }
    }

    /// The object of a word in a frame; 0 if there is none.
    #[inline]
    pub fn untagged(&self, word: usize) -> usize {
        let tags = self.layout.features.reference_tags;
        // A tagged integer.
        if tags != 0 && word & 2 != 0 {
            return 0;
        }
        word & !tags
    }

    /// Visits what a frame refers to.
    unsafe fn frame(&mut self, frame: usize) {
        let layout = self.layout;
        // SAFETY: it is a frame.
        unsafe {
            let code = self.code_of(frame);
            if code == 0 {
                return;
            }
            self.visit(code);
            let [function, locals, object] = layout.references.frame_objects;
            self.visit(self.untagged(word(frame, function)));
            self.visit(word(frame, locals));
            self.visit(word(frame, object));
            let start = frame + layout.frame_locals;
            for at in 0..self.references(frame, code).end {
                self.visit(self.untagged(word(start, 8 * at)));
            }
        }
    }

    /// The references of a frame behind its variables, as numbers of words from the first variable on: what its code works on.
    /// Empty while the frame runs.
    unsafe fn references(&self, frame: usize, code: usize) -> Range<usize> {
        let layout = self.layout;
        let start = frame + layout.frame_locals;
        // SAFETY: a frame and its code.
        unsafe {
            let variables = word(word(code, layout.references.code_locals), layout.var_size);
            let end = match layout.references.stack {
                StackEnd::Count(at) => {
                    let top = ((frame + at) as *const i32).read();
                    usize::try_from(top).unwrap_or(0)
                }
                StackEnd::Pointer(at) => word(frame, at).saturating_sub(start) / 8,
            };
            match (variables..variables + MOST_LOCALS).contains(&end) {
                true => variables..end,
                false => variables.min(MOST_LOCALS)..variables.min(MOST_LOCALS),
            }
        }
    }

    /// How many elements the outermost loop of a frame has taken from a list, a tuple or a dictionary, and so from something that
    /// has an end. `None` if that loop is over something else, or there is none.
    ///
    /// # Safety
    /// It is a frame, and the walk has looked at everything.
    pub unsafe fn taken(&mut self, frame: usize) -> Option<u32> {
        let layout = self.layout;
        let start = frame + layout.frame_locals;
        // SAFETY: by the caller.
        let taken = unsafe {
            let code = self.code_of(frame);
            if code == 0 {
                return None;
            }
            let mut is_sequence_below = false;
            let outermost = self.references(frame, code).find_map(|at| {
                let reference = word(start, 8 * at);
                // From 3.15 on, such a loop has no iterator, but a number above the sequence.
                if layout.features.reference_tags != 0 && reference & 3 == 3 {
                    return is_sequence_below.then_some(Some(reference >> 2));
                }
                let object = self.untagged(reference);
                is_sequence_below = false;
                if object < LOWEST {
                    return None;
                }
                let of = self.types.of(object);
                let sequence = type_flags::LIST_SUBCLASS | type_flags::TUPLE_SUBCLASS;
                is_sequence_below = of.flags & sequence != 0;
                (word(of.address, NEXT) != 0).then(|| self.taken_by(object))
            });
            outermost.flatten()?
        };
        u32::try_from(taken).ok().filter(|&taken| taken != u32::MAX)
    }

    /// How many elements an iterator has taken; `None` if it is no iterator of a list, a tuple or a dictionary.
    unsafe fn taken_by(&self, object: usize) -> Option<usize> {
        // `_PyListIterObject`, `_PyTupleIterObject`, `dictiterobject`, `enumobject`: the same in 3.11 to 3.15.
        const INDEX: usize = 16;
        const OF_DICTIONARY: [usize; 2] = [24, 48];
        const OF_ENUMERATE: usize = 24;
        let functions = self.functions;
        // SAFETY: it is an object, with the fields of its type.
        unsafe {
            let class = word(object, TYPE);
            if class == functions.enumerate_type {
                let inner = word(object, OF_ENUMERATE);
                return match word(inner, TYPE) == class {
                    true => None,
                    false => self.taken_by(inner),
                };
            }
            if functions.sequence_iterators.contains(&class) {
                return Some(word(object, INDEX));
            }
            let [used, left] = OF_DICTIONARY;
            functions
                .dict_iterators
                .contains(&class)
                .then(|| word(object, used).saturating_sub(word(object, left)))
        }
    }

    /// Visits a reference of the current node; 0 is none.
    #[inline]
    unsafe fn visit(&mut self, child: usize) {
        // SAFETY: as for `object`.
        unsafe {
            if child < LOWEST || self.is_endless() {
                return;
            }
            self.left -= 1;
            let of = self.types.of(child);
            let mut node;
            if of.bits & is::CONTAINER != 0 {
                node = self.graph.find(child);
                if node == 0 {
                    node = self.add(child);
                }
            } else {
                if of.bits & is::PLAIN == 0 && of.basic_size > 24 {
                    node = self.leaf_owner(child, &of);
                } else {
                    match self.blocks.at(child) {
                        None => return,
                        Some(found) => {
                            node = self.graph.find(child);
                            if node == 0 {
                                node = self.graph.add(child, flag::LEAF);
                                self.blocks.all[found].object = node;
                            }
                        }
                    }
                }
                if node == 0 {
                    return;
                }
            }
            match self.graph.flags(node) & flag::ROOT {
                0 => self.graph.connect(self.current, node),
                _ => self.graph.count(node),
            }
        }
    }

    /// The node of an object that refers to no others, but may have memory of its own: a `bytearray`. 0 if it needs none.
    unsafe fn leaf_owner(&mut self, object: usize, of: &Type) -> u32 {
        // SAFETY: an object has the words of its type.
        unsafe {
            let known = self.graph.find(object);
            if known != 0 {
                return known;
            }
            let is_wanted = self.blocks.at(object).is_some()
                || (16..of.basic_size.min(LONGEST_OBJECT))
                    .step_by(8)
                    .any(|at| self.blocks.at(word(object, at)).is_some());
            if !is_wanted {
                return 0;
            }
            let node = self.graph.add(object, flag::LEAF);
            self.own(node, object, of);
            node
        }
    }

    /// The kind of root that a node is, as [`nthbyte_holders::Subgraph::new`] wants it.
    pub fn root_kind(&self, node: u32) -> u8 {
        let flags = self.graph.flags(node);
        if flags & flag::ROOT != 0 {
            return 1;
        }
        if flags & (flag::FRAME | flag::THREAD) != 0 {
            return 0;
        }
        let object = self.graph.address(node);
        // SAFETY: it is an object.
        unsafe {
            let count = word(object, 0);
            let is_counted_in_32_bits = self.layout.references.immortal;
            if is_counted_in_32_bits && (count as u32).cast_signed() < 0 {
                return 1;
            }
            let is_class = {
                let flags = word(word(object, 8), self.layout.type_flags) as u64;
                flags & type_flags::TYPE_SUBCLASS != 0
            };
            if is_class && !self.is_heap_type(object) {
                return 1;
            }
            // What so many refer to is held by Python.
            let Some(references) = self.graph.references(node) else {
                return 0;
            };
            if flags & flag::LEAF != 0 && references > 0 {
                return 0;
            }
            let count = match is_counted_in_32_bits {
                true => count as u32 as usize,
                false => count,
            };
            if count > references as usize { 2 } else { 0 }
        }
    }
}

/// Why a walk ends that would not end.
const ENDLESS: &str = "it has found more than the program's memory has room for";

/// `PyModuleObject.md_dict`.
pub const MODULE_DICT: usize = 16;
/// No object has a lower address.
const LOWEST: usize = 65536;

/// `PyGC_Head`, a generation of the collector (`struct gc_generation`), and the permanent one's distance from the first: in 3.11 to
/// 3.13, a pointer is between them, and in Debian's 3.13.18, where the first is at no multiple of 8, what aligns it.
const HEADER: usize = 16;
const NEXT_LINK: usize = 0;
const PREVIOUS_LINK: usize = 8;
const GENERATION: usize = 24;
const PERMANENT: [usize; 3] = [80, 72, 84];
/// Objects that are looked at from the one that is known to the end of its list, which it is near.
const MOST_STEPS: usize = 1 << 16;
/// No address of a program is higher.
const HIGHEST: usize = 1 << 48;
/// The collector's state lies in the interpreter's, which has fewer bytes.
const STATE: usize = 1 << 18;

/// The neighbour of a `PyGC_Head` in its list, without the bits that are the collector's.
#[inline]
unsafe fn link(head: usize, at: usize) -> usize {
    // SAFETY: by the caller, it has both links.
    unsafe { ((head + at) as *const usize).read_unaligned() & !3 }
}

/// Whether a `PyGC_Head` is where its neighbours in a list say.
unsafe fn is_head(head: usize) -> bool {
    // SAFETY: two words of the interpreter's state. What cannot be an address is not read.
    unsafe {
        let [next, previous] = [link(head, NEXT_LINK), link(head, PREVIOUS_LINK)];
        [next, previous]
            .iter()
            .all(|&at| (LOWEST..HIGHEST).contains(&at))
            && link(next, PREVIOUS_LINK) == head
            && link(previous, NEXT_LINK) == head
    }
}

unsafe extern "C" fn on_collected(object: usize, walk: *mut c_void) -> c_int {
    // SAFETY: the context is the walk that called.
    unsafe { (*walk.cast::<Walk<'_>>()).add_collected(object).into() }
}

unsafe extern "C" fn on_child(object: usize, walk: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe {
        let walk = &mut *walk.cast::<Walk<'_>>();
        walk.visit(object);
        // A function that visits references ends where this is not 0.
        walk.is_endless().into()
    }
}
