//! A session that begins late: what the process had before may be freed, and blocks of the session may be in its place. So many
//! made-up programs, whose live blocks are known, are sampled, and their rows compared with the truth.

use nthbyte_profile::composition::{Composition, Part};
use nthbyte_profile::event::Nanos;
use nthbyte_profile::meta::{Distances, Meta, Method, Source, SourceKind};
use nthbyte_profile::model::{Profile, SamplingId};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_report::memory::MemoryKey;
use nthbyte_report::{At, Estimate, MemoryReport};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const PERIOD: u64 = 64 << 10;
const END: Nanos = Nanos(1_000_000);
const BLOCK: u64 = 3008;
const MIB: f64 = (1 << 20) as f64;

/// What a process has at the end of a session, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// In use in the C library's heaps when the session began.
    before: u64,
    /// Of that, the bytes still in use.
    kept: u64,
    /// The same of blocks with mappings of their own.
    mapped_before: u64,
    mapped_kept: u64,
    /// Blocks of the session: the interpreter's, and of these those with a mapping of their own.
    large: u64,
    large_mapped: u64,
    /// Native blocks of the session.
    native: u64,
    /// Whether the C library was asked at the end, too.
    is_counted: bool,
}

impl Process {
    fn compositions(&self) -> Vec<Composition> {
        let mut first = Composition::at(Nanos(0));
        first.set(Part::LibraryUsed, self.before);
        first.set(Part::LibraryMapped, self.mapped_before);
        let used = self.kept + self.large - self.large_mapped + self.native;
        let mapped = self.mapped_kept + self.large_mapped;
        // A new mapping lies where one from before was, as long as there is room.
        let earlier = mapped.min(self.mapped_before);
        // What was freed stays in the heap.
        let heap = used.max(self.before) + (1 << 20);
        let mut last = Composition::at(END);
        for (part, bytes) in [
            (Part::LibraryHeap, heap),
            (Part::Earlier, earlier),
            (Part::Anonymous, mapped - earlier),
            (Part::FileText, 7 << 20),
            (Part::Resident, heap + mapped + (7 << 20)),
        ] {
            last.set(part, bytes);
        }
        if self.is_counted {
            last.set(Part::LibraryUsed, used);
            last.set(Part::LibraryMapped, mapped);
        }
        vec![first, last]
    }

    fn sampled(&self, random: &mut StdRng) -> Profile {
        let source =
            |kind, method| Source::allocations(kind, method, Distances::Exponential, PERIOD);
        let mut profile = Profile::empty(Meta {
            sources: vec![
                source(SourceKind::ObjectHeap, Method::CutFreeLists),
                source(SourceKind::Native, Method::Preload),
            ],
            ..Synthetic::default().meta()
        });
        let size_of = |mapped| if mapped { 40 << 20 } else { BLOCK };
        for (sampling, bytes, size) in [
            (0, self.large - self.large_mapped, size_of(false)),
            (0, self.large_mapped, size_of(true)),
            (1, self.native, size_of(false)),
        ] {
            for _ in 0..bytes / size {
                let probability = -(-(size as f64) / PERIOD as f64).exp_m1();
                if random.random::<f64>() >= probability {
                    continue;
                }
                let made = synthetic::sample(Nanos(1000), size, SamplingId(sampling));
                profile.samples.push(made);
            }
        }
        (profile.end, profile.complete) = (END, true);
        profile.processes[0].end = END;
        profile.processes[0].compositions = self.compositions();
        profile
    }
}

fn row(memory: &MemoryReport, key: MemoryKey) -> Estimate {
    memory
        .row(key)
        .map_or(Estimate::exact(0.0), |row| row.bytes)
}

/// In how many of a hundred sessions the interval of a row holds, and the mean of its estimate.
fn held(process: &Process, key: MemoryKey, truth: u64, random: &mut StdRng) -> (u32, f64) {
    let (mut holds, mut mean) = (0, 0.0);
    for _ in 0..100 {
        let memory = MemoryReport::of(&process.sampled(random), At::End).expect("it was recorded");
        let sum: f64 = memory.rows.iter().map(|row| row.bytes.estimate).sum();
        assert!((sum - memory.rss as f64).abs() < 1.0, "{:?}", memory.rows);
        let found = row(&memory, key);
        // To a byte: counts are converted.
        holds += u32::from(found.low <= truth as f64 + 1.0 && truth as f64 - 1.0 <= found.high);
        mean += found.estimate / 100.0;
    }
    (holds, mean)
}

#[test]
fn blocks_in_place_of_those_from_before_the_session_are_live_blocks() {
    const BLOCKS: u64 = 5000 * BLOCK;
    let mut random = StdRng::seed_from_u64(5);
    let late = Process {
        before: 16 << 20,
        kept: 1 << 20,
        large: BLOCKS,
        is_counted: true,
        ..Process::default()
    };
    let partly = Process {
        kept: 8 << 20,
        ..late
    };
    let not_asked = Process {
        is_counted: false,
        ..late
    };
    let native = Process {
        large: 0,
        native: BLOCKS,
        ..late
    };
    let mapped = Process {
        before: 1 << 20,
        mapped_before: 80 << 20,
        large: 80 << 20,
        large_mapped: 80 << 20,
        ..late
    };
    for (what, process, key, truth) in [
        ("late", late, MemoryKey::Large, BLOCKS),
        ("partly", partly, MemoryKey::Large, BLOCKS),
        ("not asked", not_asked, MemoryKey::Large, BLOCKS),
        ("native", native, MemoryKey::Native, BLOCKS),
        ("mapped", mapped, MemoryKey::Large, 80 << 20),
    ] {
        let (holds, mean) = held(&process, key, truth, &mut random);
        assert!(holds >= 90, "{what}: {holds} of 100");
        assert!((mean / truth as f64 - 1.0).abs() < 0.03, "{what}: {mean}");
        let memory =
            MemoryReport::of(&process.sampled(&mut random), At::End).expect("it was recorded");
        let before = row(&memory, MemoryKey::Before).estimate;
        let kept = (process.kept + process.mapped_kept) as f64;
        // The part taken off is known as well as the live blocks are.
        assert!((before - kept).abs() < 5.0 * MIB, "{what}: {before} {kept}");
    }
}

/// As long as the samples do not say otherwise, all that was there is there still.
#[test]
fn what_was_in_use_before_the_session_is_not_lost_by_chance() {
    let mut random = StdRng::seed_from_u64(6);
    let process = Process {
        before: 16 << 20,
        kept: 16 << 20,
        large: 2000 * BLOCK,
        is_counted: true,
        ..Process::default()
    };
    let (holds, mean) = held(&process, MemoryKey::Large, process.large, &mut random);
    assert!(holds >= 90, "{holds} of 100");
    // The counts tell that it is not more.
    assert!(
        (0.85..=1.02).contains(&(mean / process.large as f64)),
        "{mean}"
    );
    let mut unmoved = 0;
    for _ in 0..100 {
        let memory =
            MemoryReport::of(&process.sampled(&mut random), At::End).expect("it was recorded");
        unmoved += u32::from(row(&memory, MemoryKey::Before).estimate == process.before as f64);
    }
    assert!(unmoved >= 94, "{unmoved} of 100");
}

/// Where another allocator serves the interpreter, its blocks are in mappings, of which the C library knows nothing.
#[test]
fn blocks_of_another_allocator_are_not_taken_for_freed_ones_of_the_c_library() {
    let mut random = StdRng::seed_from_u64(7);
    let process = Process {
        before: 100 << 10,
        kept: 100 << 10,
        large: 5000 * BLOCK,
        is_counted: true,
        ..Process::default()
    };
    let mut profile = process.sampled(&mut random);
    let last = &mut profile.processes[0].compositions[1];
    last.set(Part::LibraryUsed, process.kept);
    last.set(Part::LibraryHeap, 200 << 10);
    last.set(Part::Anonymous, 20 << 20);
    last.set(Part::Resident, (200 << 10) + (27 << 20));
    let memory = MemoryReport::of(&profile, At::End).expect("it was recorded");
    let large = row(&memory, MemoryKey::Large);
    assert!(
        large.low <= process.large as f64 && process.large as f64 <= large.high,
        "{large:?}"
    );
    assert_eq!(
        row(&memory, MemoryKey::Before).estimate,
        process.before as f64
    );
}
