//! Processes of a program that never ran, and their profiles in a folder.

use std::path::{Path, PathBuf};

use nthbyte_profile::composition::{self, ArenaRun, Occupancy};
use nthbyte_profile::event::{End, Event, Extension, LostKind, Nanos, SampleId};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Composition, Distances, Meta, Part, Profile, Writer};

/// When the first process began, in nanoseconds since 1970.
pub const START: u64 = 1_790_000_000_000_000_000;

/// A process of a program that never ran.
#[derive(Clone, Copy)]
pub struct FakeProcess {
    pub pid: u32,
    pub parent: Option<u32>,
    /// Since [`START`].
    pub after: i64,
    pub samples: u32,
    pub period: u64,
    pub distances: Distances,
    /// Whether its session ends in an orderly way.
    pub ends: bool,
}

/// A process that others may be children of.
pub const FIRST: FakeProcess = FakeProcess {
    pid: 10,
    parent: None,
    after: 0,
    samples: 3000,
    period: 512 << 10,
    distances: Distances::Exponential,
    ends: true,
};

/// Its child, which begins later.
pub const CHILD: FakeProcess = FakeProcess {
    pid: 11,
    parent: Some(10),
    after: 1_234_567_891,
    samples: 2000,
    ..FIRST
};

impl FakeProcess {
    pub fn synthetic(&self) -> Synthetic {
        Synthetic {
            samples: self.samples,
            seed: self.pid.into(),
            period: self.period,
            distances: self.distances,
            hostile: false,
            ..Synthetic::default()
        }
    }

    pub fn meta(&self) -> Meta {
        Meta {
            pid: self.pid,
            parent_pid: self.parent,
            memory_before: None,
            segment: None,
            tags: [("worker".to_owned(), self.pid.to_string())].into(),
            host: None,
            run: None,
            started_unix_nanos: START.saturating_add_signed(self.after),
            notes: vec![format!("of seed {}", self.pid % 2)],
            ..self.synthetic().meta()
        }
    }

    /// What its memory was made of at two moments, and the arenas of some samples.
    fn compositions(&self) -> Vec<(u8, Vec<u8>)> {
        let pid = u64::from(self.pid);
        let at = |time, bytes| {
            let mut of = Composition::at(Nanos(time));
            of.set(Part::Resident, bytes);
            of.set(Part::Stacks, pid);
            of.occupancy.push(Occupancy {
                arena: self.pid,
                block: 64,
                used: 3,
                free: 4,
            });
            (composition::COMPOSITION, of.encode(0))
        };
        let runs = [(2, 5), (100, 1)].map(|(first, count)| ArenaRun {
            first: SampleId(first),
            count,
            arena: 7 + self.pid,
        });
        vec![
            at(1_000_000, pid << 20),
            at(2_000_000, pid << 21),
            (composition::ARENAS, composition::encode_arenas(&runs)),
        ]
    }

    pub fn write(&self, path: &Path) {
        let file = std::fs::File::create(path).expect("a file");
        let mut writer = Writer::new(file, &self.meta()).expect("a header");
        let end = self.synthetic().events(|event| {
            writer.write(event).expect("an event");
        });
        let lost = [(LostKind::Allocations, 1), (LostKind::CpuSamples, 2)];
        for (kind, count) in lost.into_iter().chain([(LostKind::Other, self.pid.into())]) {
            writer.write(&Event::Lost(kind, count)).expect("an event");
        }
        for (kind, bytes) in self.compositions() {
            let bytes = &bytes;
            writer
                .write(&Event::Extension(Extension { kind, bytes }))
                .expect("an event");
        }
        if self.ends {
            // The session goes on for a second after its last event.
            let time = Nanos(end.time.0 + 1_000_000_000);
            writer.finish(End { time, ..end }).expect("an end");
        } else {
            writer.flush().expect("a last block");
        }
    }
}

/// A folder that is removed at the end.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn make(&self, name: &str, made: FakeProcess) -> PathBuf {
        let path = self.path(name);
        made.write(&path);
        path
    }
}

/// Reads profiles as one.
pub fn load_all(paths: &[PathBuf]) -> Profile {
    Profile::load_all(paths, |_, _| ()).expect("profiles")
}
