//! Libraries by addresses of their code, which are loaded and unloaded.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};

use nthbyte_host::process::Probe;
use nthbyte_profile::event::LostKind;

use super::start;
use crate::native::libraries::{self, Library};
use crate::{Recording, Session};

/// The beginning of `struct link_map` (`link.h`).
#[repr(C)]
struct Description {
    base: usize,
    path: *const c_char,
    /// An address in the library.
    dynamic: usize,
}

/// A library, until it is dropped.
struct Loaded(*mut Description);

impl Loaded {
    fn new(path: &CStr) -> Self {
        // SAFETY: a library of the C library without initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?}");
        Self(handle.cast())
    }

    fn file(path: &Path) -> Self {
        Self::new(&CString::new(path.to_str().unwrap()).unwrap())
    }

    fn address(&self) -> usize {
        // SAFETY: glibc's handles are descriptions, and the library is loaded.
        unsafe { (*self.0).dynamic }
    }

    fn path(&self) -> PathBuf {
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr((*self.0).path) };
        path.to_str().unwrap().into()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the handle is open.
        unsafe { libc::dlclose(self.0.cast::<c_void>()) };
    }
}

/// Copies of one small library of the C library, of other packages.
fn copies(folder: &Path, packages: &[&str]) -> Vec<PathBuf> {
    let original = Loaded::new(c"libutil.so.1").path();
    let copies = packages.iter().map(|package| {
        let folder = folder.join("site-packages").join(package);
        std::fs::create_dir_all(&folder).unwrap();
        let copy = folder.join("impl.so");
        std::fs::copy(&original, &copy).unwrap();
        copy
    });
    copies.collect()
}

fn recording(folder: &Path) -> Session {
    libraries::prepare();
    start(&folder.join("out.nthb"), "exponential", 512 << 10)
}

fn called_by(recording: &mut Recording<'_>, loaded: &Loaded) -> Option<&'static Library> {
    // SAFETY: the library is loaded meanwhile.
    unsafe { libraries::of_caller(recording, loaded.address()) }
}

// Most of the time, each is loaded where the one before was.
#[test]
fn a_library_that_replaces_another_one_has_its_own_name() {
    let _turn = super::one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let session = recording(folder.path());
    let files = copies(folder.path(), &["first", "second"]);
    for round in 0..4 {
        let loaded = Loaded::file(&files[round % 2]);
        let mut recording = session.record(LostKind::Other).unwrap();
        let Some(library) = called_by(&mut recording, &loaded) else {
            eprintln!("not tested: the C library does not tell without a lock");
            return;
        };
        assert_eq!(library.package, ["first", "second"][round % 2]);
        assert!(std::ptr::eq(
            library,
            called_by(&mut recording, &loaded).unwrap()
        ));
        if let Some(probe) = Probe::new() {
            let (addresses, at) = libraries::at(&mut recording, &probe, loaded.address()).unwrap();
            assert!(addresses.contains(&loaded.address()) && std::ptr::eq(at, library));
        }
    }
    session.finish(None);
}
