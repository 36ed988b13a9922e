//! Sessions of this process, and what their profiles say.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod checked;
mod found;

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use checked::Checked;
use found::{of, read};
use nthbyte_global_alloc::{Options, Sampled, Session, start};
use object::Object;
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: Sampled<Checked> = Sampled::new(Checked);

/// There is one session at a time in the process.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(every: u64) -> (TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new()
        .output(folder.path().join("out.nthb"))
        .every(every)
        .seed(5);
    (folder, start(options).unwrap())
}

/// Requests of each function, with sizes that nothing else has. Returns those that are left.
fn work() -> Vec<Vec<u8>> {
    let mut left = Vec::new();
    for round in 0..100 {
        drop(black_box(Vec::<u8>::with_capacity(1237)));
        let zeroes = black_box(vec![0_u8; 5003]);
        assert!(zeroes.iter().all(|&byte| byte == 0));
        let mut grown = vec![7_u8; 2001];
        grown.reserve_exact(7001 - 2001);
        assert!(grown.iter().all(|&byte| byte == 7));
        let mut large = vec![9_u8; 70_001];
        large.reserve_exact(140_003 - 70_001);
        assert!(large.iter().all(|&byte| byte == 9));
        if round < 3 {
            left.extend([zeroes, black_box(grown), black_box(large)]);
        }
    }
    left
}

#[test]
fn with_a_period_of_one_each_request_is_recorded() {
    let _turn = one_at_a_time();
    let (folder, session) = begin(1);
    let threads = [(); 4].map(|()| thread::spawn(work));
    let left = threads.map(|thread| thread.join().unwrap());
    let outcome = session.stop();
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    let path = folder.path().join("out.nthb");
    assert_eq!(outcome.path.as_ref(), Some(&path));
    let profile = read(&path);
    assert_eq!(profile.samples.len() as u64, outcome.samples);
    for (function, size, left) in [
        ("alloc", 1237, 0),
        ("alloc_zeroed", 5003, 3),
        ("alloc", 2001, 0),
        ("realloc", 7001, 3),
        ("alloc", 70_001, 0),
        ("realloc", 140_003, 3),
    ] {
        let found = of(&profile, function, size);
        found.check(400, 400 - 4 * left);
        // Each stands for itself, and for those that are lost beside it.
        let bytes = (found.samples * size as u64) as f64;
        assert!(found.bytes >= bytes, "{found:?}");
        assert!(found.bytes == bytes || found.lost > 0, "{found:?}");
    }
    assert_eq!(profile.meta.sources.len(), 1);
    assert!(profile.meta.interpreter.starts_with("glibc "));
    // What nthbyte's own thread asks for is not the program's.
    assert!(
        profile
            .threads
            .iter()
            .all(|thread| thread.name != "nthbyte")
    );
    // Blocks of a session may be freed when it has ended.
    drop(left);
    assert!(std::fs::read_dir(folder.path()).unwrap().count() == 1);
}

#[test]
fn estimates_are_near_the_truth() {
    for every in [4 << 10, 16 << 10, 64 << 10] {
        let _turn = one_at_a_time();
        let (folder, session) = begin(every);
        let counts = [(1237, 40_000), (5003, 10_000), (40_001, 1_000)];
        for (size, count) in counts {
            for _ in 0..count {
                drop(black_box(Vec::<u8>::with_capacity(size)));
            }
        }
        let profile = read(&session.stop().path.unwrap());
        for (size, count) in counts {
            let found = of(&profile, "alloc", size);
            found.check(found.samples, found.samples);
            let probability = -(-(size as f64) / every as f64).exp_m1();
            let deviation =
                size as f64 * (f64::from(count) * (1.0 - probability) / probability).sqrt();
            let lost = found.lost as f64 * size as f64 / probability;
            let error = (found.bytes - size as f64 * f64::from(count)).abs() - lost;
            // Six standard deviations: one in 500 million.
            assert!(
                error <= 6.0 * deviation,
                "{every} {size}: {found:?}, {error} of {deviation}"
            );
        }
        drop(folder);
    }
}

/// A block at the start of an OS page has most of the page to itself.
#[test]
fn with_a_short_period_blocks_do_not_begin_at_pages() {
    let _turn = one_at_a_time();
    for (every, are_marked) in [(1, false), (1 << 10, false), (16 << 10, true)] {
        let (_folder, session) = begin(every);
        let blocks: Vec<Vec<u8>> = (0..4000).map(|_| Vec::with_capacity(100)).collect();
        let at_pages = blocks
            .iter()
            .filter(|block| (block.as_ptr() as usize).is_multiple_of(4096));
        let at_pages = at_pages.count();
        let found = of(&read(&session.stop().path.unwrap()), "alloc", 100);
        assert!(found.samples > 0);
        if are_marked {
            assert!(at_pages as u64 >= found.samples, "{at_pages} {found:?}");
        } else {
            // By chance, one in 256 does.
            assert!(at_pages < 100, "{at_pages}");
        }
    }
}

#[test]
fn without_a_change_of_the_seed_the_samples_are_the_same() {
    let _turn = one_at_a_time();
    let sizes = [(); 2].map(|()| {
        let (_folder, session) = begin(64 << 10);
        for _ in 0..10_000 {
            drop(black_box(Vec::<u8>::with_capacity(1237)));
        }
        of(&read(&session.stop().path.unwrap()), "alloc", 1237)
    });
    assert!(sizes[0].samples > 100);
    assert_eq!(sizes[0], sizes[1]);
}

#[test]
fn there_is_one_session_at_a_time() {
    let _turn = one_at_a_time();
    let (folder, session) = begin(1);
    let again = Options::new().output(folder.path().join("other.nthb"));
    let refused = start(again.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert_eq!(
        refused.to_string(),
        "a session is running already: stop it first"
    );
    assert!(!folder.path().join("other.nthb").exists());
    drop(session);
    assert!(read(&folder.path().join("out.nthb")).complete);
    let session = start(again).unwrap();
    assert_eq!(session.path(), folder.path().join("other.nthb"));
    drop(session);
    let session = start(Options::new().output(folder.path().join("other.nthb"))).unwrap();
    assert_eq!(session.path(), folder.path().join("other-2.nthb"));
}

#[test]
fn wrong_settings_are_refused_and_leave_no_file() {
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.nthb");
    for (options, kind, text) in [
        (
            Options::new().output(&path).every(63),
            ErrorKind::InvalidInput,
            "63 bytes",
        ),
        (
            Options::new().output(folder.path().join("missing/out.nthb")),
            ErrorKind::NotFound,
            "its folder does not exist",
        ),
    ] {
        let refused = start(options).unwrap_err();
        assert_eq!(refused.kind(), kind);
        let line = refused.to_string();
        assert!(line.contains(text) && !line.contains('\n'), "{line}");
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn blocks_of_an_earlier_session_do_not_count() {
    let _turn = one_at_a_time();
    for (first, second) in [(1, 64 << 10), (64 << 10, 1), (1, 1)] {
        let (_folder, session) = begin(first);
        let blocks: Vec<Vec<u8>> = (0..1000).map(|_| Vec::with_capacity(4321)).collect();
        drop(session);
        let (_folder, session) = begin(second);
        drop(black_box(blocks));
        let profile = read(&session.stop().path.unwrap());
        let freed = profile
            .samples
            .iter()
            .filter(|sample| sample.shape.size == 4321);
        assert_eq!(freed.count(), 0);
    }
}

/// A block from before `main`.
static EARLY: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
const EARLY_LAYOUT: Layout = Layout::new::<[u64; 100]>();

#[used]
#[unsafe(link_section = ".init_array")]
static INITIALISE: extern "C" fn() = early;

extern "C" fn early() {
    // SAFETY: the size is not zero.
    EARLY.store(unsafe { alloc(EARLY_LAYOUT) }, Relaxed);
}

struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        for _ in 0..100 {
            drop(black_box(Vec::<u8>::with_capacity(3333)));
        }
    }
}

thread_local! {
    static LAST: Last = const { Last };
}

#[test]
fn there_are_requests_before_main_and_after_a_thread() {
    let _turn = one_at_a_time();
    let early = EARLY.swap(std::ptr::null_mut(), Relaxed);
    assert!(!early.is_null());
    let (_folder, session) = begin(1);
    // SAFETY: allocated with this layout.
    unsafe { dealloc(early, EARLY_LAYOUT) };
    for _ in 0..20 {
        thread::spawn(|| LAST.with(|_| ())).join().unwrap();
    }
    let profile = read(&session.stop().path.unwrap());
    of(&profile, "alloc", 3333).check(2000, 2000);
    // Each thread is there, with its own number.
    let threads: std::collections::HashSet<u32> = profile
        .samples
        .iter()
        .filter(|sample| sample.shape.size == 3333)
        .map(|sample| sample.thread.0)
        .collect();
    assert_eq!(threads.len(), 20);
}

#[test]
fn a_forked_child_has_a_profile_of_its_own() {
    let _turn = one_at_a_time();
    let (folder, session) = begin(1);
    let before: Vec<Vec<u8>> = (0..10).map(|_| Vec::with_capacity(1111)).collect();
    // SAFETY: the child allocates, which the C library allows, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop(before);
        let left: Vec<Vec<u8>> = (0..7).map(|_| Vec::with_capacity(2222)).collect();
        drop(black_box(Vec::<u8>::with_capacity(2222)));
        std::mem::forget(left);
        // The session ends with the process: its guard is not dropped.
        std::process::exit(3);
    }
    let mut status = 0;
    // SAFETY: the child is this process's.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 3);
    drop(black_box(before));
    let parent = read(&session.stop().path.unwrap());
    of(&parent, "alloc", 1111).check(10, 10);
    assert_eq!(of(&parent, "alloc", 2222).samples, 0);
    let path: PathBuf = folder.path().join(format!("out.{child}.nthb"));
    let child_profile = read(&path);
    of(&child_profile, "alloc", 2222).check(8, 1);
    assert_eq!(of(&child_profile, "alloc", 1111).samples, 0);
    assert_eq!(child_profile.meta.parent_pid, Some(std::process::id()));
}

/// The C library ends a process with its last thread. That must not be one of nthbyte's.
#[test]
fn a_process_ends_although_its_main_thread_has_ended_first() {
    const LONGEST: Duration = Duration::from_secs(300);
    extern "C" fn last(_: *mut c_void) -> *mut c_void {
        drop(black_box(Vec::<u8>::with_capacity(3333)));
        null_mut()
    }
    /// Forks. This thread is the child's main thread, and ends.
    extern "C" fn forks(child: *mut c_void) -> *mut c_void {
        let mut thread = 0;
        // SAFETY: `child` is a place for the number; the child's thread begins with a function of this program.
        unsafe {
            let number = libc::fork();
            if number == 0 {
                libc::pthread_create(&raw mut thread, null(), last, null_mut());
            } else {
                child.cast::<i32>().write(number);
            }
        }
        null_mut()
    }
    let _turn = one_at_a_time();
    let (folder, session) = begin(1);
    let (mut thread, mut child, mut status) = (0, -1, 0);
    // SAFETY: the variables outlive the thread.
    unsafe {
        let place = (&raw mut child).cast();
        assert_eq!(
            libc::pthread_create(&raw mut thread, null(), forks, place),
            0
        );
        libc::pthread_join(thread, null_mut());
    }
    assert!(child > 0);
    let began = Instant::now();
    // SAFETY: the child is this process's.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > LONGEST {
            // SAFETY: as above.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child did not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(status, 0);
    drop(session);
    let profile = read(&folder.path().join(format!("out.{child}.nthb")));
    of(&profile, "alloc", 3333).check(1, 1);
}

/// The stack of a sample begins at the function that called the allocator: nothing of nthbyte is in it.
#[test]
fn stacks_begin_above_nthbyte() {
    let _turn = one_at_a_time();
    let (_folder, session) = begin(1);
    drop(a_block_of_its_own());
    let profile = read(&session.stop().path.unwrap());
    let mut ids = profile.samples.ids();
    let id = ids.find(|&id| profile.samples.size(id) == 6789).unwrap();
    let executable = std::env::current_exe().unwrap();
    let data = std::fs::read(&executable).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let names = file.symbol_map();
    let mut found = Vec::new();
    for frame in profile.stack(profile.samples.stack(id)) {
        // The addresses of frames are relative to their files.
        if Path::new(&profile.functions[frame.function as usize].file) == executable {
            let symbol = names.get(frame.line.into());
            found.push(symbol.map_or("", |symbol| symbol.name()));
        }
    }
    let is_there = |text: &str| found.iter().any(|name| name.contains(text));
    assert!(is_there("a_block_of_its_own"), "{found:?}");
    for own in [
        "nthbyte_process",
        "nthbyte_session",
        "nthbyte_unwind",
        "slow",
    ] {
        assert!(!is_there(own), "{own}: {found:?}");
    }
}

#[inline(never)]
fn a_block_of_its_own() -> Vec<u8> {
    black_box(Vec::with_capacity(6789))
}
