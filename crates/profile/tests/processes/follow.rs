//! Profiles that grow, read on from where the last look ended.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use nthbyte_profile::checkpoint;
use nthbyte_profile::event::{
    Allocation, Event, LabelSetId, Nanos, NodeId, SourceId, Survival, ThreadId, TypeId,
};
use nthbyte_profile::follow::Follower;
use nthbyte_profile::model::Lifetime;
use nthbyte_profile::{Profile, Writer};

use super::fake::{CHILD, FIRST, FakeProcess, Folder, load_all};
use super::{all_described, assert_same};

/// Nothing is left out.
const ALL: Nanos = Nanos(u64::MAX);

/// The states of a file that grows: each a length of the whole file, and the provisional end behind it.
fn states(made: FakeProcess) -> (Vec<u8>, Vec<(usize, Vec<u8>)>) {
    let waiting = Event::Allocation(Allocation {
        time: Nanos(7_000_000),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 77,
        block: 80,
        points: 1,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
        survival: Survival::Unsaid,
    });
    let mut writer = Writer::new(Vec::new(), &made.meta()).expect("a header");
    let mut states = Vec::new();
    let mut events = 0;
    let end = made.synthetic().events(|event| {
        writer.write(event).expect("an event");
        events += 1;
        if events % 1500 == 0 {
            // The second and the third of them take more than one block.
            let count = [0, 9_000, 9_001, 1][events / 1500 % 4];
            let blocks = writer.provisional(vec![waiting; count]).expect("blocks");
            states.push((writer.get_ref().len(), blocks));
        }
    });
    (writer.finish(end).expect("an end"), states)
}

fn write(path: &Path, bytes: &[u8]) {
    // In place: a new file would be another one.
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .expect("a file");
    file.write_all(bytes).expect("room");
}

/// The parts of a profile that the fake processes of the other tests have besides.
fn assert_alike(one: &Profile, other: &Profile) {
    assert_eq!(all_described(one), all_described(other));
    assert_eq!(one.processes, other.processes);
    assert_eq!(one.memory, other.memory);
    assert_eq!(one.collections, other.collections);
    assert_eq!((one.end, one.complete), (other.end, other.complete));
    assert_eq!(one.damage, other.damage);
}

#[test]
fn each_look_at_a_file_that_grows_says_what_a_whole_reading_says() {
    let folder = Folder::new();
    let path = folder.path("a.nthb");
    let (whole, states) = states(FIRST);
    assert!(states.len() > 5);
    write(&path, &whole[..states[0].0]);
    let mut follower = Follower::new(&path, ALL);
    let mut news = 0;
    for (length, provisional) in &states {
        // A look may come while the last bytes are written.
        for cut in [provisional.len(), provisional.len() / 2] {
            let state = [&whole[..*length], &provisional[..cut]].concat();
            write(&path, &state);
            let Some(profile) = follower.look().expect("a profile") else {
                continue;
            };
            news += 1;
            assert_alike(&profile, &Profile::load(&path).expect("a profile"));
        }
    }
    assert!(news >= states.len());
    write(&path, &whole);
    let profile = follower.look().expect("a profile").expect("news");
    assert_alike(&profile, &Profile::load(&path).expect("a profile"));
    assert!(follower.look().expect("a profile").is_none());

    // Another profile in its place, in the same file.
    CHILD.write(&path);
    let profile = follower.look().expect("a profile").expect("news");
    assert_same(&profile, &Profile::load(&path).expect("a profile"));
}

#[test]
fn damage_in_a_file_that_grows_is_said_once() {
    let folder = Folder::new();
    let path = folder.path("a.nthb");
    let (mut whole, states) = states(FIRST);
    let (first, last) = (states[1].0, states[states.len() - 1].0);
    whole[first + 40] ^= 1;
    let mut follower = Follower::new(&path, ALL);
    for length in [first, last, whole.len()] {
        write(&path, &whole[..length]);
        let profile = follower.look().expect("a profile").expect("news");
        assert_alike(&profile, &Profile::load(&path).expect("a profile"));
    }
}

#[test]
fn a_family_is_followed_as_one() {
    let folder = Folder::new();
    let first = folder.make("a.nthb", FIRST);
    let mut follower = Follower::new(&first, ALL);
    assert_same(
        &follower.look().expect("a profile").expect("news"),
        &load_all(std::slice::from_ref(&first)),
    );
    // A child, and one that began before its parent.
    let early = FakeProcess {
        pid: 12,
        after: -3_000_000_000,
        ..CHILD
    };
    let mut paths = vec![first];
    for (name, made) in [("a.11.nthb", CHILD), ("a.12.nthb", early)] {
        // Without a number of its run, a child that began first is not known to be of it.
        let path = folder.make(name, made);
        if made.after > 0 {
            paths.push(path);
        }
        let Some(profile) = follower.look().expect("profiles") else {
            continue;
        };
        assert_same(&profile, &load_all(&paths));
    }
    // Its file is removed.
    std::fs::remove_file(paths.pop().expect("a path")).expect("removed");
    assert_same(
        &follower.look().expect("a profile").expect("news"),
        &load_all(&paths),
    );
}

/// What a look reads, and what it keeps, depends on the new events, not on the earlier ones.
#[test]
fn a_look_reads_only_what_is_new_and_keeps_what_is_recent() {
    let folder = Folder::new();
    let path = folder.path("a.nthb");
    let many = FakeProcess {
        samples: 60_000,
        ..FIRST
    };
    let mut ends = Vec::new();
    let mut bytes = Vec::new();
    {
        let mut writer = Writer::new(&mut bytes, &many.meta()).expect("a header");
        let mut events = 0;
        let end = many.synthetic().events(|event| {
            writer.write(event).expect("an event");
            events += 1;
            if events % 10_000 == 0 {
                writer.flush().expect("a block");
                ends.push(writer.bytes_written() as usize);
            }
        });
        writer.finish(end).expect("an end");
    }
    ends.push(bytes.len());
    assert!(ends.len() > 10);
    let kept = Nanos(Profile::read(&bytes[..]).expect("a profile").end.0 / 10);
    let mut file = File::create(&path).expect("a file");
    file.write_all(&bytes[..ends[0]]).expect("room");
    let mut follower = Follower::new(&path, kept);
    follower.look().expect("a profile").expect("news");
    let mut before = follower.bytes_read();
    for two in ends.windows(2) {
        let new = &bytes[two[0]..two[1]];
        file.write_all(new).expect("room");
        let profile = follower.look().expect("a profile").expect("news");
        assert_eq!(follower.bytes_read() - before, new.len() as u64);
        before = follower.bytes_read();
        let from = Nanos(profile.end.0.saturating_sub(kept.0));
        let whole = Profile::read(&bytes[..two[1]]).expect("a profile");
        // Of these, all are there; of the rest, none.
        let is_needed = |of: &nthbyte_profile::model::Sample| {
            of.lifetime == Lifetime::StillLive
                || of.time >= from
                || of.freed.is_some_and(|at| at >= from)
        };
        let ids = whole.samples.ids();
        let needed = ids.filter(|&id| is_needed(&whole.samples.get(id)));
        let needed: Vec<String> = needed.map(|id| super::described(&whole, id)).collect();
        assert_eq!(all_described(&profile), needed);
        let is_last = two[1] == bytes.len();
        assert!(!is_last || needed.len() * 2 < whole.samples.len());
        let recent = whole.collections.iter().filter(|one| one.start >= from);
        assert!(profile.collections.iter().eq(recent));
        let rss = |of: &Profile| of.memory.iter().rev().find_map(|memory| memory.rss);
        let peak = |of: &Profile| {
            let sizes = of.memory.iter().flat_map(|of| [of.rss, of.peak_rss]);
            sizes.flatten().max()
        };
        assert_eq!((rss(&profile), peak(&profile)), (rss(&whole), peak(&whole)));
        assert!(
            profile.memory.len() <= 3 + whole.memory.iter().filter(|of| of.time >= from).count()
        );
    }
}

/// Parts of a recording, one after the other and one within another, are what whole readings say they are. Each reads what came since the one
/// before, but for one that began before that.
#[test]
fn a_part_is_read_from_its_checkpoint_on() {
    let folder = Folder::new();
    let path = folder.path("a.nthb");
    let (whole, states) = states(FakeProcess {
        samples: 12_000,
        ..FIRST
    });
    let mut known = Vec::new();
    let mut from = None;
    let mut times = Vec::new();
    for (at, (length, provisional)) in states.iter().enumerate() {
        write(&path, &[&whole[..*length], provisional].concat());
        let until = Profile::read(&whole[..*length]).expect("a profile").end;
        // A part begins where the last one has ended; each third one began long before.
        let begins: Nanos = match at % 3 {
            _ if at < 2 => Nanos(0),
            2 => times[at - 2],
            // Not at the time of the last event itself.
            _ => Nanos(times[at - 1].0 + 1000),
        };
        times.push(until);
        let ending = checkpoint::read(&path, begins, &known).expect("a profile");
        let all = Profile::load(&path).expect("a profile");
        assert!(at < 2 || ending.profile.samples.len() < all.samples.len() || at % 3 == 2);
        let part = |mut profile: Profile| {
            profile.keep_part(begins, until);
            profile
        };
        let (one, other) = (part(ending.profile), part(all));
        assert_eq!(all_described(&one), all_described(&other));
        assert_eq!(one.collections, other.collections);
        assert_eq!(one.memory, other.memory);
        assert_eq!(one.processes, other.processes);
        assert_eq!((one.allocated, one.end), (other.allocated, other.end));
        assert_eq!((&one.meta, &one.damage), (&other.meta, &other.damage));
        let behind = (*length + provisional.len()) as u64;
        if let (true, Some(from)) = (at > 2 && at % 3 != 2, from) {
            assert_eq!(ending.bytes_read, behind - from);
        } else {
            assert!(ending.bytes_read > behind / 2);
        }
        from = Some(*length as u64);
        known = ending.checkpoint.expect("a whole file");
    }
    // Another profile's, and a damaged one, are not used.
    CHILD.write(&path);
    let load = || Profile::load(&path).expect("a profile");
    let ending = checkpoint::read(&path, Nanos(u64::MAX), &known).expect("a profile");
    assert_same(&ending.profile, &load());
    let mut known = ending.checkpoint.expect("a whole file");
    let last = known.len() - 1;
    known[last] ^= 1;
    let ending = checkpoint::read(&path, Nanos(u64::MAX), &known).expect("a profile");
    assert_same(&ending.profile, &load());
}
