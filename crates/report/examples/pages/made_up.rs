//! Profiles that are made by hand: of a web service, of many stacks, and of a leak.

use std::path::Path;

use nthbyte_profile::Profile;
use nthbyte_profile::composition::{ArenaRun, Composition, Occupancy, Part};
use nthbyte_profile::event::{FrameKind, LabelSetId, Memory, Nanos, NodeId, SampleId, TypeId};
use nthbyte_profile::holders::{
    Held, Holder, Interner, Kind, Link, Reason, Snapshot, SnapshotNode,
};
use nthbyte_profile::model::{
    Frame, Function, LabelSet, Lifetime, Sample, Samples, SamplingId, StackNode, TypeNames,
};
use nthbyte_profile::synthetic;

/// Knuth's MMIX generator, its high bits.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Removes a profile's events, and keeps the session's description.
fn cleared(mut profile: Profile) -> Profile {
    profile.functions.clear();
    profile.frames.clear();
    profile.stacks.truncate(1);
    profile.samples = Samples::default();
    profile.cpu.clear();
    profile.types = ["", "dict", "list", "str", "tuple", "bytes"]
        .map(|name| TypeNames {
            name: name.into(),
            native: String::new(),
        })
        .into();
    profile
}

/// A profile whose samples have labels: an endpoint, and some of them a tenant. Every eighth has none.
pub fn labels(mut profile: Profile) -> Profile {
    let mut define = |parent: u32, key: &str, value: &str| {
        profile.label_sets.push(LabelSet {
            parent: LabelSetId(parent),
            key: key.to_owned(),
            value: value.to_owned(),
        });
    };
    for (at, endpoint) in ["/checkout", "/search", "<b>/\u{202e}x</b>"]
        .into_iter()
        .enumerate()
    {
        define(0, "endpoint", endpoint);
        define(1 + 2 * at as u32, "tenant", ["a", "b", "a"][at]);
    }
    let samples = std::mem::take(&mut profile.samples);
    for (at, sample) in (0_u32..).zip(samples.iter()) {
        // More of the stacks with low numbers are of the first endpoint.
        let set = (at % 8).min(sample.stack.0 % 7);
        let sample = Sample {
            labels: LabelSetId(set),
            ..sample
        };
        profile.samples.push(sample).expect("there is room");
    }
    for (at, sample) in (0_u32..).zip(&mut profile.cpu) {
        sample.labels = LabelSetId(at % 7);
    }
    profile
}

/// Adds a call of a function, which is a new one.
fn call(profile: &mut Profile, parent: u32, name: &str, file: &str) -> u32 {
    let function = profile.functions.len() as u32;
    profile.functions.push(Function {
        name: name.into(),
        file: file.into(),
        first_line: 10 + function,
    });
    profile.frames.push(Frame {
        function,
        line: 12 + function,
        kind: FrameKind::Interpreted,
    });
    profile.stacks.push(StackNode {
        parent: NodeId(parent),
        frame: profile.frames.len() as u32 - 1,
    });
    profile.stacks.len() as u32 - 1
}

fn sample(profile: &mut Profile, at: (u64, u64), stack: u32, size: u64, lifetime: Lifetime) {
    let (number, all) = at;
    let time = Nanos(profile.end.0 / all * number);
    let freed = match lifetime {
        Lifetime::StillLive => None,
        _ => Some(Nanos((time.0 + profile.end.0 / 500).min(profile.end.0))),
    };
    let made = Sample {
        stack: NodeId(stack),
        type_id: TypeId(1 + stack % 5),
        lifetime,
        freed,
        ..synthetic::sample(time, size, SamplingId::default())
    };
    profile.samples.push(made).expect("there is room");
}

/// The middleware of the web service: calls that each pass everything to the next.
pub const MIDDLEWARE: usize = 25;

/// A web service in a folder below /tmp: its own code, the standard library, and packages, one of which has a chain of
/// [`MIDDLEWARE`]. `remember` allocates little, all of which is alive at the end. Packages are in `site`.
pub fn service(profile: Profile, site: &Path) -> Profile {
    let mut profile = cleared(profile);
    let package = |name: &str| format!("{}/{name}", site.display());
    let main = call(&mut profile, 0, "main", "/tmp/shop/app.py");
    let run = call(
        &mut profile,
        main,
        "run",
        "/usr/lib/python3.13/asyncio/runners.py",
    );
    let mut last = run;
    for number in 0..MIDDLEWARE {
        let name = format!("Middleware{number}.__call__");
        last = call(
            &mut profile,
            last,
            &name,
            &package("django/core/handlers.py"),
        );
    }
    let view = call(&mut profile, last, "view", "/tmp/shop/views.py");
    let fetch = call(&mut profile, view, "get", &package("requests/api.py"));
    let dump = call(
        &mut profile,
        view,
        "dumps",
        "/usr/lib/python3.13/json/__init__.py",
    );
    let yaml = call(&mut profile, view, "load", &package("yaml/__init__.py"));
    let remember = call(&mut profile, view, "remember", "/tmp/shop/cache.py");
    let setup = call(&mut profile, main, "setup", "/tmp/shop/app.py");
    let frozen = call(
        &mut profile,
        setup,
        "_find_and_load",
        "<frozen importlib._bootstrap>",
    );
    let all = 8_000;
    // The memory of the process is read less often than the heap's, and at other moments.
    profile.memory = (0..64)
        .map(|number| Memory {
            time: Nanos(profile.end.0 / 64 * number),
            rss: (number % 5 == 0).then_some((30 + number) << 20),
            heap_used: (number % 5 != 0).then_some((10 + number / 2) << 20),
            ..Memory::default()
        })
        .collect();
    for number in 0..all {
        let (stack, lifetime) = match number % 100 {
            0..2 => (remember, Lifetime::StillLive),
            2..40 => (fetch, Lifetime::DiedYoung),
            40..55 => (yaml, Lifetime::DiedYoung),
            55..75 => (dump, Lifetime::Freed),
            75..90 => (frozen, Lifetime::DiedYoung),
            _ => (setup, Lifetime::Freed),
        };
        sample(
            &mut profile,
            (number, all),
            stack,
            64 + number % 7 * 16,
            lifetime,
        );
    }
    profile
}

/// A profile with a great many distinct stacks: `each` samples from each, over the whole session, with paths of 3 to
/// 40 frames.
pub fn large(profile: Profile, stacks: u32, each: u64) -> Profile {
    let mut profile = cleared(profile);
    profile.functions = (0..5_000)
        .map(|at| Function {
            name: format!("Class{}.method_{at}", at / 20),
            file: format!("/srv/app/package{}/module{}.py", at / 500, at / 50),
            first_line: 1 + at % 50 * 12,
        })
        .collect();
    profile.frames = (0..20_000)
        .map(|at| Frame {
            function: at / 4,
            line: 3 + at % 400,
            kind: FrameKind::Interpreted,
        })
        .collect();
    let mut random = Random(1);
    for stack in 1..=stacks {
        // Near the newest node three times out of four, so that paths grow deep.
        let span = if random.below(4) > 0 {
            12
        } else {
            u64::from(stack)
        };
        let parent = stack - 1 - random.below(span.min(u64::from(stack))) as u32;
        profile.stacks.push(StackNode {
            parent: NodeId(parent),
            frame: random.below(20_000) as u32,
        });
    }
    let all = u64::from(stacks) * each;
    for at in 0..all {
        let size = 16 * (1 + random.below(64));
        let lifetime = Lifetime::ALL[random.below(4) as usize];
        let stack = 1 + (at % u64::from(stacks)) as u32;
        sample(&mut profile, (at, all), stack, size, lifetime);
    }
    profile
}

/// A service whose cache grows: `remember` keeps one object in twenty of all that are allocated.
pub fn leak(profile: Profile) -> Profile {
    let mut profile = cleared(profile);
    let main = call(&mut profile, 0, "main", "/srv/shop/app.py");
    let handle = call(&mut profile, main, "handle", "/srv/shop/app.py");
    let remember = call(
        &mut profile,
        handle,
        "<script>remember</script>",
        "/srv/shop/cache.py",
    );
    let all = 8_000;
    for number in 0..all {
        let (stack, lifetime) = if number % 20 == 7 {
            (remember, Lifetime::StillLive)
        } else {
            (handle, Lifetime::Freed)
        };
        sample(&mut profile, (number, all), stack, 200, lifetime);
    }
    profile
}

/// Adds a snapshot of the end: a cache holds what the first half of the threads allocated, and a list the rest.
pub fn with_snapshot(mut profile: Profile) -> Profile {
    type Row<'a> = (u32, Kind, &'a str, Link, &'a str, Option<u32>);
    const NODES: [Row<'_>; 5] = [
        (0, Kind::Module, "__main__", Link::Unknown, "", None),
        (
            1,
            Kind::Object,
            "dict",
            Link::Attribute,
            "cache",
            Some(5000),
        ),
        (0, Kind::Module, "app.orm", Link::Unknown, "", None),
        (
            3,
            Kind::Object,
            "list",
            Link::Attribute,
            "models",
            Some(300),
        ),
        (2, Kind::Object, "Session", Link::Key, "'first'", None),
    ];
    let mut names = Interner::default();
    let mut snapshot = Snapshot {
        period: 4096,
        objects: 12_345,
        ..Snapshot::empty(profile.end, Reason::End)
    };
    for (parent, kind, name, link, reference, len) in NODES {
        snapshot.nodes.push(SnapshotNode {
            dominator: parent,
            parent,
            kind,
            held_by_c: false,
            name: names.intern(name),
            link,
            reference: names.intern(reference),
            len,
            chain: 1,
        });
    }
    for (id, sample) in (0..).map(SampleId).zip(profile.samples.iter()) {
        if sample.lifetime != Lifetime::StillLive {
            continue;
        }
        let node = match (sample.thread.0 % 2, id.0 % 3) {
            (0, 0) => 5,
            (0, _) => 2,
            _ => 4,
        };
        snapshot.samples.push(Held {
            by: Holder::Node(node),
            what: names.intern(&profile.types[sample.type_id.index()].name),
            size: sample.shape.block.max(1),
            is_drawn: false,
            counts: true,
            recorded: Some(id),
        });
    }
    snapshot.texts = names.finish();
    profile.processes[0].snapshots = vec![snapshot];
    profile
}

/// Adds compositions: memory grows and shrinks, and survivors hold free blocks.
pub fn with_compositions(profile: &mut Profile) {
    let end = profile.end.0;
    let process = &mut profile.processes[0];
    for (moment, mib) in [(1, 100), (2, 180), (3, 140), (4, 120)] {
        let mut composition = Composition::at(Nanos(end / 4 * moment));
        for (part, mib) in [
            (Part::Resident, 60 + mib),
            (Part::FileText, 20),
            (Part::LibraryHeap, 30),
            (Part::Anonymous, 10),
            (Part::Arenas, mib),
            (Part::HeapBlocks, mib / 2),
            (Part::HeapFreeBlocks, mib / 4),
            (Part::LibraryUsed, 25),
            (Part::LibraryMapped, 5),
        ] {
            composition.set(part, mib << 20);
        }
        composition.occupancy = vec![Occupancy {
            arena: 7,
            block: 64,
            used: 1000,
            free: (mib << 18) as u32 / 64,
        }];
        process.compositions.push(composition);
    }
    profile.arenas = vec![ArenaRun {
        first: SampleId(0),
        count: profile.samples.len() as u32,
        arena: 7,
    }];
}
