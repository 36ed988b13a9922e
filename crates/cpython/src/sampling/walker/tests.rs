//! Walks of a made-up interpreter, whose stack of frames is a copy of CPython's in small: chunks have 64 words.

use nthbyte_sampling::Random;

use super::*;
use crate::layout::Features;

const WORDS: usize = 64;
/// Words before a chunk's frames.
const HEADER: usize = 3;
const CODE_TYPE: usize = 0x1234;
/// Fields of a frame, by word.
const FRAME: usize = 4;
/// More frames than a chunk has.
const CHUNK_FRAMES: usize = WORDS / FRAME;

fn layout() -> Layout {
    Layout {
        thread_cframe: UNUSED,
        thread_chunk: 0,
        current_frame: 24,
        frame_code: 0,
        frame_instruction: 8,
        frame_owner: 16,
        frame_previous: 24,
        code_instructions: 200,
        features: Features {
            reference_tags: 7,
            ..Layout::COMMON.features
        },
        ..Layout::COMMON
    }
}

fn read(at: usize) -> usize {
    // SAFETY: a word of the machine.
    unsafe { (at as *const usize).read() }
}

fn write(at: usize, value: usize) {
    // SAFETY: as above.
    unsafe { (at as *mut usize).write(value) }
}

fn allocate(words: usize) -> usize {
    Box::leak(vec![0_usize; words].into_boxed_slice()).as_mut_ptr() as usize
}

/// What becomes of a chunk's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The thread keeps the last chunk that ended, and uses it again as it is (3.13.18, 3.14.10, 3.15).
    Kept,
    /// It is unmapped, and the next chunk has zeroes in the same place.
    Unmapped,
}

struct Machine {
    /// Chunk, top, limit, current frame.
    thread: usize,
    memory: Memory,
    /// Chunks that may be used again.
    free: Vec<usize>,
    codes: Vec<usize>,
    /// The stack, outermost first: frames, and whether they lie in chunks.
    frames: Vec<(usize, bool)>,
}

impl Machine {
    fn new(memory: Memory) -> Self {
        let codes = (0..5).map(|_| {
            let code = allocate(32);
            write(code + 8, CODE_TYPE);
            code
        });
        Self {
            thread: allocate(4),
            memory,
            free: Vec::new(),
            codes: codes.collect(),
            frames: Vec::new(),
        }
    }

    fn chunk(&self) -> usize {
        read(self.thread)
    }

    fn set_chunk(&self, chunk: usize, top: usize) {
        write(self.thread, chunk);
        write(self.thread + 8, top);
        write(self.thread + 16, chunk + 8 * WORDS);
    }

    /// `_PyThreadState_PushFrame`: memory for a frame.
    fn take(&mut self, words: usize) -> usize {
        let (chunk, top) = (self.chunk(), read(self.thread + 8));
        if chunk != 0 && top + 8 * words < read(self.thread + 16) {
            write(self.thread + 8, top + 8 * words);
            return top;
        }
        let new = self.free.pop().unwrap_or_else(|| allocate(WORDS));
        write(new, chunk);
        write(new + 8, 8 * WORDS);
        write(new + 16, 0);
        if chunk != 0 {
            write(chunk + 16, (top - (chunk + 8 * HEADER)) / 8);
        }
        // The first frame of the outermost chunk is never at its start.
        let frame = new + 8 * (HEADER + usize::from(chunk == 0));
        self.set_chunk(new, frame + 8 * words);
        frame
    }

    /// `_PyThreadState_PopFrame`.
    fn give_back(&mut self, frame: usize) {
        let chunk = self.chunk();
        if frame != chunk + 8 * HEADER {
            write(self.thread + 8, frame);
            return;
        }
        let previous = read(chunk);
        let top = (previous + 8 * HEADER).wrapping_add(read(previous + 16).wrapping_mul(8));
        self.set_chunk(previous, top);
        write(chunk, 0);
        if self.memory == Memory::Unmapped {
            (0..WORDS).for_each(|word| write(chunk + 8 * word, 0));
        }
        self.free.push(chunk);
    }

    fn enter(&mut self, frame: usize, in_chunk: bool, random: &mut Random) {
        let code = self.codes[random.next_u64() as usize % 5];
        write(frame, code | 1);
        write(frame + 8, code + 200 + random.next_u64() as usize % 3);
        // Some have no code, as a call from C.
        let has_code = !random.next_u64().is_multiple_of(9);
        write(frame + 16, if has_code { 0 } else { 3 });
        write(frame + 24, read(self.thread + 24));
        write(self.thread + 24, frame);
        self.frames.push((frame, in_chunk));
    }

    fn call(&mut self, random: &mut Random) {
        let words = FRAME + random.next_u64() as usize % 3;
        let frame = self.take(words);
        self.enter(frame, true, random);
    }

    /// A generator runs: its frame is in no chunk.
    fn resume(&mut self, random: &mut Random) {
        let frame = allocate(FRAME);
        self.enter(frame, false, random);
    }

    fn go_on(&mut self, random: &mut Random) {
        if let Some(&(frame, _)) = self.frames.last() {
            let code = read(frame) & !7;
            write(frame + 8, code + 200 + random.next_u64() as usize % 3);
        }
    }

    fn leave(&mut self, random: &mut Random) {
        let Some((frame, in_chunk)) = self.frames.pop() else {
            return;
        };
        write(self.thread + 24, read(frame + 24));
        if in_chunk {
            self.give_back(frame);
        }
        self.go_on(random);
    }

    /// All frames with code, outermost first.
    fn truth(&self) -> Vec<Seen> {
        let with_code = self
            .frames
            .iter()
            .filter(|(frame, _)| read(frame + 16) & 0xff == 0);
        with_code
            .map(|&(frame, _)| Seen {
                code: read(frame) & !7,
                instruction: read(frame + 8),
            })
            .collect()
    }
}

/// A walker without a recording. Returns the number of frames that it has read.
fn walk(walker: &mut Walker, machine: &Machine, codes: &Codes, epoch: Epoch) -> usize {
    let layout = layout();
    let thread = machine.thread;
    // SAFETY: the machine's thread, with this layout.
    unsafe {
        let end = walker.read(&layout, thread, codes, epoch).unwrap();
        let placed = walker.placed.of_or_begin(epoch, LastStack::clear);
        placed.take(&walker.walk, end, walker.reader).unwrap();
    }
    walker.walk.seen.len()
}

fn placed(walker: &mut Walker, epoch: Epoch) -> &LastStack {
    walker.placed.of_or_begin(epoch, LastStack::clear)
}

#[test]
fn walks_find_the_stack() {
    let codes = Codes::for_test(CODE_TYPE);
    let epoch = Epoch::for_test(1);
    for (memory, seed) in [(Memory::Kept, 1), (Memory::Unmapped, 2), (Memory::Kept, 3)] {
        let mut random = Random::new(seed);
        let mut machine = Machine::new(memory);
        // Two walkers share the chunks, and see other moments.
        let mut walkers = [
            Walker::new(StackReader::Objects),
            Walker::new(StackReader::Native),
        ];
        let mut read = 0;
        let mut all = 0;
        for round in 0..12_000 {
            let wanted = if round % 600 < 300 { 60 } else { 40 };
            for _ in 0..random.next_u64() % 8 {
                match random.next_u64() % 100 {
                    0..4 => machine.resume(&mut random),
                    4..10 => machine.go_on(&mut random),
                    choice if choice < wanted => machine.call(&mut random),
                    _ => machine.leave(&mut random),
                }
            }
            // A frame that is being made, whose caller goes on afterwards.
            let made = random.next_u64().is_multiple_of(50);
            let half = made.then(|| machine.take(FRAME));
            let walker = &mut walkers[usize::from(random.next_u64().is_multiple_of(3))];
            read += walk(walker, &machine, &codes, epoch);
            let truth = machine.truth();
            all += truth.len();
            assert_eq!(placed(walker, epoch).frames, truth, "{memory:?} {round}");
            if let Some(half) = half {
                if random.next_u64().is_multiple_of(2) {
                    machine.go_on(&mut random);
                    machine.enter(half, true, &mut random);
                } else {
                    machine.give_back(half);
                    machine.go_on(&mut random);
                }
            }
        }
        assert!(read * 4 < all, "{read} of {all}");
    }
}

/// What a walk reads does not depend on the depth, also where the innermost frames come and go across a chunk's end.
#[test]
fn a_walk_reads_what_has_changed() {
    let codes = Codes::for_test(CODE_TYPE);
    let epoch = Epoch::for_test(1);
    let mut random = Random::new(5);
    for depth in [100, 4000] {
        let mut machine = Machine::new(Memory::Kept);
        let mut walker = Walker::new(StackReader::Objects);
        (0..depth).for_each(|_| machine.call(&mut random));
        walk(&mut walker, &machine, &codes, epoch);
        for _ in 0..100 {
            for turn in 0..2 * CHUNK_FRAMES {
                if turn < CHUNK_FRAMES {
                    machine.call(&mut random);
                } else {
                    machine.leave(&mut random);
                }
                let read = walk(&mut walker, &machine, &codes, epoch);
                assert!(read <= 4 * CHUNK_FRAMES, "{read} at {depth}");
            }
        }
        assert_eq!(placed(&mut walker, epoch).frames, machine.truth());
    }
}

/// A stack that is too deep keeps its innermost frames, and few of them get another place at a time.
#[test]
fn deep_stacks_keep_their_innermost_frames() {
    let codes = Codes::for_test(CODE_TYPE);
    let epoch = Epoch::for_test(1);
    let mut random = Random::new(6);
    let mut machine = Machine::new(Memory::Kept);
    let mut walker = Walker::new(StackReader::Objects);
    let (mut read, mut moved, mut walks) = (0, 0, 0);
    let mut dropped = 0;
    for turn in 0..20_000 {
        if turn < 10_000 {
            machine.call(&mut random);
        } else {
            machine.leave(&mut random);
        }
        if turn % 23 != 0 {
            continue;
        }
        walks += 1;
        read += walk(&mut walker, &machine, &codes, epoch);
        let (truth, placed) = (machine.truth(), placed(&mut walker, epoch));
        let kept = placed.frames.len();
        assert_eq!(placed.frames, truth[truth.len() - kept..]);
        assert_eq!(placed.is_cut, kept < truth.len());
        assert!(kept <= MAX_DEPTH && (!placed.is_cut || kept >= LEAST_DEPTH));
        if dropped != truth.len() - kept {
            dropped = truth.len() - kept;
            moved += kept;
        }
    }
    assert!(
        read < 60 * walks && moved < 60 * walks,
        "{read} {moved} in {walks}"
    );
}
