//! Finds a context variable's value in a context, by reads alone.
//!
//! A context has an immutable map (`PyContext.ctx_vars`), a hash array mapped trie (`Python/hamt.c`,
//! `Include/internal/pycore_hamt.h`, `pycore_context.h`): five bits of the key's hash, which is folded to 32 bits, choose the branch at each level. The
//! offsets, from the end of an object's header on, are the same in 3.11 to 3.15; [`super::check`] compares walks with the interpreter's answers.
//!
//! A walk of one or two levels, which is all that programs have, takes 4 to 10 ns.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::process::CachedProbe;

use crate::api::{HEADER, OB_TYPE};

/// `PyContext.ctx_vars`.
const VARIABLES: usize = HEADER + 8;
/// `PyHamtObject.h_root`.
const ROOT: usize = HEADER;
/// `PyVarObject.ob_size` of a node.
const SIZE: usize = HEADER;
/// `PyHamtNode_Bitmap.b_bitmap` and `b_array`.
const BITMAP: usize = HEADER + 8;
const BITMAP_PAIRS: usize = HEADER + 16;
/// `PyHamtNode_Array.a_array`.
const ARRAY_NODES: usize = HEADER;
/// `PyHamtNode_Collision.c_array`.
const COLLISION_PAIRS: usize = HEADER + 16;
/// `PyTypeObject.tp_name`.
const TYPE_NAME: usize = HEADER + 8;
/// `_Py_HAMT_MAX_TREE_DEPTH` of 3.11; later versions have one level more.
const MOST_LEVELS: u32 = 9;
/// Variables with the same hash that are looked at.
const MOST_COLLISIONS: usize = 64;

/// Reads words of the interpreter's objects.
pub trait Words {
    /// The word at an address; `None` if it cannot be read.
    fn word(&self, address: usize) -> Option<usize>;

    /// The word at an offset of an object.
    #[inline(always)]
    fn at(&self, object: usize, offset: usize) -> Option<usize> {
        self.word(object.checked_add(offset)?)
    }
}

impl Words for CachedProbe {
    fn word(&self, address: usize) -> Option<usize> {
        Self::word(self, address)
    }
}

/// Plain reads.
pub struct Direct(());

impl Direct {
    /// # Safety
    /// All that is read is alive, and of the layout that the reader takes it for.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Words for Direct {
    #[inline(always)]
    fn word(&self, address: usize) -> Option<usize> {
        // SAFETY: by the contract of `new`.
        Some(unsafe { (address as *const usize).read() })
    }

    #[inline(always)]
    fn at(&self, object: usize, offset: usize) -> Option<usize> {
        self.word(object.wrapping_add(offset))
    }
}

/// The types of a map's nodes. They are not exported, but each has a name of its own.
pub struct Map {
    bitmap: AtomicUsize,
    array: AtomicUsize,
    collision: AtomicUsize,
    /// Whether the processor counts bits, which this program's target does not take for granted.
    #[cfg(target_arch = "x86_64")]
    counts_bits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Bitmap,
    Array,
    Collision,
}

impl Map {
    pub fn new() -> Self {
        Self {
            bitmap: AtomicUsize::new(0),
            array: AtomicUsize::new(0),
            collision: AtomicUsize::new(0),
            #[cfg(target_arch = "x86_64")]
            counts_bits: std::arch::is_x86_feature_detected!("popcnt"),
        }
    }

    /// The number of bits that are set. A walk waits for it at each level: without the instruction three times as long as for a word.
    #[inline(always)]
    fn count(&self, bits: u32) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.counts_bits {
            let mut count = bits;
            // SAFETY: the processor has the instruction, which changes nothing else but flags.
            unsafe {
                std::arch::asm!("popcnt {0:e}, {0:e}", inout(reg) count, options(pure, nomem, nostack));
            }
            return count as usize;
        }
        bits.count_ones() as usize
    }

    #[inline]
    fn kind(&self, node_type: usize, words: &impl Words) -> Option<Node> {
        if node_type == self.bitmap.load(Relaxed) {
            return Some(Node::Bitmap);
        }
        if node_type == self.array.load(Relaxed) {
            return Some(Node::Array);
        }
        self.other_kind(node_type, words)
    }

    /// By the type's name, when it is met first.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn other_kind(&self, node_type: usize, words: &impl Words) -> Option<Node> {
        if node_type == self.collision.load(Relaxed) {
            return Some(Node::Collision);
        }
        let name = words.word(node_type.checked_add(TYPE_NAME)?)?;
        for (known, kind, place) in [
            (&b"hamt_bitmap_node\0"[..], Node::Bitmap, &self.bitmap),
            (b"hamt_array_node\0", Node::Array, &self.array),
            (b"hamt_collision_node\0", Node::Collision, &self.collision),
        ] {
            if is_text(words, name, known)? {
                place.store(node_type, Relaxed);
                return Some(kind);
            }
        }
        None
    }

    /// The value of a variable in a context. `None` if it has none there, or if a word cannot be read.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn find(
        &self,
        words: &impl Words,
        context: usize,
        variable: usize,
        hash: i32,
    ) -> Option<usize> {
        let map = words.at(context, VARIABLES)?;
        if map == 0 {
            // A context that is being freed.
            return None;
        }
        let mut node = words.at(map, ROOT)?;
        let mut left = hash.cast_unsigned();
        for _ in 0..MOST_LEVELS {
            if node == 0 {
                return None;
            }
            let at = |offset: usize| words.at(node, offset);
            let branch = left & 31;
            left >>= 5;
            match self.kind(at(OB_TYPE)?, words)? {
                Node::Bitmap => {
                    let bitmap = at(BITMAP)? as u32;
                    if bitmap & 1 << branch == 0 {
                        return None;
                    }
                    let before = self.count(bitmap & ((1 << branch) - 1));
                    let pair = BITMAP_PAIRS + 16 * before;
                    let (key, value) = (at(pair)?, at(pair + 8)?);
                    if key == variable {
                        return Some(value);
                    }
                    if key != 0 {
                        return None;
                    }
                    node = value;
                }
                Node::Array => node = at(ARRAY_NODES + 8 * branch as usize)?,
                Node::Collision => {
                    let pairs = (at(SIZE)? / 2).min(MOST_COLLISIONS);
                    for pair in (0..pairs).map(|pair| COLLISION_PAIRS + 16 * pair) {
                        if at(pair)? == variable {
                            return at(pair + 8);
                        }
                    }
                    return None;
                }
            }
        }
        None
    }
}

/// Whether a text is there, whose end is part of `known`.
#[unsafe(link_section = "nthbyte_hot")]
fn is_text(words: &impl Words, address: usize, known: &[u8]) -> Option<bool> {
    for (at, &byte) in known.iter().enumerate() {
        let address = address.checked_add(at)?;
        let word = words.word(address & !7)?.to_ne_bytes();
        if word[address % 8] != byte {
            return Some(false);
        }
    }
    Some(true)
}

/// The hash that the map uses: `hamt_hash` of `Python/hamt.c`.
pub const fn folded(hash: i64) -> i32 {
    let folded = hash as i32 ^ (hash >> 32) as i32;
    if folded == -1 { -2 } else { folded }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object with words at some offsets.
    fn object(words: &[(usize, usize)]) -> Vec<usize> {
        let mut object = vec![0; 64];
        for &(offset, word) in words {
            object[offset / 8] = word;
        }
        object
    }

    fn at(object: &[usize]) -> usize {
        object.as_ptr() as usize
    }

    fn node_type(name: &'static std::ffi::CStr) -> Vec<usize> {
        object(&[(TYPE_NAME, name.as_ptr() as usize)])
    }

    /// A value in a collision node, below an array node, below a bitmap node.
    #[test]
    fn each_kind_of_node_is_passed() {
        let bitmap_type = node_type(c"hamt_bitmap_node");
        let array_type = node_type(c"hamt_array_node");
        let collision_type = node_type(c"hamt_collision_node");
        let other_type = node_type(c"hamt_array_nodes");
        let (variable, alike, value) = (0x1000, 0x2000, 0x3000);
        let hash = 3 | 7 << 5 | 1 << 10;
        let collision = object(&[
            (OB_TYPE, at(&collision_type)),
            (SIZE, 4),
            (COLLISION_PAIRS, alike),
            (COLLISION_PAIRS + 8, 1),
            (COLLISION_PAIRS + 16, variable),
            (COLLISION_PAIRS + 24, value),
        ]);
        let array = object(&[
            (OB_TYPE, at(&array_type)),
            (ARRAY_NODES + 8 * 7, at(&collision)),
        ]);
        let mut root = object(&[
            (OB_TYPE, at(&bitmap_type)),
            // Branches 1 and 3.
            (BITMAP, 0b1010),
            (BITMAP_PAIRS, alike),
            (BITMAP_PAIRS + 24, at(&array)),
        ]);
        let map = object(&[(ROOT, at(&root))]);
        let mut context = object(&[(VARIABLES, at(&map))]);
        // SAFETY: all objects live until the end of the test.
        let words = unsafe { Direct::new() };
        let find = |context: &[usize], variable, hash| {
            Map::new().find(&words, at(context), variable, hash)
        };
        assert_eq!(find(&context, variable, hash), Some(value));
        assert_eq!(find(&context, alike, 1), Some(0));
        assert_eq!(find(&context, 0x5000, hash), None);
        assert_eq!(find(&context, variable, hash & !3 | 2), None);
        assert_eq!(find(&context, variable, hash ^ 1 << 5), None);
        root[OB_TYPE / 8] = at(&other_type);
        std::hint::black_box(&root);
        assert_eq!(find(&context, variable, hash), None);
        context[VARIABLES / 8] = 0;
        std::hint::black_box(&context);
        assert_eq!(find(&context, variable, hash), None);
    }

    #[test]
    fn bits_are_counted_with_and_without_the_instruction() {
        let map = Map::new();
        let without = Map {
            #[cfg(target_arch = "x86_64")]
            counts_bits: false,
            ..Map::new()
        };
        for bits in [0, 1, 0b1010_0110, 1 << 31, u32::MAX] {
            assert_eq!(map.count(bits), bits.count_ones() as usize);
            assert_eq!(without.count(bits), map.count(bits));
        }
    }

    #[test]
    fn hashes_are_folded_as_in_the_interpreter() {
        assert_eq!(folded(0x1234_5678_0000_0001), 0x1234_5679);
        assert_eq!(folded(-1), 0);
        assert_eq!(folded(0xffff_ffff), -2);
    }
}
