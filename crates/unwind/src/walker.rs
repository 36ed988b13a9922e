//! The walk.

use std::arch::asm;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _};
use nthbyte_profile::event::{FrameKind, Node, NodeId};
use nthbyte_session::process::Probe;
use nthbyte_session::{Epoch, PerEpoch, Recording, monotonic_nanos};

use crate::modules::Modules;
use crate::stack::{self, Chunk, Stack};

/// The largest number of frames of a walk. A deeper stack keeps its innermost frames.
pub const MAX_DEPTH: usize = 1024;
/// The text of a note in place of the others.
const CUT_NOTE: &str = "(deeper than 1024 frames: outer frames cut)";
const _: () = assert!(MAX_DEPTH == 1024);
/// After this time, in nanoseconds, a walk looks for modules that were unloaded and replaced.
const REFRESH_AFTER: u64 = 1_000_000_000;
/// How many unknown addresses are looked up at once, until a look finds something new. A program may have code that is
/// in no file, and a wrong frame pointer leads anywhere.
const MOST_UNKNOWN: usize = 16;
/// Addresses in one part of memory of this size, as a power of two, count as one.
const UNKNOWN_SHIFT: u32 = 16;

/// A frame of native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instruction that runs: in a caller, the last byte of the call.
    pub address: usize,
    /// Where the frame's part of the stack begins. It ends where that of its caller begins.
    pub stack: usize,
}

/// Walks the stack of the calling thread, and stores the last walk's frames.
pub struct Unwinder {
    modules: Modules,
    cache: CacheX86_64<MustNotAllocateDuringUnwind>,
    frames: Vec<Frame>,
    /// Whether the last walk was cut at [`MAX_DEPTH`].
    is_cut: bool,
    chunk: Chunk,
    main_end: usize,
    own: Vec<usize>,
    /// Reads of this process. A forked child needs another.
    memory: PerEpoch<Option<Probe>>,
    refreshed: u64,
    /// Parts of memory with addresses that were looked up in vain.
    unknown: Vec<usize>,
    /// Changes with the modules.
    generation: u64,
}

impl Unwinder {
    /// An unwinder. `own` are addresses in nthbyte's own libraries. `None` where the system forbids a process to read
    /// itself through the kernel.
    #[must_use]
    pub fn new(own: &[usize]) -> Option<Self> {
        let memory = Probe::new()?;
        let mut own = own.to_vec();
        own.push(Self::new as fn(&[usize]) -> Option<Self> as usize);
        Some(Self::with(memory, own))
    }

    fn with(memory: Probe, own: Vec<usize>) -> Self {
        let mut unwinder = Self {
            modules: Modules::new(),
            cache: CacheX86_64::new_in(),
            frames: Vec::with_capacity(MAX_DEPTH),
            is_cut: false,
            chunk: Chunk::default(),
            main_end: stack::main_end(),
            own,
            memory: PerEpoch::new(Some(memory)),
            refreshed: 0,
            unknown: Vec::with_capacity(MOST_UNKNOWN),
            generation: 0,
        };
        unwinder.refresh(memory, monotonic_nanos());
        unwinder
    }

    /// Walks the stack of the calling thread.
    pub fn walk(&mut self, epoch: Epoch) {
        let memory = *self
            .memory
            .of_or_begin(epoch, |memory| *memory = Probe::new());
        self.frames.clear();
        if let Some(memory) = memory {
            let now = monotonic_nanos();
            if now.wrapping_sub(self.refreshed) > REFRESH_AFTER {
                self.refresh(memory, now);
            }
            if let Some(unknown) = self.walk_once(memory)
                && self.unknown.len() < MOST_UNKNOWN
                && !self.unknown.contains(&(unknown >> UNKNOWN_SHIFT))
            {
                if self.refresh(memory, now) {
                    self.walk_once(memory);
                }
                if self.modules.find(unknown, 0).is_none() {
                    self.unknown.push(unknown >> UNKNOWN_SHIFT);
                }
            }
        }
    }

    /// The frames of the last walk, innermost first, without nthbyte's own. Empty if there are none that can be found.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
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
        let (code, position) = self.modules.code(recording, address)?;
        recording.node(Node {
            parent,
            code,
            position,
            kind: FrameKind::Native,
        })
    }

    /// The stack of the calling thread, if all of its frames are native. `None` if there is no room.
    pub fn stack(&mut self, recording: &mut Recording<'_>) -> Option<NodeId> {
        self.walk(recording.epoch());
        let mut node = NodeId::ROOT;
        if self.is_cut {
            let code = recording.named_function(CUT_NOTE)?;
            node = recording.node(Node {
                parent: node,
                code,
                position: 0,
                kind: FrameKind::Note,
            })?;
        }
        for at in (0..self.frames.len()).rev() {
            node = self.node(recording, node, self.frames[at].address)?;
        }
        Some(node)
    }

    #[cold]
    fn refresh(&mut self, memory: Probe, now: u64) -> bool {
        self.refreshed = now;
        let has_changed = self.modules.refresh(memory, &self.own);
        self.generation += u64::from(has_changed);
        if has_changed {
            self.unknown.clear();
        }
        has_changed
    }

    /// Fills `frames`. Returns the innermost address that is in no known module, if there is one.
    ///
    /// The walk begins in this function, so it is not inlined: its own frame is left out like nthbyte's others.
    #[inline(never)]
    fn walk_once(&mut self, memory: Probe) -> Option<usize> {
        let (instruction, pointer, base): (u64, u64, u64);
        // SAFETY: reads three registers.
        unsafe {
            asm!(
                "lea {instruction}, [rip]",
                "mov {pointer}, rsp",
                "mov {base}, rbp",
                instruction = out(reg) instruction,
                pointer = out(reg) pointer,
                base = out(reg) base,
                options(nostack, nomem, preserves_flags),
            );
        }
        self.frames.clear();
        self.is_cut = false;
        let mut stack = Stack::from(pointer as usize, self.main_end, memory, &mut self.chunk);
        let mut read = |address| stack.word(address).ok_or(());
        let mut registers = UnwindRegsX86_64::new(instruction, pointer, base);
        let mut address = FrameAddress::from_instruction_pointer(instruction);
        let mut near = 0;
        let mut unknown = None;
        let mut is_inside = true;
        loop {
            let place = address.address_for_lookup() as usize;
            let module = self.modules.find(place, near);
            if let Some(module) = module {
                near = module;
                is_inside &= self.modules.at(module).is_own;
                if !is_inside {
                    if self.frames.len() == MAX_DEPTH {
                        self.is_cut = true;
                        break;
                    }
                    self.frames.push(Frame {
                        address: place,
                        stack: registers.sp() as usize,
                    });
                }
            } else if unknown.is_some() {
                break;
            } else {
                // Code in no file, such as that of a compiler at run time, may keep a frame pointer.
                unknown = Some(place);
            }
            let before = registers.sp();
            let next = self.modules.unwinder.unwind_frame(
                address,
                &mut registers,
                &mut self.cache,
                &mut read,
            );
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
