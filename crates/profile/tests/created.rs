//! The file of a profile: who can read it, and the error if it cannot be made.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nthbyte_profile::create;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_can_read_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let (new, old) = (
        folder.path().join("new.nthb"),
        folder.path().join("old.nthb"),
    );
    create(&new).unwrap();
    assert_eq!(mode(&new), 0o600);
    for before in [0o644, 0o400, 0o600] {
        fs::write(&old, "text").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(before)).unwrap();
        if create(&old).is_ok() {
            assert_eq!((mode(&old), fs::read(&old).unwrap().len()), (0o600, 0));
        } else {
            // Without the rights of the superuser, a file that cannot be written to.
            assert_eq!(before, 0o400);
            fs::remove_file(&old).unwrap();
        }
    }
    let null = Path::new("/dev/null");
    let before = mode(null);
    create(null).unwrap();
    assert_eq!(mode(null), before);
}

#[test]
fn an_error_says_what_is_wrong_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let dangling = folder.path().join("dangling.nthb");
    symlink("/nonexistent/x.nthb", &dangling).unwrap();
    for (path, what) in [
        (folder.path().join("no/x.nthb"), "its folder does not exist"),
        (dangling, "it is a link to a file that does not exist"),
        (folder.path().to_owned(), "it is a folder"),
    ] {
        let error = create(&path).unwrap_err();
        let text = format!("cannot write the profile {}: {what}", path.display());
        assert_eq!(error.to_string(), text);
    }
}
