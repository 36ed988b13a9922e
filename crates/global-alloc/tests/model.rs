//! Random requests of several threads, in and between sessions, against a model: each block keeps its content, has its
//! alignment, and goes back to the inner allocator with the layout that it was asked for.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod checked;

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::sync::Mutex;
use std::thread;

use checked::Checked;
use nthbyte_global_alloc::{Options, Sampled, start};
use nthbyte_sampling::Random;

#[global_allocator]
static ALLOCATOR: Sampled<Checked> = Sampled::new(Checked);

const ROUNDS: usize = 10_000;
/// Blocks of a thread at a time.
const PLACES: usize = 300;

/// A block, filled with one value.
struct Block {
    start: *mut u8,
    layout: Layout,
    value: u8,
}

// SAFETY: one thread has it at a time.
unsafe impl Send for Block {}

impl Block {
    fn new(random: &mut Random) -> Self {
        let align = 1
            << (random.next_u64()
                % if random.next_u64().is_multiple_of(50) {
                    14
                } else {
                    5
                });
        let layout = Layout::from_size_align(size(random), align).unwrap();
        let is_zeroed = random.next_u64().is_multiple_of(3);
        let value = random.next_u64() as u8;
        // SAFETY: the size is not zero, and the block has this size.
        unsafe {
            let start = if is_zeroed {
                alloc_zeroed(layout)
            } else {
                alloc(layout)
            };
            let block = Self {
                start,
                layout,
                value: 0,
            };
            if is_zeroed {
                block.check(layout.size());
            }
            start.write_bytes(value, layout.size());
            Self { value, ..block }
        }
    }

    fn resize(&mut self, random: &mut Random) {
        let size = size(random);
        let kept = size.min(self.layout.size());
        // SAFETY: the block has this layout, and then the new size.
        unsafe {
            self.start = realloc(self.start, self.layout, size);
            self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
            self.check(kept);
            self.start.write_bytes(self.value, size);
        }
    }

    /// Checks the alignment, and the first bytes.
    fn check(&self, bytes: usize) {
        assert!((self.start as usize).is_multiple_of(self.layout.align()));
        // SAFETY: the block has as many bytes, which were written.
        let content = unsafe { std::slice::from_raw_parts(self.start, bytes) };
        assert!(content.iter().all(|&byte| byte == self.value));
    }

    fn free(self) {
        self.check(self.layout.size());
        // SAFETY: the block has this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

fn size(random: &mut Random) -> usize {
    let most = match random.next_u64() % 100 {
        0 => 300_000,
        1..10 => 40_000,
        10..40 => 5_000,
        _ => 200,
    };
    (random.next_u64() % most + 1) as usize
}

/// Blocks that one thread has left for others.
static LEFT: Mutex<Vec<Block>> = Mutex::new(Vec::new());

fn churn(seed: u64) {
    let mut random = Random::new(seed);
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..ROUNDS {
        let at = (random.next_u64() % PLACES as u64) as usize;
        match random.next_u64() % 3 {
            _ if at >= blocks.len() => blocks.push(Block::new(&mut random)),
            0 => blocks[at].resize(&mut random),
            1 => std::mem::replace(&mut blocks[at], Block::new(&mut random)).free(),
            _ => blocks.swap_remove(at).free(),
        }
    }
    LEFT.lock().unwrap().extend(blocks);
}

fn churn_in_threads(seed: u64) {
    let mut random = Random::new(seed);
    let threads = [1, 2, 3].map(|number| thread::spawn(move || churn(seed * 10 + number)));
    for thread in threads {
        thread.join().unwrap();
    }
    // Half of the live blocks go on into the next session.
    let mut left = LEFT.lock().unwrap();
    for _ in 0..left.len() / 2 {
        let at = (random.next_u64() % left.len() as u64) as usize;
        left.swap_remove(at).free();
    }
}

#[test]
fn blocks_are_as_without_sampling() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, every) in [1, 64 << 10, 100, 16 << 10, 1, 512 << 10]
        .into_iter()
        .enumerate()
    {
        let path = folder.path().join("out.nthb");
        let session = start(Options::new().output(path).force().every(every)).unwrap();
        churn_in_threads(2 * seed as u64 + 1);
        assert!(session.stop().samples > 0);
        churn_in_threads(2 * seed as u64 + 2);
    }
    for block in LEFT.lock().unwrap().drain(..) {
        block.free();
    }
}
