//! Which part of the resident set each mapping belongs to.
//!
//! The kernel says how much of each mapping is resident. A mapping without a file tells nothing else, and the kernel joins
//! neighbours. Knowledge of addresses comes from the host (its arenas, its own memory), from the images' headers (zeroed
//! data of libraries), and from the layout of the C library's heaps and stacks. Where memory of several kinds is in one
//! mapping, the kernel is asked for the resident pages of the smaller ones (`mincore`).

use std::ops::Range;

use nthbyte_host::memory::page_size;
use nthbyte_host::process::for_each_segment;
use nthbyte_profile::{Composition, Part};

use super::mappings::{Backing, MappingSizes};
use super::resident::resident;

/// glibc's heaps besides the break lie at multiples of this (`HEAP_MAX_SIZE`), and end there.
const LIBRARY_HEAP: usize = 64 << 20;
/// The largest inaccessible mapping before a stack that is taken for its guard. It is one page by default.
const LARGEST_GUARD: usize = 64 << 10;
/// `mincore` is asked for at most this many bytes of one composition; the rest is taken in proportion.
const MOST_ASKED: usize = 1 << 30;

pub(super) struct KnownAddresses<'a> {
    /// The arenas of the host's heap, in the order of addresses.
    pub(super) arenas: Vec<Range<usize>>,
    /// Memory of the agent, in the order of addresses.
    pub(super) own: Vec<Range<usize>>,
    /// Mappings from before the session, in the order of addresses.
    pub(super) earlier: &'a [Range<usize>],
}

/// Adds the mappings to a composition.
pub(super) fn classify(
    mappings: &[MappingSizes],
    known: &KnownAddresses<'_>,
    into: &mut Composition,
) {
    let mut images = Vec::new();
    for_each_segment(&mut |segment| {
        if segment.is_writable {
            images.push((segment.pages, segment.is_ours));
        }
    });
    images.sort_unstable_by_key(|(pages, _)| pages.start);
    let mut asked = Asked::default();
    let mut previous: Option<&MappingSizes> = None;
    // CUDA takes memory that it pins as a program takes memory that its children share. Where it has no device, it pins none.
    let has_gpu = mappings.iter().any(|of| of.backing == Backing::GpuDevice);
    for (at, mapping) in mappings.iter().enumerate() {
        into.add(Part::Resident, mapping.resident);
        into.add(Part::Swapped, mapping.swapped);
        match mapping.backing {
            Backing::Break => into.add(Part::LibraryHeap, mapping.resident),
            Backing::LibraryHeap => into.add(Part::LibraryHeap, mapping.resident),
            Backing::Stack => into.add(Part::Stacks, mapping.resident),
            Backing::Shared => into.add(Part::Shared, mapping.resident),
            Backing::Agent => into.add(Part::AgentImages, mapping.resident),
            Backing::File => {
                let written = mapping.anonymous.min(mapping.resident);
                into.add(Part::FileData, written);
                into.add(Part::FileText, mapping.resident - written);
            }
            Backing::CudaFile => into.add(Part::CudaFiles, mapping.resident),
            Backing::GpuDevice => into.add(Part::Pinned, mapping.resident),
            Backing::SharedAnonymous if has_gpu => {
                let range = mapping.start..mapping.end;
                let own = overlapping(&known.own, &range).map(|own| asked.resident(&own, mapping));
                let own = own.sum::<u64>().min(mapping.resident);
                into.add(Part::AgentMemory, own);
                into.add(Part::Pinned, mapping.resident - own);
            }
            Backing::SharedAnonymous => {
                let next = mappings.get(at + 1);
                anonymous(mapping, next, known, &mut asked, into);
            }
            Backing::Anonymous => {
                let zeroed = images
                    .iter()
                    .find(|(pages, _)| pages.contains(&mapping.start) && mapping.end <= pages.end);
                let next = mappings.get(at + 1);
                match zeroed {
                    Some((_, true)) => into.add(Part::AgentImages, mapping.resident),
                    Some((_, false)) => into.add(Part::FileData, mapping.resident),
                    None if is_stack(previous, mapping) => {
                        into.add(Part::Stacks, mapping.resident);
                    }
                    None => anonymous(mapping, next, known, &mut asked, into),
                }
            }
        }
        previous = Some(mapping);
    }
}

/// Whether an anonymous mapping is the stack of a thread: glibc puts an inaccessible page before it. Stacks of ended
/// threads that it keeps are counted too.
fn is_stack(previous: Option<&MappingSizes>, mapping: &MappingSizes) -> bool {
    mapping.is_writable
        && !mapping.start.is_multiple_of(LIBRARY_HEAP)
        && previous.is_some_and(|before| {
            before.end == mapping.start
                && before.backing == Backing::Anonymous
                && !before.is_readable
                && !before.is_writable
                && before.size() <= LARGEST_GUARD
        })
}

/// Whether an anonymous mapping is one of glibc's heaps: what it has not used yet follows as an inaccessible mapping.
fn is_library_heap(mapping: &MappingSizes, next: Option<&MappingSizes>) -> bool {
    let end = mapping.start + LIBRARY_HEAP;
    mapping.start.is_multiple_of(LIBRARY_HEAP)
        && mapping.is_writable
        && next.is_some_and(|next| {
            next.start == mapping.end
                && next.end == end
                && next.backing == Backing::Anonymous
                && !next.is_readable
        })
}

fn anonymous(
    mapping: &MappingSizes,
    next: Option<&MappingSizes>,
    known: &KnownAddresses<'_>,
    asked: &mut Asked,
    into: &mut Composition,
) {
    let range = mapping.start..mapping.end;
    let mut rest = mapping.resident;
    let mut size = mapping.size();
    if rest == 0 {
        return;
    }
    for own in overlapping(&known.own, &range) {
        let resident = asked.resident(&own, mapping).min(rest);
        into.add(Part::AgentMemory, resident);
        (rest, size) = (rest - resident, size - own.len().min(size));
    }
    let arenas: usize = overlapping(&known.arenas, &range)
        .map(|arenas| arenas.len())
        .sum();
    if arenas > 0 {
        let resident = if arenas >= size {
            rest
        } else {
            overlapping(&known.arenas, &range)
                .map(|arenas| asked.resident(&arenas, mapping))
                .sum::<u64>()
                .min(rest)
        };
        into.add(Part::Arenas, resident);
        (rest, size) = (rest - resident, size.saturating_sub(arenas));
    }
    if size == 0 || rest == 0 {
        return;
    }
    if mapping.is_executable {
        into.add(Part::MachineCode, rest);
    } else if is_library_heap(mapping, next) {
        into.add(Part::LibraryHeap, rest);
    } else {
        // The agent has memory from before the session too.
        let earlier: Vec<Range<usize>> = overlapping(known.earlier, &range)
            .flat_map(|part| outside(&known.own, part))
            .collect();
        let before: usize = earlier.iter().map(Range::len).sum();
        let resident = if before >= size {
            rest
        } else {
            let parts = earlier.iter();
            parts
                .map(|part| asked.resident(part, mapping))
                .sum::<u64>()
                .min(rest)
        };
        into.add(Part::Earlier, resident);
        into.add(Part::Anonymous, rest - resident);
    }
}

/// The parts of ranges that lie within another one.
fn overlapping<'a>(
    ranges: &'a [Range<usize>],
    within: &'a Range<usize>,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let first = ranges.partition_point(|range| range.end <= within.start);
    let ranges = ranges[first..].iter();
    ranges
        .take_while(|range| range.start < within.end)
        .map(|range| range.start.max(within.start)..range.end.min(within.end))
        .filter(|range| !range.is_empty())
}

/// The parts of a range that lie in none of `ranges`, which are in order. Their last pages belong to them as a whole.
fn outside(ranges: &[Range<usize>], within: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = within.start;
    for taken in overlapping(ranges, &within) {
        parts.push(start..taken.start);
        start = taken.end.next_multiple_of(page_size());
    }
    parts.push(start..within.end);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Asks the kernel which pages are resident, up to a limit.
#[derive(Default)]
struct Asked {
    bytes: usize,
}

impl Asked {
    /// The resident bytes of a part of a mapping.
    fn resident(&mut self, part: &Range<usize>, mapping: &MappingSizes) -> u64 {
        if part.len() >= mapping.size() {
            return mapping.resident;
        }
        if self.bytes.saturating_add(part.len()) > MOST_ASKED {
            return (mapping.resident as f64 * (part.len() as f64 / mapping.size() as f64)) as u64;
        }
        self.bytes += part.len();
        resident(part.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composition::mappings;
    use nthbyte_host::memory::SMALLEST_PAGE as PAGE;
    use nthbyte_profile::event::Nanos;

    fn mapping(start: usize, size: usize, resident: usize) -> MappingSizes {
        MappingSizes {
            start,
            end: start + size,
            backing: Backing::Anonymous,
            is_readable: true,
            is_writable: true,
            is_executable: false,
            resident: resident as u64,
            anonymous: resident as u64,
            swapped: 0,
        }
    }

    #[test]
    fn what_is_outside_has_no_byte_of_the_ranges() {
        let page = |pages: Range<usize>| pages.start * PAGE..pages.end * PAGE;
        // The last page of the second one is partly its own.
        let ranges = [page(2..4), 6 * PAGE..7 * PAGE + 10, page(9..12)];
        let found = outside(&ranges, page(3..10));
        assert_eq!(found, [page(4..6), page(8..9)]);
        assert_eq!(outside(&ranges, page(2..4)), []);
        assert_eq!(outside(&[], page(2..4)), [page(2..4)]);
    }

    fn closed(start: usize, size: usize) -> MappingSizes {
        MappingSizes {
            is_readable: false,
            is_writable: false,
            ..mapping(start, size, 0)
        }
    }

    const MIB: usize = 1 << 20;
    /// Far from what a process has.
    const BASE: usize = 0x1000_0000_0000;

    fn parts(mappings: &[MappingSizes], known: &KnownAddresses<'_>) -> Composition {
        let mut into = Composition::at(Nanos(0));
        classify(mappings, known, &mut into);
        into
    }

    #[test]
    fn the_parts_add_up_and_are_told_by_their_layout() {
        let file = |backing, resident, anonymous| MappingSizes {
            backing,
            anonymous: anonymous as u64,
            ..mapping(0x1000, 0x1000, resident)
        };
        let code = MappingSizes {
            is_executable: true,
            ..mapping(BASE + 500 * MIB, MIB, 6)
        };
        let mappings = [
            file(Backing::File, 100, 40),
            file(Backing::Agent, 20, 0),
            file(Backing::Shared, 3, 0),
            file(Backing::SharedAnonymous, 50, 0),
            file(Backing::Break, 1000, 1000),
            // Arenas only; a heap of the C library; a stack; memory from before; other memory.
            mapping(BASE + 64 * MIB, 4 * MIB, 3 * MIB),
            mapping(BASE + 128 * MIB, MIB, 5000),
            closed(BASE + 129 * MIB, 63 * MIB),
            closed(BASE + 200 * MIB, 4096),
            mapping(BASE + 200 * MIB + 4096, 8 * MIB, 700),
            mapping(BASE + 300 * MIB, MIB, 800),
            mapping(BASE + 400 * MIB, MIB, 900),
            code,
        ];
        let earlier = BASE + 300 * MIB..BASE + 301 * MIB;
        let known = KnownAddresses {
            arenas: std::iter::once(BASE + 64 * MIB..BASE + 68 * MIB).collect(),
            own: Vec::new(),
            earlier: std::slice::from_ref(&earlier),
        };
        let found = parts(&mappings, &known);
        for (part, bytes) in [
            (Part::FileText, 60),
            (Part::FileData, 40),
            (Part::AgentImages, 20),
            (Part::Shared, 3),
            (Part::LibraryHeap, 6000),
            (Part::Arenas, 3 * MIB as u64),
            (Part::Stacks, 700),
            (Part::Earlier, 800),
            (Part::Anonymous, 900 + 50),
            (Part::MachineCode, 6),
        ] {
            assert_eq!(found.get(part), Some(bytes), "{part:?}");
        }
        let sum: u64 = found
            .parts()
            .filter(|(part, _)| !matches!(part, Part::Resident | Part::Swapped))
            .map(|(_, bytes)| bytes)
            .sum();
        assert_eq!(found.get(Part::Resident), Some(sum));
    }

    /// The lines are those of real processes: <https://github.com/checkpoint-restore/criu/issues/2515> has a list of mappings, and that
    /// what `cudaHostAlloc` returns is shared memory was measured in <https://github.com/MakazhanAlpamys/Soup/issues/655>.
    #[test]
    fn memory_of_cuda_is_named() {
        let text = "\
200000000-200200000 ---p 00000000 00:00 0
200400000-200600000 rw-s 00000000 00:05 1001                 /dev/nvidiactl
Rss: 1024 kB
203400000-206000000 ---p 00000000 00:00 0
7f0000000000-7f0001000000 r-xp 00000000 00:20 5              /usr/lib/x86_64-linux-gnu/libcuda.so.570.195.03
Rss: 8 kB
7f0002000000-7f0003000000 rw-p 00000000 00:20 6              /venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn_ops.so.9
Rss: 16 kB
Anonymous: 12 kB
7f0004000000-7f0005000000 r--p 00000000 00:20 7              /venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so
Rss: 32 kB
7f0006000000-7f0007000000 r--p 00000000 00:20 8              /venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so
Rss: 64 kB
7f0008000000-7f0108000000 rw-s 00000000 00:01 9              /dev/zero (deleted)
Rss: 4096 kB
7f0200000000-7f0201000000 rw-s 00000000 00:1a 10             /dev/shm/torch_77_1 (deleted)
Rss: 128 kB
";
        let known = KnownAddresses {
            arenas: Vec::new(),
            own: Vec::new(),
            earlier: &[],
        };
        let of = |text: &str| parts(&mappings::parse(text.as_bytes(), || true).unwrap(), &known);
        let found = of(text);
        for (part, kibibytes) in [
            (Part::CudaFiles, 8 + 16 + 32),
            (Part::Pinned, 1024 + 4096),
            (Part::FileText, 64),
            (Part::Shared, 128),
        ] {
            assert_eq!(found.get(part), Some(kibibytes << 10), "{part:?}");
        }
        assert_eq!(found.get(Part::Anonymous).unwrap_or(0), 0);
        // The same libraries in a program that uses no GPU.
        let found = of(&text.replace("/dev/nvidiactl", ""));
        assert_eq!(found.get(Part::Anonymous), Some((1024 + 4096) << 10));
        assert_eq!(found.get(Part::Pinned), None);
    }

    #[test]
    fn resident_pages_of_a_part_are_asked_for() {
        let mut memory = vec![0u8; 8 * MIB];
        let start = (memory.as_mut_ptr() as usize).next_multiple_of(PAGE);
        let touched = 3 * MIB;
        memory[..touched].fill(1);
        std::hint::black_box(&memory);
        let part = start..start + 4 * MIB;
        let known = KnownAddresses {
            arenas: Vec::new(),
            own: vec![part.clone()],
            earlier: &[],
        };
        // The sizes are of the test's own memory; other tests do not touch it.
        let whole = mapping(start, 7 * MIB, touched);
        let found = parts(&[whole], &known);
        let own = found.get(Part::AgentMemory).unwrap();
        assert!(own.abs_diff(touched as u64) <= 2 * MIB as u64, "{own}");
        assert_eq!(
            found.get(Part::Anonymous).unwrap_or(0) + own,
            touched as u64,
            "huge pages may make more of it resident, but not more than the mapping has"
        );
        assert_eq!(resident(0x1000..0x2000), 0);
    }
}
