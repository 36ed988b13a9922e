//! The walk.

use std::sync::Arc;

use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _};
use nthbyte_host::process::Probe;
use nthbyte_profile::event::{Code, CodeId, FrameKind, Lines, Node, NodeId, ThreadId};
use nthbyte_session::native::{Placed, may_wait};
use nthbyte_session::{Epoch, PerEpoch, Recording};

use crate::copied::{StackPart, UnfinishedWalk};
use crate::frame::{Cut, MAX_DEPTH, NativeFrame, Unknown};
use crate::interrupted::Interrupted;
use crate::looks;
use crate::modules::Modules;
use crate::processor::{Cache, Start, UnwindRegs};
use crate::stack::{self, Chunk, Stack};
use crate::walk_stack::{self, WalkStack};

/// The text of a note in place of the others.
const CUT_NOTE: &str = "(deeper than 1024 frames: outer frames cut)";
const _: () = assert!(MAX_DEPTH == 1024);
/// The text of that note in a stack of which the innermost part was copied only.
const NOT_COPIED_NOTE: &str = "(outer native frames not known)";
/// How many unknown addresses may cause a look each, until a look finds something new. A program may have code that is
/// in no file, and a wrong frame pointer leads anywhere.
const MOST_UNKNOWN: usize = 16;
/// Addresses in one part of memory of this size, as a power of two, count as one.
const UNKNOWN_SHIFT: u32 = 16;

/// Which of nthbyte's own frames are left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// Those at the inner end: they take the sample. So are all whose part of the stack begins at this address or below.
    Inner(usize),
    Nothing,
    /// A signal interrupts them anywhere.
    All,
}

/// Walks the stack of the calling thread, and stores the last walk's frames.
pub struct Unwinder {
    modules: Modules,
    codes: PerEpoch<Vec<Option<CodeId>>>,
    cache: Cache<MustNotAllocateDuringUnwind>,
    frames: Vec<NativeFrame>,
    /// Whether the last walk was cut.
    cut: Cut,
    /// The first frame of the last walk whose module is not known and may become known.
    wanted: Option<Unknown>,
    /// Always there between two walks, but not in the child of a fork that came in one.
    chunk: Option<Box<Chunk>>,
    walk_stack: WalkStack,
    /// The stack of the last walk that waits, if one waits.
    kept: Vec<Arc<StackPart>>,
    main_end: usize,
    /// Reads of this process. A forked child needs another.
    memory: PerEpoch<Option<Probe>>,
    /// Parts of memory with addresses that were looked up in vain.
    unknown: Vec<usize>,
    /// Changes with the modules.
    generation: u64,
    /// The last look at the loaded modules whose result is here.
    look: u64,
}

impl Unwinder {
    pub(crate) fn with(memory: Probe, modules: Modules) -> Self {
        Self {
            modules,
            codes: PerEpoch::default(),
            cache: Cache::new_in(),
            frames: Vec::with_capacity(MAX_DEPTH),
            cut: Cut::No,
            wanted: None,
            chunk: Some(Box::default()),
            walk_stack: WalkStack::default(),
            kept: Vec::new(),
            main_end: stack::main_end(),
            memory: PerEpoch::new(Some(memory)),
            unknown: Vec::with_capacity(MOST_UNKNOWN),
            generation: 0,
            look: 0,
        }
    }

    /// Whether what a walk has met is known, as far as it can be: all of it already, or after a look that began after the
    /// walk.
    pub(crate) fn knows(&mut self, walk: &UnfinishedWalk) -> bool {
        walk.look < self.look || self.go_on(walk)
    }

    /// This look found the modules.
    pub(crate) const fn has_looked(&mut self, look: u64) {
        self.look = look;
    }

    /// Puts other modules in place, and takes those that were there.
    pub(crate) fn exchange(&mut self, modules: &mut Modules) {
        std::mem::swap(&mut self.modules, modules);
        self.generation += 1;
        self.unknown.clear();
        self.kept = Vec::new();
    }

    /// The parts of memory with addresses that were looked up in vain.
    #[cfg(test)]
    pub(crate) const fn in_vain(&mut self) -> &mut Vec<usize> {
        &mut self.unknown
    }

    /// Walks the stack of the calling thread.
    pub fn walk(&mut self, epoch: Epoch) {
        self.walk_from(epoch, 0);
    }

    /// Walks the stack of the calling thread. Frames at its inner end are left out, as far as they are nthbyte's own, or
    /// their part of the stack does not begin above `inside`.
    fn walk_from(&mut self, epoch: Epoch, inside: usize) {
        let memory = *self
            .memory
            .of_or_begin(epoch, |memory| *memory = Probe::new());
        self.frames.clear();
        self.wanted = None;
        if let Some(memory) = memory {
            let unknown = self.walk_once(memory, inside);
            self.want(unknown);
        }
    }

    /// Walks the stack of a thread that a signal has interrupted. All frames of nthbyte's own are left out.
    pub fn walk_interrupted(&mut self, at: &Interrupted<'_>) {
        self.frames.clear();
        let mut is_missing = false;
        let mut read = |address| at.word(address).ok_or_else(|| is_missing = true);
        let start = at.registers.at;
        let address = FrameAddress::from_instruction_pointer(start.instruction);
        let unknown = self.follow(address, start.registers(), LeftOut::All, &mut read);
        if is_missing && !at.is_whole() {
            self.cut = Cut::NotCopied;
        }
        self.want(unknown);
    }

    /// Notes the innermost frame of a walk that is in no known module, if it may become known.
    fn want(&mut self, unknown: Option<Unknown>) {
        self.wanted = unknown.filter(|unknown| {
            self.unknown.len() < MOST_UNKNOWN
                && !self.unknown.contains(&(unknown.place >> UNKNOWN_SHIFT))
        });
        looks::walked(self.wanted.is_none());
    }

    /// The means to complete the last walk, which was one of an interrupted thread, once its modules are known. `None` as
    /// for [`Self::unfinished`].
    #[must_use]
    pub fn unfinished_interrupted(
        &mut self,
        at: &Interrupted<'_>,
        recording: &mut Recording<'_>,
    ) -> Option<UnfinishedWalk> {
        let unknown = self.wanted.take()?;
        if !may_wait(recording) {
            return None;
        }
        let copy = UnfinishedWalk::of_interrupted(unknown, &self.frames, at, &mut self.kept);
        recording.wake_writer();
        copy
    }

    /// The means to complete the last walk once its modules are known. `None` if they are, or if no sample can wait now.
    #[must_use]
    pub fn unfinished(&mut self, recording: &mut Recording<'_>) -> Option<UnfinishedWalk> {
        let unknown = self.wanted.take()?;
        if !may_wait(recording) {
            return None;
        }
        let memory = (*self.memory.of(recording.epoch()))?;
        let copy = UnfinishedWalk::copy(
            unknown,
            &self.frames,
            self.main_end,
            memory,
            &mut self.kept,
            &mut self.chunk.get_or_insert_default().words,
        );
        recording.wake_writer();
        copy
    }

    /// Completes a walk of any thread from what was kept of it.
    pub fn resume(&mut self, walk: &UnfinishedWalk) {
        let place = walk.unknown.place;
        let part = place >> UNKNOWN_SHIFT;
        if self.modules.find(place, 0).is_none()
            && self.unknown.len() < MOST_UNKNOWN
            && !self.unknown.contains(&part)
        {
            self.unknown.push(part);
        }
        self.go_on(walk);
    }

    /// Fills `frames` with the frames of a walk of any thread, from what was kept of it. Returns whether all of them are in known
    /// modules.
    fn go_on(&mut self, walk: &UnfinishedWalk) -> bool {
        self.frames.clear();
        self.frames.extend_from_slice(&walk.frames);
        let mut is_missing = false;
        let mut read = |address| walk.word(address).ok_or_else(|| is_missing = true);
        let left_out = walk.interrupted.map_or(LeftOut::Nothing, |_| LeftOut::All);
        let Unknown {
            address, registers, ..
        } = walk.unknown;
        let unknown = self.follow(address, registers, left_out, &mut read);
        if is_missing && walk.interrupted == Some(Cut::NotCopied) {
            self.cut = Cut::NotCopied;
        }
        unknown.is_none()
    }

    /// The frames of the last walk, innermost first, without nthbyte's own. Empty if there are none that can be found.
    #[must_use]
    pub fn frames(&self) -> &[NativeFrame] {
        &self.frames
    }

    /// A number that changes when modules were loaded or unloaded: an address may then belong to another one.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The node of a frame of the last walk, with this address, below its caller. `None` if there is no room.
    pub fn node(
        &mut self,
        recording: &mut Recording<'_>,
        parent: NodeId,
        address: usize,
    ) -> Option<NodeId> {
        let (code, position) = self.code(recording, address)?;
        recording.node(Node {
            parent,
            code,
            position,
            kind: FrameKind::Native,
        })
    }

    /// The code object of a frame, and its position in it. A new file is defined first. `None` if there is no room.
    fn code(&mut self, recording: &mut Recording<'_>, address: usize) -> Option<(CodeId, u32)> {
        let (at, named, position) = self.modules.place(address)?;
        let codes = self.codes.of(recording.definitions());
        if let Some(&Some(code)) = codes.get(at) {
            return Some((code, position));
        }
        let name = named.path.rsplit('/').next().unwrap_or_default();
        codes
            .try_reserve((at + 1).saturating_sub(codes.len()))
            .ok()?;
        let code = recording.code(&Code {
            name,
            file: &named.path,
            first_line: 0,
            lines: Lines::Image(&named.build_id),
        })?;
        if codes.len() <= at {
            codes.resize(at + 1, None);
        }
        codes[at] = Some(code);
        Some((code, position))
    }

    /// The calling thread with its stack, in which all frames are native. `None` if there is no room.
    pub fn place(&mut self, recording: &mut Recording<'_>, thread: ThreadId) -> Option<Placed> {
        self.place_from(recording, thread, 0)
    }

    /// The same, without the frames at the inner end whose part of the stack begins at the address `inside` or below.
    pub fn place_from(
        &mut self,
        recording: &mut Recording<'_>,
        thread: ThreadId,
        inside: usize,
    ) -> Option<Placed> {
        self.walk_from(recording.epoch(), inside);
        if let Some(unfinished) = self.unfinished(recording) {
            return Some(Placed::Later(thread, Box::new(unfinished)));
        }
        Some(Placed::Now(thread, self.stack(recording)?))
    }

    /// The node of the last walk's stack, if all of its frames are native. `None` if there is no room.
    pub fn stack(&mut self, recording: &mut Recording<'_>) -> Option<NodeId> {
        let mut node = NodeId::ROOT;
        let note = match self.cut {
            Cut::No => None,
            Cut::Deep => Some(CUT_NOTE),
            Cut::NotCopied => Some(NOT_COPIED_NOTE),
        };
        if let Some(note) = note {
            node = recording.named_node(node, note, FrameKind::Note)?;
        }
        for at in (0..self.frames.len()).rev() {
            node = self.node(recording, node, self.frames[at].address)?;
        }
        Some(node)
    }

    /// Fills `frames`. Returns the innermost frame that is in no known module, if there is one.
    ///
    /// The walk begins in this function, so it is not inlined: its own frame is left out like nthbyte's others.
    #[inline(never)]
    fn walk_once(&mut self, memory: Probe, inside: usize) -> Option<Unknown> {
        let start = Start::here();
        let mut chunk = self.chunk.take().unwrap_or_default();
        let mut stack = Stack::from(start.pointer as usize, self.main_end, memory, &mut chunk);
        let mut read = |address| stack.word(address).ok_or(());
        let address = FrameAddress::from_instruction_pointer(start.instruction);
        let left_out = LeftOut::Inner(inside);
        let unknown = self.follow(address, start.registers(), left_out, &mut read);
        self.chunk = Some(chunk);
        unknown
    }

    /// Adds frames to `frames`, from this one outwards. Returns the innermost frame that is in no known module, if there is
    /// one.
    #[inline(always)]
    fn follow(
        &mut self,
        address: FrameAddress,
        registers: UnwindRegs,
        left_out: LeftOut,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Unknown> {
        let start = self.walk_stack.start();
        // SAFETY: one thread uses the unwinder at a time, and a walk begins no other one.
        unsafe {
            walk_stack::on(start, || {
                self.follow_here(address, registers, left_out, read)
            })
        }
    }

    /// The same, on the present stack.
    #[inline(always)]
    fn follow_here(
        &mut self,
        mut address: FrameAddress,
        mut registers: UnwindRegs,
        left_out: LeftOut,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Unknown> {
        self.cut = Cut::No;
        let (mut is_inside, inside) = match left_out {
            LeftOut::Inner(inside) => (true, inside),
            LeftOut::Nothing | LeftOut::All => (false, 0),
        };
        let mut near = 0;
        let mut unknown = None;
        loop {
            let place = address.address_for_lookup() as usize;
            let module = self.modules.find(place, near);
            if let Some(module) = module {
                near = module;
                let is_own = self.modules.at(module).is_own;
                is_inside &= is_own || registers.sp() as usize <= inside;
                let is_hidden = is_own && left_out == LeftOut::All;
                if !is_inside && !is_hidden {
                    if self.frames.len() == MAX_DEPTH {
                        self.cut = Cut::Deep;
                        break;
                    }
                    self.frames.push(NativeFrame {
                        address: place,
                        stack: registers.sp() as usize,
                    });
                }
            } else if unknown.is_some() {
                break;
            } else {
                // Code in no file, such as what a compiler makes at run time, may keep a frame pointer.
                unknown = Some(Unknown {
                    place,
                    address,
                    registers,
                    inner: self.frames.len(),
                });
            }
            let before = registers.sp();
            let next =
                self.modules
                    .unwinder
                    .unwind_frame(address, &mut registers, &mut self.cache, read);
            let Ok(Some(caller)) = next else {
                break;
            };
            let Some(caller) = FrameAddress::from_return_address(caller) else {
                break;
            };
            // A stack grows towards lower addresses: what moves back is no caller.
            if registers.sp() <= before {
                break;
            }
            address = caller;
        }
        unknown
    }
}

#[cfg(test)]
mod tests;
