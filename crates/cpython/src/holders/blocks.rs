//! The blocks that were drawn from the heap, and those that the recording has sampled: which object each is, or belongs to.

use nthbyte_heap::{Heap, LiveBlock};
use nthbyte_holders::{Draw, hash};
use nthbyte_profile::event::SampleId;

/// Blocks of the recording's samples beside those that are drawn.
const MOST_RECORDED: usize = 4000;

/// Sampled blocks of native memory, with which the event would become too long.
pub const MOST_NATIVE: usize = 20_000;

/// Bits of the filter, a power of two.
const FILTER: usize = 1 << 20;
/// An address within so many bytes from a block's start may be of a part of it: a header of its owner's comes first.
const REACH: usize = 64;
const STEP: usize = 16;

/// A block that is looked for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub address: usize,
    /// 0 if a fallback served it.
    pub size: usize,
    pub is_drawn: bool,
    pub recorded: Option<SampleId>,
    /// The node that is the object in the block; 0 if there is none.
    pub object: u32,
    /// The node that refers to the block itself.
    pub owner: u32,
    /// Where the owner has the address: an offset from it, which may be negative.
    pub at: i32,
}

pub struct Blocks {
    /// In the order of addresses.
    pub all: Vec<Wanted>,
    pub period: u64,
    filter: Vec<u64>,
}

impl Blocks {
    /// Draws from the heap's blocks. `sample` has a token's sample; `native`: the recording's samples of native memory, by
    /// address.
    ///
    /// # Safety
    /// The heap is in a copy of the process that nobody else changes.
    pub unsafe fn draw(
        heap: *const Heap,
        in_use: u64,
        seed: u64,
        sample: impl Fn(u32) -> Option<SampleId>,
        native: &[(usize, SampleId)],
    ) -> Self {
        let mut draw = Draw::of(in_use, seed);
        let mut all = Vec::new();
        let mut listed = Vec::new();
        // SAFETY: by the caller.
        unsafe {
            Heap::listed(heap, |block| listed.push(block));
            listed.sort_unstable();
            Heap::live(heap, &listed, |block: LiveBlock| {
                let is_drawn = block.size > 0 && draw.takes(block.address, block.size);
                let recorded = block.token.and_then(&sample);
                if is_drawn || recorded.is_some() {
                    all.push(Wanted {
                        address: block.address,
                        size: block.size,
                        is_drawn,
                        recorded,
                        object: 0,
                        owner: 0,
                        at: 0,
                    });
                }
            });
        }
        thin(&mut all, seed);
        // A block outside the heap has no size, and counts as the recording's sample does.
        all.extend(native.iter().map(|&(address, sample)| Wanted {
            address,
            size: 0,
            is_drawn: false,
            recorded: Some(sample),
            object: 0,
            owner: 0,
            at: 0,
        }));
        all.sort_unstable_by_key(|block: &Wanted| block.address);
        let mut blocks = Self {
            all,
            period: draw.period,
            filter: vec![0; FILTER / 64],
        };
        for at in 0..blocks.all.len() {
            let Wanted { address, size, .. } = blocks.all[at];
            let end = match size {
                0 => REACH,
                size => size.min(REACH),
            };
            for part in (address..address + end).step_by(STEP) {
                let bit = bit(part);
                blocks.filter[bit / 64] |= 1 << (bit % 64);
            }
        }
        blocks
    }

    /// The block that an address lies in, near its start.
    #[inline]
    fn find(&self, address: usize) -> Option<usize> {
        let bit = bit(address);
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        self.look_up(address)
    }

    #[cold]
    fn look_up(&self, address: usize) -> Option<usize> {
        let after = self.all.partition_point(|block| block.address <= address);
        let at = after.checked_sub(1)?;
        (address - self.all[at].address < REACH).then_some(at)
    }

    /// A mapping that came into memory in pieces has a block for each, of which the walk has found one.
    pub fn share_owners(&mut self) {
        for at in (1..self.all.len()).rev() {
            let [before, after] = [self.all[at - 1], self.all[at]];
            if before.address == after.address {
                self.all[at - 1] = Wanted {
                    recorded: before.recorded,
                    size: before.size,
                    is_drawn: before.is_drawn,
                    ..after
                };
            }
        }
    }

    /// The block that begins at an address.
    #[inline]
    pub fn at(&self, address: usize) -> Option<usize> {
        let found = self.find(address)?;
        (self.all[found].address == address).then_some(found)
    }

    /// Notes that a node has this word at an offset. The first one counts.
    #[inline]
    pub fn refers(&mut self, node: u32, word: usize, at: i32) {
        if let Some(found) = self.find(word) {
            let block = &mut self.all[found];
            if block.owner == 0 {
                (block.owner, block.at) = (node, at);
            }
        }
    }
}

/// Leaves out blocks that only the recording has sampled, where they are too many: they say who holds what was allocated where,
/// and add nothing to amounts. Fallbacks' blocks do, and stay.
fn thin(all: &mut Vec<Wanted>, seed: u64) {
    let is_extra = |block: &Wanted| !block.is_drawn && block.size > 0;
    let extra = all.iter().filter(|block| is_extra(block)).count();
    if extra > MOST_RECORDED {
        let most = (MOST_RECORDED as f64 / extra as f64 * u64::MAX as f64) as u64;
        all.retain(|block| !is_extra(block) || hash(block.address as u64 ^ !seed) < most);
    }
}

#[inline]
fn bit(address: usize) -> usize {
    let product = ((address / STEP) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (product >> (64 - FILTER.ilog2())) as usize
}
