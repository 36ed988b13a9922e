//! The claim of a profile's file: who gets which, and what stays as it was.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use nthbyte_profile::MAGIC;
use nthbyte_profile::claim::{Claim, LONGEST_START, Replaced, adopt, free_name};

/// A user who owns nothing.
const NOBODY: u32 = 65_534;

fn old() -> Vec<u8> {
    [&MAGIC[..], b"an old profile"].concat()
}

/// A folder with a profile in it.
fn with_old() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.nthb");
    fs::write(&path, old()).unwrap();
    (folder, path)
}

fn claim(path: &Path, replaced: Replaced) -> Result<Claim, String> {
    Claim::new(path, replaced, &[]).map_err(|refusal| refusal.advice())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Whether the tests run as root, who alone can give a file away.
fn can_give_away(path: &Path) -> bool {
    chown(path, Some(NOBODY), None).is_ok()
}

#[test]
fn a_replaced_file_is_back_if_no_session_begins() {
    let (folder, path) = with_old();
    for content in [old(), Vec::new()] {
        fs::write(&path, &content).unwrap();
        let claimed = claim(&path, Replaced::Profile).unwrap();
        assert_eq!(claimed.path(), path);
        assert_eq!(fs::read(&path).unwrap(), MAGIC);
        drop(adopt(&path).unwrap());
        claimed.withdraw();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(names(folder.path()), ["out.nthb"]);
    }
    fs::remove_file(&path).unwrap();
    claim(&path, Replaced::Empty).unwrap().withdraw();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_session_that_still_writes_keeps_its_own_file() {
    let (folder, path) = with_old();
    let mut file = File::options().append(true).open(&path).unwrap();
    claim(&path, Replaced::Profile).unwrap().confirm();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b" goes on").unwrap();
    assert_eq!(fs::read(&path).unwrap(), MAGIC);
    assert_eq!(names(folder.path()), ["out.nthb"]);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn own_links_stay() {
    let (folder, path) = with_old();
    let (link, other) = (
        folder.path().join("link.nthb"),
        folder.path().join("other.nthb"),
    );
    symlink("out.nthb", &link).unwrap();
    fs::hard_link(&path, &other).unwrap();
    claim(&link, Replaced::Profile).unwrap().confirm();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&link).unwrap(), MAGIC);
    assert_eq!(fs::read(&other).unwrap(), old());
}

#[test]
fn what_was_just_claimed_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.nthb");
    let mut claimed = [(); 2].map(|()| claim(&path, Replaced::Profile).unwrap());
    assert_eq!(claimed[0].path(), path);
    assert_eq!(claimed[1].path(), folder.path().join("out-2.nthb"));
    // A session that was killed at its start leaves such a file, too.
    let long_ago = SystemTime::now() - LONGEST_START - Duration::from_secs(1);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(long_ago).unwrap();
    claimed[0] = claim(&path, Replaced::Profile).unwrap();
    assert_eq!(claimed[0].path(), path);
}

#[test]
fn each_of_many_claims_has_its_own_file() {
    const MANY: usize = 16;
    for (there, replaced) in [
        (None, Replaced::Empty),
        (Some(Vec::new()), Replaced::Empty),
        (Some(Vec::new()), Replaced::Profile),
        (Some(old()), Replaced::Profile),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.nthb");
        if let Some(content) = there {
            fs::write(&path, content).unwrap();
        }
        let start = Barrier::new(MANY);
        let mut paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let one = || {
                start.wait();
                let claimed = claim(&path, replaced).unwrap();
                let path = claimed.path().to_owned();
                claimed.confirm();
                path
            };
            let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(one)).collect();
            let paths = threads.into_iter().map(|thread| thread.join().unwrap());
            paths.collect()
        });
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), MANY);
        let mut expected: Vec<String> = (2..=MANY).map(|at| format!("out-{at}.nthb")).collect();
        expected.push("out.nthb".to_owned());
        expected.sort();
        assert_eq!(names(folder.path()), expected);
    }
}

#[test]
fn a_free_name_is_what_a_claim_takes() {
    let (folder, _) = with_old();
    let empty = folder.path().join("empty.nthb");
    File::create(&empty).unwrap();
    for name in ["out.nthb", "new.nthb", "empty.nthb"] {
        let path = folder.path().join(name);
        let free = free_name(&path);
        assert_eq!(claim(&path, Replaced::Empty).unwrap().path(), free);
    }
}

#[test]
fn files_of_others_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.nthb");
    for content in [Vec::new(), old(), b"text".to_vec()] {
        fs::write(&path, &content).unwrap();
        if !can_give_away(&path) {
            return;
        }
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let before = fs::metadata(&path).unwrap();
        let other = claim(&path, Replaced::Empty).unwrap();
        assert_eq!(other.path(), folder.path().join("out-2.nthb"));
        assert_eq!(free_name(&path), folder.path().join("out-3.nthb"));
        other.withdraw();
        for replaced in [Replaced::Profile, Replaced::Any] {
            let refused = claim(&path, replaced).unwrap_err();
            assert!(refused.contains("belongs to another user"), "{refused}");
        }
        adopt(&path).unwrap_err();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(
            (after.ino(), after.mode(), after.mtime_nsec()),
            (before.ino(), before.mode(), before.mtime_nsec())
        );
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn links_to_nothing_and_of_others_are_refused() {
    let (folder, path) = with_old();
    let link = folder.path().join("link.nthb");
    let target = folder.path().join("target");
    symlink(&target, &link).unwrap();
    for replaced in [Replaced::Empty, Replaced::Profile, Replaced::Any] {
        let refused = claim(&link, replaced).unwrap_err();
        assert!(refused.contains("does not exist"), "{refused}");
    }
    assert!(!target.exists());
    // The second link of a chain is as bad as the first.
    let second = folder.path().join("second.nthb");
    symlink("link.nthb", &second).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&path, &link).unwrap();
    if std::os::unix::fs::lchown(&link, Some(NOBODY), None).is_err() {
        return;
    }
    for link in [&link, &second] {
        for replaced in [Replaced::Empty, Replaced::Profile, Replaced::Any] {
            let refused = claim(link, replaced).unwrap_err();
            assert!(refused.contains("a link of another user"), "{refused}");
        }
    }
    assert_eq!(fs::read(&path).unwrap(), old());
}

#[test]
fn a_claimed_file_that_was_exchanged_is_not_adopted() {
    let (folder, path) = with_old();
    claim(&path, Replaced::Profile).unwrap().confirm();
    let kept = folder.path().join("kept");
    fs::write(&kept, "important").unwrap();
    fs::remove_file(&path).unwrap();
    adopt(&path).unwrap_err();
    symlink(&kept, &path).unwrap();
    adopt(&path).unwrap_err();
    fs::remove_file(&path).unwrap();
    fs::hard_link(&kept, &path).unwrap();
    adopt(&path).unwrap_err();
    assert_eq!(fs::read(&kept).unwrap(), b"important");
}

#[test]
fn a_device_is_used_as_it_is() {
    let null = Path::new("/dev/null");
    for replaced in [Replaced::Empty, Replaced::Profile] {
        let claimed = claim(null, replaced).unwrap();
        adopt(null).unwrap().write_all(b"text").unwrap();
        claimed.withdraw();
    }
    assert!(!fs::metadata(null).unwrap().is_file());
}

#[test]
fn what_is_no_profile_is_never_replaced() {
    let (_folder, path) = with_old();
    fs::write(&path, "text").unwrap();
    let refused = claim(&path, Replaced::Profile).unwrap_err();
    assert!(refused.contains("is not a profile"), "{refused}");
    let kept = [path.canonicalize().unwrap()];
    fs::write(&path, old()).unwrap();
    let claimed = Claim::new(&path, Replaced::Profile, &kept).unwrap();
    assert_ne!(claimed.path(), path);
    assert_eq!(fs::read(&path).unwrap(), old());
}
