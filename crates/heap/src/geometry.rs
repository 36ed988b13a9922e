//! All sizes of the heap. They are in bytes unless the name says otherwise.
//!
//! ```text
//! heap   | state, STATE_SIZE | arena table, TABLE_SIZE |         one mapping
//! arena  | page 0 | page 1 | … | page 127 |                       ARENA_SIZE
//! page   | header, PAGE_HEADER | block | block | … |              PAGE_SIZE
//! page 0 | header, PAGE_HEADER | header of the arena, ARENA_HEADER | block | … |
//! ```

/// The size of an arena and its alignment: one huge page of x86-64, and of AArch64 with OS pages of 4 KiB.
pub const ARENA_SIZE: usize = 1 << ARENA_BITS;
/// An arena's number is its address shifted right by this.
pub const ARENA_BITS: u32 = 21;
/// The pages of an arena.
pub const PAGES_PER_ARENA: u32 = (ARENA_SIZE / PAGE_SIZE) as u32;
/// The size of the header of an arena, which follows the header of its first page.
pub const ARENA_HEADER: usize = 64;

/// The size of a page and its alignment: the same as for pymalloc's pools (docs/fast-path.md).
pub const PAGE_SIZE: usize = 16 << 10;
/// The size of the header of a page. The first block begins 16 bytes before the end of a cache line: the collector's
/// links of an object are on that line, and the object itself begins on the next one. If both are on one line,
/// collections take a tenth longer (docs/fast-path.md).
pub const PAGE_HEADER: usize = 48;
/// The smallest offset of the first block of an arena's first page.
pub const FIRST_PAGE_HEADER: usize = PAGE_HEADER + ARENA_HEADER;
/// Blocks are carved from new memory up to the next multiple of this.
pub const CARVE_SIZE: usize = SMALLEST_OS_PAGE;

/// The smallest page of the operating system on the supported processors.
pub const SMALLEST_OS_PAGE: usize = 4 << 10;
/// A line of the processor's cache.
pub const CACHE_LINE: usize = 64;
/// The number of bits of a program's addresses. (The kernel gives longer addresses only to programs that request
/// them.)
pub const ADDRESS_BITS: u32 = if cfg!(target_arch = "x86_64") { 47 } else { 48 };

/// The distance from the start of the heap's state to the arena table.
pub const STATE_SIZE: usize = 16 << 10;
/// The size of the arena table: a byte for each possible arena. 64 MiB of address space on x86-64.
pub const TABLE_SIZE: usize = 1 << (ADDRESS_BITS - ARENA_BITS);

/// The alignment of every block, and the step between the small classes.
pub const ALIGNMENT: usize = 16;
/// The size of a slot. It equals [`ALIGNMENT`], so that a small size, rounded up, is the offset of its slot.
pub const SLOT_SIZE: usize = 16;
/// The size of the label before each sampled block.
pub const LABEL_SIZE: usize = 16;

/// The largest request whose class the fast path computes.
pub const SMALL_LIMIT: usize = 512;
/// The number of small classes: 0, 16, 32, … 512 bytes. Class 0 is for requests of 0 bytes and has blocks of 16 bytes,
/// so the fast path needs no branch for them.
pub const SMALL_CLASSES: usize = SMALL_LIMIT / ALIGNMENT + 1;
/// The number of blocks of each medium class in a page.
pub const MEDIUM_BLOCKS: [usize; 12] = [28, 25, 23, 21, 19, 17, 16, 14, 12, 11, 9, 8];
/// The number of classes.
pub const CLASSES: usize = SMALL_CLASSES + MEDIUM_BLOCKS.len();
/// The size of the blocks of each class.
pub static BLOCK_SIZES: [u32; CLASSES] = block_sizes();
/// The largest request that has a class.
pub const MEDIUM_LIMIT: usize = block_sizes()[CLASSES - 1] as usize;

/// The block size of each group of classes. There are few sampled blocks, so several classes share pages for them. A
/// group has the classes whose blocks fit into its size, but not into the size of the group before.
pub const GROUP_BLOCK_SIZES: [usize; 10] = [
    32,
    64,
    96,
    128,
    192,
    256,
    384,
    SMALL_LIMIT,
    1008,
    MEDIUM_LIMIT,
];
/// The number of groups.
pub const GROUPS: usize = GROUP_BLOCK_SIZES.len();

const _: () = {
    assert!(PAGES_PER_ARENA == 128, "an arena's bitmaps are u128");
    assert!(
        PAGE_SIZE.is_power_of_two() && PAGE_SIZE <= 1 << 16,
        "offsets in a page are u16"
    );
    assert!(PAGE_SIZE.is_multiple_of(CARVE_SIZE));
    assert!(ARENA_SIZE.is_multiple_of(SMALLEST_OS_PAGE));
    assert!(PAGE_HEADER % CACHE_LINE == CACHE_LINE - ALIGNMENT);
    assert!(FIRST_PAGE_HEADER % CACHE_LINE == PAGE_HEADER % CACHE_LINE);
    assert!(STATE_SIZE.is_multiple_of(SMALLEST_OS_PAGE));
    assert!(SLOT_SIZE == ALIGNMENT);
    assert!(LABEL_SIZE.is_multiple_of(ALIGNMENT));
    assert!(SMALL_LIMIT.is_multiple_of(ALIGNMENT));
    assert!(
        CLASSES <= 1 << 8 && GROUPS <= 1 << 8,
        "classes and groups are u8"
    );
    assert!(
        FIRST_PAGE_HEADER + LABEL_SIZE + MEDIUM_LIMIT <= PAGE_SIZE,
        "every page holds a sampled block of any class"
    );
    let mut class = 1;
    while class < CLASSES {
        let [smaller, size] = [
            block_sizes()[class - 1] as usize,
            block_sizes()[class] as usize,
        ];
        assert!(size.is_multiple_of(ALIGNMENT) && (class == 1 || smaller < size));
        class += 1;
    }
};

#[allow(clippy::cast_possible_truncation)] // at most a page
const fn block_sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    sizes[0] = ALIGNMENT as u32;
    let mut class = 1;
    while class < CLASSES {
        sizes[class] = if class < SMALL_CLASSES {
            (class * ALIGNMENT) as u32
        } else {
            let share = (PAGE_SIZE - PAGE_HEADER) / MEDIUM_BLOCKS[class - SMALL_CLASSES];
            (share / ALIGNMENT * ALIGNMENT) as u32
        };
        class += 1;
    }
    sizes
}
