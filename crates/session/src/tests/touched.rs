//! Mappings whose touched part counts.

use std::ops::Range;

use nthbyte_host::memory::SMALLEST_PAGE as PAGE;
use nthbyte_profile::event::{LostKind, Nanos, NodeId};

use super::{Profile, a_function, alone, of_size, start};
use crate::composition::page_tables::tests::map;
use crate::native::touched;
use crate::{Recording, Session};

/// A mapping of this test, which is looked at.
struct Mapped {
    memory: *mut u8,
    pages: usize,
    number: u32,
}

impl Mapped {
    /// Maps memory with this many sample points.
    fn new(session: &Session, pages: usize, points: u32) -> Self {
        let memory = map(pages, libc::MAP_PRIVATE);
        let mut recording = session.record(LostKind::Other).unwrap();
        let number = Self::add(&mut recording, memory, pages, points, true);
        Self {
            memory,
            pages,
            number,
        }
    }

    fn add(
        recording: &mut Recording<'_>,
        memory: *mut u8,
        pages: usize,
        points: u32,
        has_stack: bool,
    ) -> u32 {
        let bytes = pages * PAGE;
        let mut sample = of_size(recording, NodeId::ROOT, bytes as u64).unwrap();
        sample.points = points;
        let period = recording.period();
        let range = memory.addr()..memory.addr() + bytes;
        touched::add(recording, sample, period, range, has_stack).unwrap()
    }

    fn touch(&self, pages: Range<usize>) {
        for page in pages {
            // SAFETY: the page is in the mapping.
            unsafe { self.memory.add(page * PAGE).write(1) };
        }
    }

    /// Gives pages back, as an allocator does.
    fn purge(&self, pages: Range<usize>) {
        // SAFETY: the pages are in the mapping, and nothing reads them again.
        unsafe {
            let start = self.memory.add(pages.start * PAGE).cast();
            libc::madvise(start, pages.len() * PAGE, libc::MADV_DONTNEED);
        }
    }

    /// Unmaps pages, as the program does.
    fn unmap(&self, pages: Range<usize>) {
        let start = self.memory.addr();
        touched::unmap(&(start + pages.start * PAGE..start + pages.end * PAGE));
        // SAFETY: as above.
        unsafe {
            let start = self.memory.add(pages.start * PAGE).cast();
            libc::munmap(start, pages.len() * PAGE);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this test's; its unmapped parts belong to no other test, which waits.
        unsafe { libc::munmap(self.memory.cast(), self.pages * PAGE) };
    }
}

/// The sizes of the samples, in pages, and of those that were not freed.
fn pages(profile: &Profile) -> (Vec<u64>, u64) {
    let sizes = profile.allocations.iter();
    let sizes: Vec<u64> = sizes.map(|of| of.size / PAGE as u64).collect();
    let freed = profile.freed.iter().map(|of| sizes[of.0 as usize]);
    let alive = sizes.iter().sum::<u64>() - freed.sum::<u64>();
    (sizes, alive)
}

/// Records every byte, calls `work`, and reads the profile.
fn every_byte(work: impl FnOnce(&Session)) -> Profile {
    let (_alone, path) = alone("touched.nthb");
    let session = start(&path, "every", 1);
    work(&session);
    session.finish(None);
    let profile = Profile::read(&path);
    assert_eq!(profile.lost, 0);
    profile
}

#[test]
fn what_is_touched_is_allocated_and_what_is_purged_is_freed() {
    let profile = every_byte(|session| {
        let mapped = Mapped::new(session, 4096, u32::MAX);
        touched::look(Nanos(1000), true);
        mapped.touch(10..20);
        touched::look(Nanos(2000), true);
        touched::look(Nanos(3000), true);
        mapped.touch(0..1034);
        touched::look(Nanos(4000), false);
        // As large as a piece; then a part of one, of which the rest counts anew.
        mapped.purge(10..20);
        touched::look(Nanos(5000), true);
        mapped.purge(20..532);
        touched::look(Nanos(6000), true);
    });
    let (sizes, alive) = pages(&profile);
    assert_eq!(sizes, [10, 1024, 256, 256]);
    assert_eq!(alive, 512);
    let times: Vec<u64> = profile.allocations.iter().map(|of| of.time.0).collect();
    assert_eq!(times, [2000, 4000, 6000, 6000]);
}

/// Memory found at the first look was touched soon after the request.
#[test]
fn the_first_look_has_the_time_of_the_request() {
    let mut requested = Nanos(0);
    let profile = every_byte(|session| {
        requested = session.record(LostKind::Other).unwrap().now();
        let mapped = Mapped::new(session, 64, u32::MAX);
        mapped.touch(0..3);
        touched::look(Nanos(u64::MAX), true);
    });
    assert!(profile.allocations[0].time >= requested && profile.allocations[0].time.0 < u64::MAX);
}

/// An allocator maps more than it needs, and unmaps the unaligned ends; then it unmaps the rest in two steps.
#[test]
fn a_part_that_is_unmapped_is_freed() {
    let profile = every_byte(|session| {
        let mapped = Mapped::new(session, 1000, u32::MAX);
        mapped.unmap(0..100);
        mapped.unmap(900..1000);
        mapped.touch(200..300);
        touched::look(Nanos(1000), true);
        // What was touched since the last look is seen before it is unmapped.
        mapped.touch(400..700);
        mapped.unmap(300..900);
        // Of another mapping, which takes the place, nothing counts.
        mapped.unmap(100..300);
        let other = map(600, libc::MAP_PRIVATE | libc::MAP_POPULATE);
        touched::look(Nanos(2000), true);
        // SAFETY: the mapping is this test's, and unused.
        unsafe { libc::munmap(other.cast(), 600 * PAGE) };
    });
    let (sizes, alive) = pages(&profile);
    assert_eq!((sizes.iter().sum::<u64>(), alive), (400, 0), "{sizes:?}");
}

#[test]
fn a_mapping_whose_stack_comes_later_has_all_its_pieces_then() {
    for is_freed in [false, true] {
        let profile = every_byte(|session| {
            let memory = map(64, libc::MAP_PRIVATE);
            let mut recording = session.record(LostKind::Other).unwrap();
            let number = Mapped::add(&mut recording, memory, 64, u32::MAX, false);
            drop(recording);
            let mapped = Mapped {
                memory,
                pages: 64,
                number,
            };
            mapped.touch(0..5);
            touched::look(Nanos(1000), true);
            if is_freed {
                mapped.unmap(0..64);
            }
            let mut recording = session.record(LostKind::Other).unwrap();
            let stack = a_function(&mut recording, 7);
            touched::complete(&mut recording, mapped.number, Some(stack));
        });
        let (sizes, alive) = pages(&profile);
        assert_eq!((sizes, alive), (vec![5], if is_freed { 0 } else { 5 }));
        assert_eq!(profile.function(profile.allocations[0].stack), "function 7");
    }
}

/// Sample points of small mappings and of large ones stand for what was touched: a point for each period.
#[test]
fn samples_stand_for_what_was_touched() {
    const PERIOD: u64 = 16 * PAGE as u64;
    let (_alone, path) = alone("touched.nthb");
    let session = start(&path, "exponential", PERIOD);
    let mut truth = 0;
    let mut seed = 1;
    for (size, mappings) in [(32, 400_u64), (2048, 8)] {
        for number in 0..mappings {
            let drawn = touched::points_of(PERIOD, size as u64 * PAGE as u64, seed);
            seed += 1;
            truth += size as u64 / 4 + size as u64 / 8;
            if drawn == 0 {
                continue;
            }
            let mapped = Mapped::new(&session, size, drawn);
            mapped.touch(0..size / 4);
            touched::look(Nanos(number), true);
            mapped.touch(size / 2..size / 2 + size / 8);
            mapped.unmap(0..size);
        }
    }
    session.finish(None);
    let profile = Profile::read(&path);
    let points: u64 = profile
        .allocations
        .iter()
        .map(|of| u64::from(of.points))
        .sum();
    let expected = (truth * PAGE as u64 / PERIOD) as f64;
    // Six standard deviations of a Poisson count: one in 500 million.
    let error = (points as f64 - expected).abs();
    assert!(error < 6.0 * expected.sqrt(), "{points} of {expected}");
    assert_eq!(profile.freed.len(), profile.allocations.len());
}
