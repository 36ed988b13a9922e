//! Turns the words of a tick into a stack of the profile.
//!
//! A code object that the session knows is alive, because a hook removes it before it is freed. Any other address may
//! lead anywhere: its memory is read through the kernel, and compared with what a code object must have.
//!
//! With native frames, the copy of the native stack is walked here, and its frames are put between the Python frames.

use nthbyte_host::process::Probe;
use nthbyte_profile::event::{Code, FrameKind, LabelSetId, Lines, Node, NodeId};
use nthbyte_session::ticks::{Tick, TickSamples};
use nthbyte_session::{Appearance, Recording};
use nthbyte_unwind::{Interrupted, Registers, UnfinishedWalk};

use super::words::{NO_POSITION, Word, bits};
use crate::api::{Api, FREE_THREADED, HEADER, OB_TYPE};
use crate::labels;
use crate::layout::Layout;
use crate::sampling::codes::{MAX_TABLE, appearance_of, own_folder};
use crate::sampling::kept::{GAP_NOTE, Kept};
use crate::sampling::merge::{Mark, MarkKind, Piece, merge};
use crate::sampling::strings;

/// The text of the frame in place of outer frames that were left out.
const CUT_NOTE: &str = "(deeper than 1024 frames: outer frames cut)";
const _: () = assert!(super::walk::MAX_DEPTH == 1024);

/// The names of collections in stacks.
const COLLECTIONS: [&str; 3] = [
    "collection of generation 0",
    "collection of generation 1",
    "collection of generation 2",
];

/// The key and the values of the label that says whether the thread held the GIL, if there is one.
const GIL: &str = "gil";
const HELD: &str = "held";
const RELEASED: &str = "released";

/// References of a live object are fewer. The upper bits may be flags (3.14 and later). In a freed block of the heap, the
/// word is the address of another block, or 0.
const MOST_REFERENCES: u64 = 1 << 33;
const REFERENCE_BITS: u64 = (1 << 48) - 1;

/// The number of references by an object's header. Without a GIL, its thread's are the upper half of the second word, and those of all others the
/// third word without its two lowest bits; they may be fewer than none.
fn references(head: &[u64]) -> u64 {
    if FREE_THREADED {
        let of_others = head[2].cast_signed() >> 2;
        return (head[1] >> 32).saturating_add_signed(of_others);
    }
    head[0] & REFERENCE_BITS
}

/// Turns ticks into places of the profile, during one recording.
pub struct Resolver<'a> {
    layout: &'a Layout,
    api: &'a Api,
    memory: Option<Probe>,
    /// The registers, the words of the Python frames and the marks of a tick, innermost first.
    registers: Option<Registers>,
    python: Vec<u64>,
    marks: Vec<Mark>,
    /// The frames of a stack and of the one before it, innermost first, and the nodes of the latter, outermost first.
    now: Vec<Frame>,
    last: Vec<Frame>,
    nodes: Vec<NodeId>,
    labels: [Option<LabelSetId>; 2],
    /// A code object that is being freed: it has no references left, and is whole.
    dying: Option<usize>,
}

/// A frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// The word of the tick.
    Python(u64),
    /// The address.
    Native(usize),
    /// A frame without code.
    Named(&'static str, FrameKind),
}

/// The stack of a tick.
enum Stack {
    Known(NodeId),
    /// It waits for a library to be looked at.
    Kept(Box<Kept>),
}

/// What an address is.
enum Found {
    Frame(Appearance),
    /// Another object than code: the frame is the interpreter's own.
    NoFrame,
}

impl<'a> Resolver<'a> {
    pub fn new(layout: &'a Layout, api: &'a Api, dying: Option<usize>) -> Self {
        Self {
            layout,
            api,
            memory: Probe::new(),
            registers: None,
            python: Vec::new(),
            marks: Vec::new(),
            now: Vec::new(),
            last: Vec::new(),
            nodes: Vec::new(),
            labels: [None; 2],
            dying,
        }
    }

    /// The place of a tick. `None` if its stack cannot be right, or if there is no room.
    pub fn place(&mut self, recording: &mut Recording<'_>, tick: &Tick<'_>) -> Option<TickSamples> {
        let samples = u32::try_from(tick.word & bits::SAMPLES).unwrap_or(1);
        let place = self.place_of(recording, tick, samples);
        if place.is_none() {
            // The caller counts one.
            let others = u64::from(samples.saturating_sub(1));
            recording.lost(nthbyte_profile::event::LostKind::CpuSamples, others);
        }
        place
    }

    fn place_of(
        &mut self,
        recording: &mut Recording<'_>,
        tick: &Tick<'_>,
        samples: u32,
    ) -> Option<TickSamples> {
        if tick.word & bits::IS_INSIDE != 0 {
            return Some(TickSamples {
                samples,
                ..TickSamples::inside(recording)?
            });
        }
        let stack = self.stack(recording, tick)?;
        let labels = self.labels(recording, tick.word & bits::HAS_GIL != 0)?;
        let number = (tick.word >> bits::LABELS) as u32;
        let labels = labels::recorded_below(number, labels, recording)?;
        let place = |stack| TickSamples {
            stack,
            labels,
            samples,
        };
        match stack {
            Stack::Known(stack) => Some(place(stack)),
            Stack::Kept(kept) => recording.keep(tick, place(NodeId::ROOT), kept),
        }
    }

    fn labels(&mut self, recording: &mut Recording<'_>, has_gil: bool) -> Option<LabelSetId> {
        if FREE_THREADED {
            return Some(LabelSetId::NONE);
        }
        let known = &mut self.labels[usize::from(has_gil)];
        if known.is_none() {
            let value = if has_gil { HELD } else { RELEASED };
            *known = recording.label(LabelSetId::NONE, GIL, value);
        }
        *known
    }

    /// The end of a tick's stack, or what waits of it. `None` if it cannot be right, or if there is no room.
    fn stack(&mut self, recording: &mut Recording<'_>, tick: &Tick<'_>) -> Option<Stack> {
        self.read(tick)?;
        // SAFETY: there is a recording, and no other use of the unwinder in this thread as long as this one is used.
        let mut unwinder = unsafe { nthbyte_unwind::unwinder() };
        if let (Some(registers), Some(unwinder)) = (self.registers, &mut unwinder) {
            let thread = Interrupted::new(registers, tick.memory);
            unwinder.walk_interrupted(&thread);
            if let Some(walk) = unwinder.unfinished_interrupted(&thread, recording) {
                return self.kept(recording, tick.word, walk).map(Stack::Kept);
            }
        } else {
            unwinder = None;
        }
        let native = unwinder.as_ref().map_or(&[][..], |one| one.frames());
        if self.python.is_empty()
            && let Some(unwinder) = unwinder
        {
            return unwinder.stack(recording).map(Stack::Known);
        }
        let is_cut = tick.word & bits::IS_CUT != 0;
        let (python, now) = (&self.python, &mut self.now);
        now.clear();
        now.try_reserve(2 * self.marks.len() + python.len() + native.len() + 1)
            .ok()?;
        merge(python.len(), &self.marks, native, |piece| match piece {
            Piece::Python(range) => {
                now.extend(python[range].iter().map(|&word| Frame::Python(word)))
            }
            Piece::Native(address) => now.push(Frame::Native(address)),
            Piece::Collection => now.push(Frame::Named(collection(tick.word), FrameKind::Gc)),
            Piece::Gap => now.push(Frame::Named(GAP_NOTE, FrameKind::Note)),
        });
        if is_cut {
            now.push(Frame::Named(CUT_NOTE, FrameKind::Note));
        }
        let alike = self.now.iter().rev().zip(self.last.iter().rev());
        let shared = alike.take_while(|(a, b)| a == b).count();
        let shared = shared.min(self.nodes.len());
        self.nodes.truncate(shared);
        std::mem::swap(&mut self.now, &mut self.last);
        let mut parent = self.nodes.last().copied().unwrap_or(NodeId::ROOT);
        let others = self.last.len() - shared;
        self.nodes.try_reserve(others).ok()?;
        for at in (0..others).rev() {
            parent = match self.last[at] {
                Frame::Python(word) => self.frame(recording, parent, word)?,
                // Native frames outside of all Python frames that are shown are left out.
                Frame::Native(address) if parent != NodeId::ROOT => {
                    unwinder.as_mut()?.node(recording, parent, address)?
                }
                Frame::Named(GAP_NOTE, _) if parent == NodeId::ROOT => parent,
                Frame::Named(name, kind) => recording.named_node(parent, name, kind)?,
                Frame::Native(_) => parent,
            };
            self.nodes.push(parent);
        }
        Some(Stack::Known(parent))
    }

    /// Reads the words of a tick. `None` if they cannot be right.
    fn read(&mut self, tick: &Tick<'_>) -> Option<()> {
        let words = tick.stack.as_chunks::<8>().0;
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        self.registers = None;
        if tick.word & bits::HAS_REGISTERS != 0 {
            let mut registers = [0; Registers::WORDS];
            for register in &mut registers {
                *register = words.next()?;
            }
            self.registers = Some(Registers::from_words(registers));
        }
        self.python.clear();
        self.marks.clear();
        self.python.try_reserve(words.len()).ok()?;
        self.marks.try_reserve(words.len()).ok()?;
        for word in words {
            let frames = self.python.len();
            let (stack, kind) = match Word::unpack(word) {
                Word::Frame(..) => {
                    self.python.push(word);
                    continue;
                }
                Word::Call(stack) => (stack, MarkKind::Call),
                Word::Collection => (0, MarkKind::Collection),
            };
            self.marks.push(Mark {
                frames,
                stack,
                kind,
            });
        }
        Some(())
    }

    /// The part of a tick that waits until the library is known that its walk has met.
    #[cold]
    fn kept(
        &self,
        recording: &mut Recording<'_>,
        word: u64,
        walk: UnfinishedWalk,
    ) -> Option<Box<Kept>> {
        let mut python = Vec::new();
        python.try_reserve_exact(self.python.len()).ok()?;
        for &word in &self.python {
            python.push(match self.appearance(recording, word)? {
                Some((appearance, position)) => (appearance, position),
                None => (Appearance::Hidden, 0),
            });
        }
        let mut marks = Vec::new();
        marks.try_reserve_exact(self.marks.len()).ok()?;
        marks.extend_from_slice(&self.marks);
        let collects = marks.iter().any(|mark| mark.kind == MarkKind::Collection);
        Some(Box::new(Kept {
            walk,
            python,
            marks,
            collection: collects.then(|| collection(word)),
            note: (word & bits::IS_CUT != 0).then_some(CUT_NOTE),
            has_gaps: true,
        }))
    }

    /// The stack of a walk's words, innermost first. `None` if they cannot be right, or if there is no room.
    pub fn stack_of(&mut self, recording: &mut Recording<'_>, words: &[u64]) -> Option<NodeId> {
        let mut stack = NodeId::ROOT;
        for &word in words.iter().rev() {
            if matches!(Word::unpack(word), Word::Frame(..)) {
                stack = self.frame(recording, stack, word)?;
            }
        }
        Some(stack)
    }

    /// The node of a frame below its caller.
    fn frame(
        &mut self,
        recording: &mut Recording<'_>,
        parent: NodeId,
        frame: u64,
    ) -> Option<NodeId> {
        let Some((appearance, position)) = self.appearance(recording, frame)? else {
            return Some(parent);
        };
        let Some(code) = appearance.below(parent) else {
            return Some(parent);
        };
        recording.node(Node {
            parent,
            code,
            position,
            kind: FrameKind::Interpreted,
        })
    }

    /// How a frame appears, and where it is in its code object in bytes; `None` within if it is the interpreter's own. `None`
    /// if it can be no frame, or if there is no room.
    fn appearance(
        &self,
        recording: &mut Recording<'_>,
        frame: u64,
    ) -> Option<Option<(Appearance, u32)>> {
        let Word::Frame(address, position) = Word::unpack(frame) else {
            return None;
        };
        let appearance = match recording.function(address as u64) {
            Some(known) => known,
            None => match self.find(recording, address, position)? {
                Found::Frame(appearance) => appearance,
                Found::NoFrame => return Some(None),
            },
        };
        Some(Some((appearance, position.saturating_sub(1) * 2)))
    }

    /// What lies at an address that the session does not know. A code object is defined. `None` if it is nothing that a
    /// frame can refer to.
    #[cold]
    fn find(&self, recording: &mut Recording<'_>, address: usize, position: u32) -> Option<Found> {
        let memory = self.memory?;
        let layout = self.layout;
        let head: [u64; HEADER / 8] = memory.read(address)?;
        let (references, class) = (references(&head), head[OB_TYPE / 8]);
        let has_references = references != 0 || self.dying == Some(address);
        if !has_references || references >= MOST_REFERENCES {
            return None;
        }
        if class != self.api.PyCode_Type as u64 {
            let type_of_type = memory.read::<u64>((class as usize).checked_add(OB_TYPE)?)?;
            return (type_of_type == self.api.PyType_Type as u64).then_some(Found::NoFrame);
        }
        // `ob_size` counts units of two bytes.
        let units = memory.read::<u64>(address + layout.var_size)?;
        if position == NO_POSITION || u64::from(position) > units {
            return None;
        }
        let pointer = |offset: usize| memory.read::<usize>(address + offset);
        let name = self.text(memory, pointer(layout.code_qualname)?)?;
        let file = self.text(memory, pointer(layout.code_filename)?)?;
        let first_line = memory.read::<u32>(address + layout.code_first_line)?;
        let Some(appearance) = appearance_of(&name, &file, own_folder()) else {
            return recording.hide_function(address as u64).map(Found::Frame);
        };
        let table = self.table(memory, pointer(layout.code_linetable)?)?;
        let definition = Code {
            name: &name,
            file: &file,
            first_line,
            lines: Lines::LocationTable(&table),
        };
        recording
            .define_function(address as u64, &definition, appearance)
            .map(Found::Frame)
    }

    /// The text of a `str`. `None` if it is none.
    fn text(&self, memory: Probe, address: usize) -> Option<String> {
        let layout = self.layout;
        if memory.read::<u64>(address.checked_add(OB_TYPE)?)? != self.api.PyUnicode_Type as u64 {
            return None;
        }
        let length = memory.read::<usize>(address + layout.str_length)?;
        let state = memory.read::<u32>(address + layout.str_state)?;
        if state & layout.str_bits.compact == 0 {
            return None;
        }
        let header = if state & layout.str_bits.ascii != 0 {
            layout.ascii_size
        } else {
            layout.unicode_size
        };
        let kind = (state >> layout.str_bits.kind_shift & 7) as usize;
        let length = length.min(strings::MAX_CHARS);
        let bytes = read_bytes(memory, address + header, length * kind)?;
        let mut text = String::new();
        text.try_reserve(length * kind).ok()?;
        for character in bytes.chunks_exact(kind.max(1)) {
            let mut word = [0; 4];
            word.get_mut(..kind)?.copy_from_slice(character);
            let character = char::from_u32(u32::from_le_bytes(word));
            text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Some(text)
    }

    /// The content of a `bytes`; empty if it is too long.
    fn table(&self, memory: Probe, address: usize) -> Option<Vec<u8>> {
        let length = memory.read::<usize>(address.checked_add(self.layout.var_size)?)?;
        if length > MAX_TABLE {
            return Some(Vec::new());
        }
        read_bytes(memory, address + self.layout.bytes_value, length)
    }
}

fn read_bytes(memory: Probe, address: usize, length: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    bytes.resize(length, 0);
    (memory.bytes(address, &mut bytes) == length).then_some(bytes)
}

/// The name of the collection that the thread runs.
fn collection(word: u64) -> &'static str {
    let generation = usize::from((word >> bits::GENERATION) as u8);
    COLLECTIONS[generation.min(COLLECTIONS.len() - 1)]
}
