//! Which files are the profiles of one program's processes.

use std::path::PathBuf;

use nthbyte_profile::family::{self, FamilyError};
use nthbyte_profile::{Profile, ReadError};

use super::fake::{CHILD, FIRST, FakeProcess, Folder};

#[test]
fn a_family_is_found_beside_its_first_profile() {
    let folder = Folder::new();
    let first = folder.make("app.nthb", FIRST);
    let member = |pid, parent, after| {
        let made = FakeProcess {
            pid,
            parent: Some(parent),
            after,
            samples: 20,
            ..FIRST
        };
        folder.make(&format!("app.{pid}.nthb"), made)
    };
    let child = member(11, 10, 1);
    let grandchild = member(12, 11, 2);
    // A second recording of it.
    let again = FakeProcess {
        pid: 11,
        parent: Some(10),
        after: 9,
        ..FIRST
    };
    let again = folder.make("app.11-2.nthb", again);
    // Process 13 took no sample, so it left no file.
    let of_missing = member(14, 13, 3);
    // Process 15 has replaced itself: what it is then names process 15 as its parent.
    let before_exec = member(15, 13, 3);
    let after_exec = FakeProcess {
        pid: 15,
        parent: Some(15),
        after: 4,
        samples: 20,
        ..FIRST
    };
    let after_exec = folder.make("app.15-2.nthb", after_exec);
    // An earlier run's: it began before, or its parent did.
    let older = member(20, 10, -1);
    let of_older = member(21, 20, 4);
    // The first of a run of its own.
    let other_run = FakeProcess {
        pid: 22,
        after: 5,
        ..FIRST
    };
    let other_run = folder.make("app.22.nthb", other_run);
    // Copied from somewhere: the number is not the process's.
    let copied = FakeProcess {
        pid: 99,
        after: 6,
        ..CHILD
    };
    let copied = folder.make("app.23.nthb", copied);
    folder.make("other.24.nthb", CHILD);
    folder.make("app.24.nthb.old", CHILD);
    std::fs::write(folder.path("app.30.nthb"), "").expect("a file");
    std::fs::write(folder.path("app.31.nthb"), "no profile").expect("a file");

    let mut found = family::find(&first).expect("a family");
    let members = [
        again.clone(),
        child.clone(),
        grandchild,
        of_missing,
        after_exec,
        before_exec,
    ];
    assert_eq!(found.members, members);
    found.strangers.sort();
    assert_eq!(found.strangers, [older, of_older, other_run, copied]);
    let unreadable: Vec<_> = found.unreadable.iter().map(|(_, error)| error).collect();
    assert!(matches!(
        unreadable[..],
        [ReadError::Empty, ReadError::NotAProfile]
    ));
    assert_eq!(found.first, None);

    for path in [child, again] {
        let found = family::find(&path).expect("a profile");
        assert_eq!(found.members, [] as [PathBuf; 0]);
        assert_eq!(found.first.as_ref(), Some(&first));
    }
}

#[test]
fn parents_in_a_circle_are_no_family() {
    let folder = Folder::new();
    let first = folder.make("app.nthb", FIRST);
    for (pid, parent) in [(11, 12), (12, 11)] {
        let made = FakeProcess {
            pid,
            parent: Some(parent),
            samples: 20,
            ..CHILD
        };
        folder.make(&format!("app.{pid}.nthb"), made);
    }
    let found = family::find(&first).expect("a profile");
    assert_eq!(found.members.len(), 0);
    assert_eq!(found.strangers.len(), 2);
}

#[test]
fn a_file_counts_once_only() {
    let folder = Folder::new();
    let (one, link) = (folder.make("a.nthb", FIRST), folder.path("b.nthb"));
    std::fs::hard_link(&one, &link).expect("a link");
    let twice = Profile::load_all(&[one.clone(), link.clone()], |_, _| ());
    let error = twice.expect_err("the same samples twice");
    assert_eq!(
        error.to_string(),
        format!("{} and {} are the same file", one.display(), link.display())
    );
    let missing = Profile::load_all(&[one, folder.path("no.nthb")], |_, _| ());
    assert!(matches!(missing, Err(FamilyError::Read { .. })));
}

#[test]
fn profiles_are_of_the_runs_of_their_first_processes() {
    const SECOND: i64 = 1_000_000_000;
    let folder = Folder::new();
    let make = |pid: u32, parent: Option<u32>, second: i64| {
        let made = FakeProcess {
            pid,
            parent,
            after: second * SECOND,
            samples: 20,
            ..FIRST
        };
        folder.make(&format!("{pid}.{second}.nthb"), made)
    };
    let first = make(10, None, 0);
    let grandchild = make(12, Some(11), 3);
    let child = make(11, Some(10), 2);
    // The number 10 again, with a child of its own.
    let later = make(10, None, 20);
    let of_later = make(13, Some(10), 21);
    // Its parent is not there.
    let alone = make(14, Some(99), 4);
    let paths = [&grandchild, &later, &first, &alone, &child, &of_later].map(Clone::clone);
    let found = family::runs(&paths).expect("profiles");
    assert_eq!(
        found,
        [
            vec![grandchild, first.clone(), child],
            vec![later, of_later],
            vec![alone],
        ]
    );
    // Each is the other's parent: damaged, but both are in some run.
    let circle = [make(31, Some(32), 1), make(32, Some(31), 1)];
    let found = family::runs(&circle).expect("profiles");
    assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 2);
    let missing = family::runs(&[first, folder.path("no.nthb")]);
    assert!(matches!(missing, Err(FamilyError::Read { .. })));
}
