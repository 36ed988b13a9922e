//! Turns the words of a tick into a stack of the profile.
//!
//! A code object that the session knows is alive, because a hook removes it before it is freed. Any other address may be
//! that of anything: what lies there is read through the kernel, and compared with what a code object must have.

use std::sync::OnceLock;

use nthbyte_profile::event::{Code, FrameKind, LabelSetId, Lines, Node, NodeId};
use nthbyte_session::process::Probe;
use nthbyte_session::ticks::{Place, Tick};
use nthbyte_session::{Appearance, Recording};

use super::handler::word;
use super::walk::{NO_POSITION, unpack};
use crate::api::Api;
use crate::layout::Layout;
use crate::sampling::codes::{MAX_TABLE, appearance_of, own_folder};
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

/// The key and the values of the label that says whether the thread held the GIL.
const GIL: &str = "gil";
const HELD: &str = "held";
const RELEASED: &str = "released";

/// Positions of fields of every object: the number of references, and the type.
const REFERENCES: usize = 0;
const TYPE: usize = 1;
/// References of a live object are fewer. The upper bits may be flags (3.14 and later). In a freed block of the heap, the
/// word is the address of another block, or 0.
const MOST_REFERENCES: u64 = 1 << 33;
const REFERENCE_BITS: u64 = (1 << 48) - 1;

/// Turns ticks into places of the profile, during one recording.
pub struct Resolver<'a> {
    layout: &'a Layout,
    api: &'a Api,
    memory: Option<Probe>,
    /// The words of the last stack, innermost first, and the nodes of its frames, outermost first.
    last: Vec<u8>,
    nodes: Vec<NodeId>,
    labels: [Option<LabelSetId>; 2],
    /// A code object that is being freed: it has no references left, and is whole.
    dying: Option<usize>,
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
            last: Vec::new(),
            nodes: Vec::new(),
            labels: [None; 2],
            dying,
        }
    }

    /// The place of a tick. `None` if its stack cannot be right, or if there is no room.
    pub fn place(&mut self, recording: &mut Recording<'_>, tick: &Tick<'_>) -> Option<Place> {
        let samples = u32::try_from(tick.word & word::SAMPLES).unwrap_or(1);
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
    ) -> Option<Place> {
        Some(Place {
            stack: self.stack(recording, tick)?,
            labels: self.labels(recording, tick.word & word::HAS_GIL != 0)?,
            samples,
        })
    }

    fn labels(&mut self, recording: &mut Recording<'_>, has_gil: bool) -> Option<LabelSetId> {
        let known = &mut self.labels[usize::from(has_gil)];
        if known.is_none() {
            let value = if has_gil { HELD } else { RELEASED };
            *known = recording.label(LabelSetId::NONE, GIL, value);
        }
        *known
    }

    fn stack(&mut self, recording: &mut Recording<'_>, tick: &Tick<'_>) -> Option<NodeId> {
        let frames = tick.stack.as_chunks::<8>().0;
        let is_cut = tick.word & word::IS_CUT != 0;
        let collection = collection(tick.word);
        let before = self.last.as_chunks::<8>().0;
        let alike = frames.iter().rev().zip(before.iter().rev());
        let mut shared = alike.take_while(|(a, b)| a == b).count();
        if let Some((_, inside)) = collection {
            // The collection's node lies between the nodes of frames, which other stacks do not share.
            shared = shared.min(frames.len().saturating_sub(inside));
        }
        shared = shared.min(self.nodes.len());
        if is_cut {
            shared = 0;
        }
        self.nodes.truncate(shared);
        self.last.clear();
        let mut parent = match self.nodes.last() {
            Some(&node) => node,
            None if is_cut => note(recording)?,
            None => NodeId::ROOT,
        };
        self.nodes.try_reserve(frames.len() - shared).ok()?;
        let mut is_shareable = !is_cut;
        for at in (0..frames.len() - shared).rev() {
            if let Some((node, inside)) = collection
                && inside == at + 1
            {
                parent = collecting(recording, parent, node)?;
                is_shareable = false;
            }
            parent = self.frame(recording, parent, u64::from_ne_bytes(frames[at]))?;
            if is_shareable {
                self.nodes.push(parent);
            }
        }
        if let Some((node, inside)) = collection
            && inside == 0
        {
            parent = collecting(recording, parent, node)?;
        }
        if !is_cut {
            self.last.try_reserve(tick.stack.len()).ok()?;
            self.last.extend_from_slice(tick.stack);
        }
        Some(parent)
    }

    /// The node of a frame below its caller.
    fn frame(
        &mut self,
        recording: &mut Recording<'_>,
        parent: NodeId,
        frame: u64,
    ) -> Option<NodeId> {
        let (address, position) = unpack(frame);
        let appearance = match recording.function(address as u64) {
            Some(known) => known,
            None => match self.find(recording, address, position)? {
                Found::Frame(appearance) => appearance,
                Found::NoFrame => return Some(parent),
            },
        };
        let Some(id) = appearance.below(parent) else {
            return Some(parent);
        };
        recording.node(Node {
            parent,
            code: id,
            position: position.saturating_sub(1) * 2,
            kind: FrameKind::Interpreted,
        })
    }

    /// What lies at an address that the session does not know. A code object is defined. `None` if it is nothing that a
    /// frame can refer to.
    #[cold]
    fn find(&self, recording: &mut Recording<'_>, address: usize, position: u32) -> Option<Found> {
        let memory = self.memory?;
        let layout = self.layout;
        let head: [u64; 3] = memory.read(address)?;
        let references = head[REFERENCES] & REFERENCE_BITS;
        let has_references = references != 0 || self.dying == Some(address);
        if !has_references || references >= MOST_REFERENCES {
            return None;
        }
        if head[TYPE] != self.api.PyCode_Type as u64 {
            let type_of_type = memory.read::<u64>((head[TYPE] as usize).checked_add(8)?)?;
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
        static OWN_FOLDER: OnceLock<String> = OnceLock::new();
        let own_folder = OWN_FOLDER.get_or_init(|| own_folder().unwrap_or_default());
        let Some(appearance) = appearance_of(&name, &file, own_folder) else {
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
        if memory.read::<u64>(address.checked_add(8)?)? != self.api.PyUnicode_Type as u64 {
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

/// The name of the collection that the thread runs, if any, and the number of frames inside of it.
fn collection(bits: u64) -> Option<(&'static str, usize)> {
    let generation = usize::from((bits >> word::GENERATION) as u8);
    let name = COLLECTIONS[generation.min(COLLECTIONS.len() - 1)];
    (bits & word::COLLECTS != 0).then_some((name, (bits >> word::INSIDE) as usize))
}

/// The node of a collection below the frame that it interrupted.
fn collecting(recording: &mut Recording<'_>, parent: NodeId, name: &'static str) -> Option<NodeId> {
    let code = recording.named_function(name)?;
    recording.node(Node {
        parent,
        code,
        position: 0,
        kind: FrameKind::Gc,
    })
}

#[cold]
fn note(recording: &mut Recording<'_>) -> Option<NodeId> {
    let code = recording.named_function(CUT_NOTE)?;
    recording.node(Node {
        parent: NodeId::ROOT,
        code,
        position: 0,
        kind: FrameKind::Note,
    })
}
