//! Whatever happens to a file: nothing panics, and whole blocks are read.

#[path = "../../../fuzz/entry.rs"]
mod entry;

use std::path::Path;
use std::sync::LazyLock;

use nthbyte_profile::event::Event;
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Profile, ReadError, Reader, Writer};
use proptest::prelude::*;

/// A profile in blocks of at most so many events, and where they begin and end.
fn in_blocks(samples: u32, events_a_block: usize) -> (Vec<u8>, Vec<usize>) {
    let setup = Synthetic {
        samples,
        ..Synthetic::default()
    };
    let mut writer = Writer::new(Vec::new(), &setup.meta()).expect("memory");
    let mut ends = vec![writer.bytes_written() as usize];
    let mut count = 0;
    let end = setup.events(|event| {
        writer.write(event).expect("memory");
        count += 1;
        if count % events_a_block == 0 {
            writer.flush().expect("memory");
        }
        // The writer also ends blocks that are full.
        ends.push(writer.bytes_written() as usize);
    });
    ends.dedup();
    let bytes = writer.finish(end).expect("memory");
    ends.push(bytes.len());
    ends.dedup();
    (bytes, ends)
}

/// The offsets of the blocks that are read, and how many events each has.
fn read_blocks(bytes: &[u8]) -> (Vec<(u64, usize)>, Vec<String>) {
    let mut reader = Reader::from_reader(bytes).expect("the header is whole");
    let mut found = Vec::new();
    while let Some(mut block) = reader.next_block().expect("memory") {
        let offset = block.offset();
        let mut events = 0;
        while block.next_event().is_some() {
            events += 1;
        }
        found.push((offset, events));
    }
    let damage = reader.damage().into_iter();
    (found, damage.map(|damage| damage.what).collect())
}

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut seen = 0;
    for (folder, put_through) in [("file", entry::file as fn(&[u8])), ("block", entry::block)] {
        for file in std::fs::read_dir(corpus.join(folder)).expect("the corpus") {
            put_through(&std::fs::read(file.expect("an entry").path()).expect("a file"));
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} files");
}

#[test]
fn a_file_cut_anywhere_gives_all_whole_blocks() {
    let (bytes, ends) = in_blocks(400, 300);
    let (whole, damage) = read_blocks(&bytes);
    assert!(damage.is_empty() && whole.len() > 4);
    for cut in (ends[0]..bytes.len()).step_by(23) {
        let (found, damage) = read_blocks(&bytes[..cut]);
        let expected = ends[1..].iter().filter(|&&end| end <= cut).count();
        assert_eq!(found[..], whole[..expected], "cut at {cut}");
        assert_eq!(
            damage.is_empty(),
            ends.contains(&cut),
            "cut at {cut}: {damage:?}"
        );
        let profile = Profile::read(&bytes[..cut]).expect("the header is whole");
        assert!(!profile.complete);
    }
}

#[test]
fn a_header_cut_anywhere_is_refused_in_a_line() {
    let (bytes, ends) = in_blocks(10, 1000);
    for cut in 0..ends[0] {
        let error = Profile::read(&bytes[..cut]).expect_err("a header that is cut");
        match cut {
            0 => assert!(matches!(error, ReadError::Empty)),
            _ => assert!(matches!(error, ReadError::Header(_)), "{cut}: {error}"),
        }
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn what_is_not_a_profile_is_refused() {
    let read = |bytes: &[u8]| Profile::read(bytes).expect_err("not a profile");
    assert!(matches!(read(b"PK\x03\x04"), ReadError::NotAProfile));
    assert!(matches!(read(b"\x89nthb\n\x1a"), ReadError::NotAProfile));
    let mut newer = entry::HEADER.to_vec();
    newer[8] = 3;
    assert!(matches!(read(&newer), ReadError::Newer(3)));
    newer[8] = 2;
    assert!(matches!(read(&newer), ReadError::Development));
    let mut damaged = entry::HEADER.to_vec();
    damaged[40] ^= 1;
    assert!(matches!(read(&damaged), ReadError::Header(_)));
}

/// A header with a version, a length of a tick in nanoseconds and a description, and a right checksum.
fn header_of(version: u32, tick: u32, meta: &[u8]) -> Vec<u8> {
    let mut header = entry::HEADER[..8].to_vec();
    for word in [version, tick, meta.len() as u32] {
        header.extend(word.to_le_bytes());
    }
    header.extend(meta);
    let check = crc32fast::hash(&header);
    header.extend(check.to_le_bytes());
    header
}

#[test]
fn figures_of_a_header_have_limits() {
    let length = u32::from_le_bytes(entry::HEADER[16..20].try_into().expect("four bytes"));
    let meta = &entry::HEADER[20..20 + length as usize];
    let is_read = |header: &[u8]| Reader::from_reader(header).is_ok();
    for tick in [1, 1000, 1_000_000_000] {
        assert!(is_read(&header_of(1, tick, meta)), "{tick}");
    }
    for tick in [0, 1_000_000_001, u32::MAX] {
        assert!(!is_read(&header_of(1, tick, meta)), "{tick}");
    }
    assert!(!is_read(&header_of(0, 1000, meta)));
    // The description is JSON, to which spaces may be added.
    for (length, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut longer = meta.to_vec();
        longer.resize(length, b' ');
        assert_eq!(is_read(&header_of(1, 1000, &longer)), fits, "{length}");
    }
}

#[test]
fn damage_has_its_place_and_length() {
    let (mut bytes, ends) = in_blocks(200, 150);
    // The first byte of a block, so that all of the block is skipped; and the last block is cut.
    bytes[ends[1]] ^= 1;
    bytes.truncate(bytes.len() - 3);
    let mut reader = Reader::from_reader(&bytes[..]).expect("the header is whole");
    while let Some(mut block) = reader.next_block().expect("memory") {
        while block.next_event().is_some() {}
    }
    let last = ends[ends.len() - 2];
    let expected = [
        (
            ends[1],
            format!("{} bytes are damaged and were skipped", ends[2] - ends[1]),
        ),
        (
            last,
            format!(
                "the profile breaks off: its last {} bytes are not a whole block",
                bytes.len() - last
            ),
        ),
    ];
    let damage = reader.damage().into_iter();
    let found: Vec<_> = damage.map(|one| (one.offset as usize, one.what)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_hundred_damaged_places_are_listed_and_the_others_counted() {
    let (bytes, ends) = in_blocks(3000, 10);
    for (places, more) in [
        (100, None),
        (101, Some("1 more damaged places")),
        (250, Some("150 more damaged places")),
    ] {
        let mut damaged = bytes.clone();
        // Every other block, so that each is a place of its own.
        for place in 0..places {
            damaged[ends[1 + 2 * place]] ^= 1;
        }
        let mut reader = Reader::from_reader(&damaged[..]).expect("the header is whole");
        while reader.next_block().expect("memory").is_some() {}
        let damage = reader.damage();
        assert_eq!(damage.len(), 100 + usize::from(more.is_some()));
        let last = damage.last().expect("damage");
        assert_eq!(
            more.is_some_and(|more| last.what == more),
            more.is_some(),
            "{last:?}"
        );
        assert_eq!(last.offset == bytes.len() as u64, more.is_some());
    }
}

#[test]
fn a_lost_block_leaves_the_others_right() {
    let (bytes, ends) = in_blocks(3000, 2000);
    let whole = Profile::read(&bytes[..]).expect("a profile");
    let mut lossy = bytes.clone();
    let middle = ends.partition_point(|&end| end < bytes.len() / 2);
    lossy.drain(ends[middle - 1]..ends[middle]);
    let lossy = Profile::read(&lossy[..]).expect("a profile");
    assert!(lossy.complete && !lossy.damage.is_empty());
    let missing = whole.samples.len() - lossy.samples.len();
    assert!(missing > 100);
    // The last samples are the same, but that what the lost block defined is not known.
    let names = |profile: &Profile, sample: usize| -> Vec<String> {
        let sample = profile.samples.iter().nth(sample).expect("a sample");
        let frames = profile.stack(sample.stack);
        frames
            .map(|frame| profile.functions[frame.function as usize].name.clone())
            .collect()
    };
    let (mut same, mut unknown) = (0, 0);
    for back in 1..500 {
        let there = whole.samples.iter().nth(whole.samples.len() - back);
        let here = lossy.samples.iter().nth(lossy.samples.len() - back);
        let (there, here) = (there.expect("a sample"), here.expect("a sample"));
        assert_eq!(
            (here.time, here.shape, here.freed),
            (there.time, there.shape, there.freed)
        );
        let there = names(&whole, whole.samples.len() - back);
        let here = names(&lossy, lossy.samples.len() - back);
        if here
            .last()
            .is_some_and(|name| name == nthbyte_profile::UNKNOWN)
        {
            assert!(there.starts_with(&here[..here.len() - 1]));
            unknown += 1;
        } else {
            assert_eq!(here, there);
            same += 1;
        }
    }
    assert!(same > 50 && unknown > 5, "{same} {unknown}");
}

#[test]
fn a_repeated_block_counts_once() {
    let (bytes, ends) = in_blocks(300, 500);
    let mut twice = bytes[..ends[2]].to_vec();
    twice.extend_from_slice(&bytes[ends[1]..]);
    let (once, twice) = (Profile::read(&bytes[..]), Profile::read(&twice[..]));
    let (once, twice) = (once.expect("a profile"), twice.expect("a profile"));
    assert_eq!(once.samples.len(), twice.samples.len());
    assert!(once.damage.is_empty());
    let damage = twice
        .damage
        .iter()
        .map(|one| (one.offset as usize, &*one.what));
    let expected = (
        ends[2],
        "a block that was there before is repeated; skipped",
    );
    assert_eq!(damage.collect::<Vec<_>>(), [expected]);
}

#[test]
fn a_block_that_claims_too_much_is_refused() {
    // More events than there may be for so few bytes, and more text.
    let setup = Synthetic::default();
    let mut writer = Writer::new(Vec::new(), &setup.meta()).expect("memory");
    for _ in 0..100_000 {
        writer
            .write(&Event::Lost(nthbyte_profile::event::LostKind::Other, 1))
            .expect("memory");
    }
    writer.flush().expect("memory");
    let bytes = writer.get_ref();
    // The writer keeps to the limits even where all compresses to nothing.
    let profile = Profile::read(&bytes[..]).expect("a profile");
    assert_eq!(
        profile.lost,
        [(nthbyte_profile::event::LostKind::Other, 100_000)]
    );
    assert!(profile.damage.is_empty());
    assert!(bytes.len() > 100_000 / 8);
}

/// A block with this many events and these columns, each with its length and as it is stored.
fn block_of(events: u8, columns: &[(usize, usize, &[u8])]) -> Vec<u8> {
    let varint = |mut value: usize| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let mut body = vec![events, 0, 1, 1, 0, 0, 1];
    for column in 0..19 {
        match columns.iter().find(|(number, ..)| *number == column) {
            Some((_, length, stored)) => {
                body.extend(varint(*length));
                body.extend(varint(stored.len()));
                body.extend_from_slice(stored);
            }
            None => body.push(0),
        }
    }
    let mut block = b"\xf5nbk".to_vec();
    block.extend((body.len() as u32).to_le_bytes());
    block.extend(crc32fast::hash(&body).to_le_bytes());
    block.extend(crc32fast::hash(&block).to_le_bytes());
    block.extend(body);
    block
}

#[test]
fn a_column_that_expands_too_far_is_not_expanded() {
    let setup = Synthetic::default();
    let header = Writer::new(Vec::new(), &setup.meta()).expect("memory");
    let read = |columns: &[(usize, usize, &[u8])]| {
        let mut file = header.get_ref().clone();
        file.extend(block_of(1, columns));
        read_blocks(&file)
    };
    // One event, of kind 12: "lost", of a kind, how many. Numbers that nobody takes do no harm.
    let numbers = [2, 5, 0, 0];
    let (found, damage) = read(&[(0, 1, &[12]), (15, 4, &numbers)]);
    assert!(found.len() == 1 && damage.is_empty(), "{damage:?}");
    // Columns of numbers, texts, extensions: the bytes that are stored are no Zstandard frame, and not looked at.
    for (column, what) in [(9, "numbers"), (15, "numbers"), (16, "text"), (18, "text")] {
        let mut columns = vec![(0, 1, &[12][..]), (15, 4, &numbers[..])];
        columns.retain(|&(number, ..)| number != column);
        columns.push((column, 3 << 20, &[1, 2, 3]));
        let (found, damage) = read(&columns);
        let what = format!("too m{} {what}", if what == "text" { "uch" } else { "any" });
        assert!(found.is_empty() && damage[0].contains(&what), "{damage:?}");
    }
}

#[test]
fn the_events_before_a_wrong_one_are_read() {
    let header = Writer::new(Vec::new(), &Synthetic::default().meta()).expect("memory");
    // Two events of kind 12, and numbers for the first only.
    let block = block_of(2, &[(0, 2, &[12, 12]), (15, 2, &[2, 5])]);
    for blocks in [1, 100, 101] {
        let mut file = header.get_ref().clone();
        file.extend(block.repeat(blocks));
        let (found, damage) = read_blocks(&file);
        assert!(found.len() == blocks && found.iter().all(|&(_, events)| events == 1));
        // No more than a hundred are listed.
        assert_eq!(damage.len(), blocks.min(100));
        let start = "the rest of a block was skipped: it holds ";
        assert!(
            damage.iter().all(|what| what.starts_with(start)),
            "{damage:?}"
        );
    }
}

/// Headers without end, each of which claims that as much as possible after it is its body.
fn crafted(len: usize, period: usize) -> Vec<u8> {
    let mut header = b"\xf5nbk".to_vec();
    // So that no two claims end at the same place, and none at the end of the file only.
    for number in 0..len / period {
        let mut one = header[..4].to_vec();
        let body = ((len - number * period).saturating_sub(64)).min(4 << 20) as u32;
        one.extend((body - body % 7).to_le_bytes());
        one.extend([7; 4]);
        one.extend(crc32fast::hash(&one).to_le_bytes());
        one.resize(period, 0);
        header.extend(one);
    }
    header.drain(..4);
    header
}

#[test]
fn a_block_is_found_in_time_proportional_to_the_file() {
    let (bytes, ends) = in_blocks(200, 150);
    let (whole, _) = read_blocks(&bytes);
    for (len, period) in [(1 << 20, 16), (1 << 20, 48), (4 << 20, 16)] {
        // Genuine blocks among them and after them are found.
        let crafted = crafted(len, period);
        let mut file = bytes[..ends[1]].to_vec();
        file.extend(&crafted);
        file.extend(&bytes[ends[1]..ends[2]]);
        file.extend(&crafted);
        file.extend(&bytes[ends[2]..]);
        let mut reader = Reader::from_reader(&file[..]).expect("the header is whole");
        let mut found = Vec::new();
        while let Some(mut block) = reader.next_block().expect("memory") {
            let mut events = 0;
            while block.next_event().is_some() {
                events += 1;
            }
            found.push(events);
        }
        let expected: Vec<usize> = whole.iter().map(|&(_, events)| events).collect();
        assert_eq!(found, expected);
        // Each byte once, the first claim's twice, and up to two steps of 64 bytes a header.
        let headers = 2 * len / period;
        let most = file.len() + (4 << 20) + 128 * headers;
        let summed = reader.bytes_summed();
        assert!(summed <= most as u64, "{summed} of {} bytes", file.len());
        assert!(summed >= 2 * len as u64, "{summed} of {} bytes", file.len());
    }
}

static SMALL: LazyLock<(Vec<u8>, Vec<usize>)> = LazyLock::new(|| in_blocks(200, 150));

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damage_costs_only_the_blocks_it_is_in(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..6),
    ) {
        let (mut bytes, ends) = SMALL.clone();
        let (whole, _) = read_blocks(&bytes);
        let body = ends[0];
        let mut hit = std::collections::HashSet::new();
        for (index, change) in changes {
            let at = body + index.index(bytes.len() - body);
            bytes[at] ^= change;
            hit.insert(ends.partition_point(|&end| end <= at) - 1);
        }
        let (found, damage) = read_blocks(&bytes);
        let left = whole.iter().enumerate().filter(|(number, _)| !hit.contains(number));
        let left: Vec<(u64, usize)> = left.map(|(_, block)| *block).collect();
        // Two changes of one byte can undo each other.
        if left != found {
            prop_assert!(found.len() > left.len());
            prop_assert!(left.iter().all(|block| found.contains(block)));
        } else {
            prop_assert!(!damage.is_empty());
        }
        entry::file(&bytes);
    }

    #[test]
    fn any_bytes_after_the_header(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut file = entry::HEADER.to_vec();
        file.extend(&bytes);
        entry::file(&file);
        entry::file(&bytes);
        entry::block(&bytes);
    }

    #[test]
    fn bodies_with_right_checksums_and_wrong_contents(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        which in any::<prop::sample::Index>(),
    ) {
        let (bytes, ends) = &*SMALL;
        let which = which.index(ends.len() - 1);
        let mut body = bytes[ends[which] + 16..ends[which + 1]].to_vec();
        for (index, change) in changes {
            let at = index.index(body.len());
            body[at] = change;
        }
        entry::block(&body);
    }
}
