//! Made-up control groups below a folder.

use std::fs;
use std::path::Path;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::pressure::{Alarm, MemoryLimit};
use tempfile::TempDir;

use super::{SECOND, Seen, Watch};

const MIB: u64 = 1 << 20;

/// A system whose only limit is what the test says; the machine has 64 GiB.
struct System {
    root: TempDir,
    watch: Watch,
}

impl System {
    fn new(cgroup: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let system = Self {
            watch: Watch::below(root.path().to_owned()),
            root,
        };
        system.write("proc/self/cgroup", cgroup);
        system.write(
            "proc/meminfo",
            "MemTotal:       67108864 kB\nMemAvailable:   60000000 kB\n",
        );
        system
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A group of version 2.
    fn group(&self, folder: &str, most: &str, used: u64, inactive: u64) {
        let folder = Path::new("sys/fs/cgroup").join(folder);
        let write = |name: &str, text: &str| self.write(folder.join(name).to_str().unwrap(), text);
        write("memory.max", most);
        write("memory.high", "max\n");
        write("memory.current", &format!("{used}\n"));
        write(
            "memory.stat",
            &format!("anon 1\ninactive_file {inactive}\n"),
        );
        write("memory.events", "low 0\nhigh 0\nmax 3\noom 0\noom_kill 4\n");
    }

    fn look(&mut self, seconds: f64) -> Option<Seen> {
        self.watch
            .look(Nanos((seconds * SECOND as f64) as u64), MIB)
    }
}

fn alarm(seen: Option<Seen>) -> Option<(Alarm, MemoryLimit, u64, u64)> {
    seen.map(|Seen { pressure: of, .. }| (of.alarm, of.limit, of.most / MIB, of.used / MIB))
}

#[test]
fn nine_tenths_of_a_group_raise_one_alarm_and_a_pause() {
    let mut system = System::new("0::/a/b\n");
    let group = |system: &System, used| {
        system.group("a/b", &format!("{}\n", 1000 * MIB), used * MIB, 0);
    };
    group(&system, 500);
    assert_eq!(system.look(0.0), None);
    group(&system, 900);
    // Not before a second has passed.
    assert_eq!(system.look(0.5), None);
    assert_eq!(
        alarm(system.look(1.0)),
        Some((Alarm::Near, MemoryLimit::Group, 1000, 900))
    );
    assert!(system.watch.is_near());
    assert_eq!(system.look(1.3), None);
    // What changes is recorded, five times a second at most.
    group(&system, 915);
    assert_eq!(
        alarm(system.look(1.6)),
        Some((Alarm::None, MemoryLimit::Group, 1000, 915))
    );
    // It stays there for hours.
    assert_eq!(system.look(3600.0), None);
    group(&system, 955);
    assert_eq!(
        alarm(system.look(3601.0)),
        Some((Alarm::Near, MemoryLimit::Group, 1000, 955))
    );
    group(&system, 980);
    assert_eq!(
        alarm(system.look(3620.0)),
        Some((Alarm::None, MemoryLimit::Group, 1000, 980))
    );
    // What was given back, and is taken again.
    group(&system, 700);
    assert!(system.look(3630.0).is_some());
    group(&system, 910);
    assert_eq!(
        alarm(system.look(3700.0)),
        Some((Alarm::Near, MemoryLimit::Group, 1000, 910))
    );
}

#[test]
fn the_machine_is_watched_by_a_large_process() {
    let mut system = System::new(
        "0::/
",
    );
    let free = "MemTotal: 1048576 kB\nMemAvailable: 10240 kB\n";
    system.write("proc/meminfo", free);
    assert_eq!(system.watch.look(Nanos(0), 10 * MIB), None);
    assert!(!system.watch.is_near());
    let seen = system.watch.look(Nanos(SECOND), 64 * MIB);
    assert_eq!(
        alarm(seen),
        Some((Alarm::Near, MemoryLimit::Machine, 1024, 1014))
    );
}

#[test]
fn a_group_around_may_have_less_room() {
    let mut system = System::new("0::/a/b\n");
    system.group("a/b", "max\n", 10 * MIB, 0);
    system.group("a", &format!("{}\n", 100 * MIB), 95 * MIB, 0);
    let seen = system.look(0.0);
    assert_eq!(
        alarm(seen),
        Some((Alarm::Near, MemoryLimit::Group, 100, 95))
    );
    assert!(!seen.unwrap().has_room);
}

#[test]
fn a_container_that_sees_the_path_of_its_host_has_the_outermost_folder() {
    let mut system = System::new("0::/kubepods/pod1/x\n");
    system.group("", &format!("{}\n", 100 * MIB), 95 * MIB, 0);
    assert!(system.look(0.0).is_some());
}

#[test]
fn caches_of_files_are_not_in_use() {
    let mut system = System::new("0::/\n");
    system.group("", &format!("{}\n", 100 * MIB), 99 * MIB, 60 * MIB);
    assert_eq!(system.look(0.0), None);
    system.group("", &format!("{}\n", 100 * MIB), 99 * MIB, 2 * MIB);
    assert_eq!(
        alarm(system.look(1.0)),
        Some((Alarm::Near, MemoryLimit::Group, 100, 97))
    );
}

#[test]
fn memory_high_is_a_limit() {
    let mut system = System::new("0::/\n");
    system.group("", "max\n", 95 * MIB, 0);
    system.write("sys/fs/cgroup/memory.high", &format!("{}\n", 100 * MIB));
    assert_eq!(
        alarm(system.look(0.0)),
        Some((Alarm::Near, MemoryLimit::GroupHigh, 100, 95))
    );
}

#[test]
fn version_1() {
    let mut system = System::new("3:cpu:/x\n7:memory,hugetlb:/a\n");
    let folder = "sys/fs/cgroup/memory";
    system.write(
        &format!("{folder}/memory.limit_in_bytes"),
        "9223372036854771712\n",
    );
    system.write(&format!("{folder}/memory.usage_in_bytes"), "9000000000\n");
    system.write(
        &format!("{folder}/a/memory.limit_in_bytes"),
        &(100 * MIB).to_string(),
    );
    system.write(
        &format!("{folder}/a/memory.usage_in_bytes"),
        &(99 * MIB).to_string(),
    );
    system.write(
        &format!("{folder}/a/memory.stat"),
        &format!("inactive_file 0\ntotal_inactive_file {}\n", 4 * MIB),
    );
    assert_eq!(
        alarm(system.look(0.0)),
        Some((Alarm::Near, MemoryLimit::Group, 100, 95))
    );
}

#[test]
fn growth_that_reaches_the_limit_within_half_a_minute() {
    let used = |per_second: u64| {
        let mut system = System::new("0::/\n");
        let mut alarms = Vec::new();
        for second in 0..20 {
            let used = (500 + per_second * second) * MIB;
            system.group("", &format!("{}\n", 1000 * MIB), used, 0);
            let seen = system.look(second as f64).map(|seen| seen.pressure.alarm);
            alarms.extend(seen.filter(|&of| of != Alarm::None).map(|of| (second, of)));
        }
        alarms
    };
    // 500 MiB of room: 25 seconds of 20 MiB, known after two.
    assert_eq!(used(20)[0], (2, Alarm::Growth));
    // 100 seconds at first; 10 × 5 MiB after 50, which this does not reach.
    assert!(used(5).is_empty());
    // 12 MiB a second: 30 seconds are left when 640 are in use.
    assert_eq!(used(12)[0], (12, Alarm::Growth));
}

/// A process may take the rest of its memory within a second.
#[test]
fn what_leaps_is_read_at_once_and_recorded() {
    let mut system = System::new("0::/\n");
    let group = |system: &System, used| {
        system.group("", &format!("{}\n", 1000 * MIB), used * MIB, 0);
    };
    let look = |system: &mut System, seconds: f64, resident| {
        let now = Nanos((seconds * SECOND as f64) as u64);
        system.watch.look(now, resident * MIB)
    };
    group(&system, 300);
    assert_eq!(look(&mut system, 0.0, 200), None);
    group(&system, 420);
    assert_eq!(look(&mut system, 0.3, 240), None);
    let seen = look(&mut system, 0.4, 320);
    assert_eq!(
        alarm(seen),
        Some((Alarm::None, MemoryLimit::Group, 1000, 420))
    );
    assert_eq!(look(&mut system, 1.4, 320), None);
}

#[test]
fn stalls_raise_an_alarm() {
    let mut system = System::new("0::/\n");
    system.group("", &format!("{}\n", 1000 * MIB), 600 * MIB, 0);
    let pressure =
        "some avg10=80.00 avg60=1 avg300=1 total=1\nfull avg10=41.50 avg60=1 avg300=1 total=1\n";
    system.write("sys/fs/cgroup/memory.pressure", pressure);
    assert_eq!(
        alarm(system.look(0.0)),
        Some((Alarm::Stalls, MemoryLimit::Group, 1000, 600))
    );
}

#[test]
fn kills_in_the_group_are_counted_from_the_start() {
    let mut system = System::new("0::/\n");
    system.group("", &format!("{}\n", 1000 * MIB), 800 * MIB, 0);
    assert_eq!(system.look(0.0).unwrap().pressure.kills, 0);
    system.write(
        "sys/fs/cgroup/memory.events",
        "oom 1\noom_kill 6\noom_group_kill 0\n",
    );
    assert_eq!(system.look(1.0).unwrap().pressure.kills, 2);
}

#[test]
fn a_system_without_any_of_these_files_has_no_limit() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(
        Watch::below(root.path().to_owned()).look(Nanos(0), MIB),
        None
    );
}
