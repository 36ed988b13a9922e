use std::cell::RefCell;
use std::ffi::c_void;
use std::hint::black_box;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use super::*;
use crate::bounds::tests as bounds;
use crate::copied;
use crate::interrupted::Registers;
use crate::processor::RED_ZONE;
use nthbyte_session::native;

/// The C library's own unwinder is the judge: its return addresses, from the caller of this function on.
#[inline(never)]
fn judged() -> Vec<usize> {
    let mut addresses = [std::ptr::null_mut::<c_void>(); 4 * MAX_DEPTH];
    // SAFETY: the array has so many places.
    let found = unsafe { libc::backtrace(addresses.as_mut_ptr(), addresses.len() as i32) };
    let found = &addresses[..found as usize];
    found.iter().skip(1).map(|one| *one as usize).collect()
}

fn unwinder() -> Option<Unwinder> {
    // Looked at once: without optimization, that takes long.
    static MODULES: OnceLock<Modules> = OnceLock::new();
    let unwinder = Probe::new().map(|memory| {
        let modules = MODULES.get_or_init(|| {
            let mut modules = Modules::new();
            modules.refresh(memory, &[]);
            modules
        });
        Unwinder::with(memory, modules.clone())
    });
    if unwinder.is_none() {
        eprintln!("not tested: process_vm_readv is forbidden here");
    }
    unwinder
}

#[inline(never)]
fn check(unwinder: &mut Unwinder) {
    let judged = judged();
    unwinder.walk(Epoch::for_test(1));
    let frames = unwinder.frames();
    assert!(frames.windows(2).all(|pair| pair[0].stack < pair[1].stack));
    // A caller's address is the last byte of its call; the walk's own frames come first.
    let walked: Vec<usize> = frames.iter().map(|frame| frame.address + 1).collect();
    let start = walked.iter().position(|&one| one == judged[1]);
    let walked = &walked[start.expect("the caller is found")..];
    let alike = walked.iter().zip(&judged[1..]).take_while(|(a, b)| a == b);
    let alike = alike.count();
    assert_eq!(
        unwinder.cut == Cut::Deep,
        judged.len() > MAX_DEPTH,
        "{}",
        judged.len()
    );
    if unwinder.cut == Cut::Deep {
        assert_eq!(alike, walked.len());
    } else {
        // The C library stops at the start of a thread or of the program, or one frame before.
        assert!(alike + 2 >= judged.len(), "{walked:x?} {judged:x?}");
    }
}

#[inline(never)]
fn first(unwinder: &mut Unwinder, depth: usize, check: fn(&mut Unwinder)) -> usize {
    let room = black_box([depth; 3]);
    second(unwinder, depth, check) + room[1]
}

#[inline(never)]
fn second(unwinder: &mut Unwinder, depth: usize, check: fn(&mut Unwinder)) -> usize {
    let room = black_box([depth; 40]);
    if depth == 0 {
        check(unwinder);
        return room[0];
    }
    first(unwinder, depth - 1, check) + room[39]
}

#[test]
fn callers_are_those_that_the_c_library_finds() {
    for depth in [0, 1, 7, 100, 2 * MAX_DEPTH] {
        let Some(mut unwinder) = unwinder() else {
            return;
        };
        first(&mut unwinder, depth, check);
        let thread = std::thread::Builder::new().stack_size(8 << 20);
        let thread = thread.spawn(move || {
            first(&mut unwinder, depth, check);
            // With the rules that the walks before have stored.
            first(&mut unwinder, depth, check);
        });
        thread.unwrap().join().unwrap();
    }
}

/// The parent's walk, in another thread, had the room for the stack.
#[test]
fn the_child_of_a_fork_inside_a_walk_walks() {
    if let Some(mut unwinder) = unwinder() {
        unwinder.chunk = None;
        first(&mut unwinder, 7, check);
    }
}

thread_local! {
    /// What a signal handler has kept of this thread.
    static KEPT: RefCell<Option<(Registers, Vec<u8>)>> = const { RefCell::new(None) };
}

/// Interrupts the calling thread. Returns what its handler has kept.
fn interrupted() -> (Registers, Vec<u8>) {
    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the argument of a handler with SA_SIGINFO.
        let registers = unsafe { Registers::of_context(context) };
        let range = registers.stack();
        // The thread has sent the signal itself, so it may allocate.
        let mut copy = vec![0; range.len()];
        let length = Probe::new().unwrap().bytes(range.start, &mut copy);
        copy.truncate(length);
        KEPT.set(Some((registers, copy)));
    }
    crate::prepare();
    // SAFETY: zero is a valid value of the struct, and the handler has the type that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
        libc::raise(libc::SIGUSR1);
    }
    KEPT.take().unwrap()
}

/// A walk from a copy finds what the C library finds in the stack itself.
#[inline(never)]
fn check_copy(unwinder: &mut Unwinder) {
    let (registers, copy) = interrupted();
    let judged = judged();
    let thread = Interrupted::new(registers, &copy);
    unwinder.walk_interrupted(&thread);
    let frames = unwinder.frames();
    assert!(frames.windows(2).all(|pair| pair[0].stack < pair[1].stack));
    let walked: Vec<usize> = frames.iter().map(|frame| frame.address + 1).collect();
    let start = walked.iter().position(|&one| one == judged[1]);
    let walked = &walked[start.expect("the caller is found")..];
    let alike = walked.iter().zip(&judged[1..]).take_while(|(a, b)| a == b);
    let alike = alike.count();
    if alike + 2 >= judged.len() {
        assert_eq!(unwinder.cut, Cut::No);
        return;
    }
    // The last frame's caller is not in the copy.
    assert_eq!((alike, unwinder.cut), (walked.len(), Cut::NotCopied));
    let last = frames[frames.len() - 1].stack;
    assert!(last + 1000 > registers.stack().end, "{last:x}");
    // With part of the copy, part of the frames.
    let all = frames.to_vec();
    let half = copy.len() / 2;
    unwinder.walk_interrupted(&Interrupted::new(registers, &copy[..half]));
    assert!(all.starts_with(unwinder.frames()));
    assert!(unwinder.frames().len() > all.len() / 3);
    unwinder.walk_interrupted(&Interrupted::new(registers, &[]));
    assert!(unwinder.frames().len() <= 2);
}

#[test]
fn an_interrupted_thread_is_walked_from_a_copy_of_its_stack() {
    for depth in [0, 1, 7, 50, 500] {
        let Some(mut unwinder) = unwinder() else {
            return;
        };
        first(&mut unwinder, depth, check_copy);
        let thread = std::thread::spawn(move || first(&mut unwinder, depth, check_copy));
        thread.join().unwrap();
    }
}

/// The kernel's code in this process has tables, without a file.
#[test]
fn the_kernels_code_is_known() {
    let Some(mut unwinder) = unwinder() else {
        return;
    };
    // SAFETY: no preconditions.
    let at = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if at == 0 {
        eprintln!("not tested: there is no vDSO");
        return;
    }
    let (_, named, position) = unwinder.modules.place(at + 0x600).unwrap();
    assert_eq!((&*named.path, position), ("[vdso]", 0x600));
    assert!(!named.build_id.is_empty());
    // A function of its own that calls nothing: on x86-64, the caller's address is at the stack pointer.
    let copy = [&[0; RED_ZONE][..], &(at as u64 + 1).to_ne_bytes(), &[0; 64]].concat();
    let mut registers = [0; Registers::WORDS];
    registers[..2].copy_from_slice(&[at as u64 + 0x600, 0x7000]);
    unwinder.walk_interrupted(&Interrupted::new(Registers::from_words(registers), &copy));
    assert_eq!(unwinder.frames()[0].address, at + 0x600);
}

/// Whatever the tables say, a walk ends, and reads nothing that is not there.
#[test]
fn damaged_tables_do_no_harm() {
    let Some(mut good) = unwinder() else {
        return;
    };
    first(&mut good, 5, check);
    let whole = good.frames().len();
    let mut shorter = 0;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200 {
        let Some(mut unwinder) = unwinder() else {
            return;
        };
        unwinder.modules.damage_own(|tables| {
            // From a byte in a thousand to every third.
            let every = 3 + 1000 / (round + 1);
            for byte in tables {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                if ((seed >> 33) as usize).is_multiple_of(every) {
                    *byte = (seed >> 40) as u8;
                }
            }
        });
        // `gimli` subtracts addresses of a table without looking, which a build with checks notices. Agents are
        // guarded against panics.
        let walk = AssertUnwindSafe(|| walk_at(&mut unwinder, 5));
        let _ = std::panic::catch_unwind(walk);
        shorter += usize::from(unwinder.frames().len() < whole);
        assert!(unwinder.frames().len() <= MAX_DEPTH);
    }
    // Otherwise the damage was not read.
    assert!(shorter > 20, "{shorter}");
}

#[inline(never)]
fn walk_at(unwinder: &mut Unwinder, depth: usize) -> usize {
    let room = black_box([depth; 9]);
    if depth == 0 {
        unwinder.walk(Epoch::for_test(1));
        return room[0];
    }
    walk_at(unwinder, depth - 1) + room[8]
}

/// A walk that has met an unknown library is completed from a copy of the stack, as if it had been known.
#[test]
fn a_walk_is_completed_when_its_library_is_known() {
    thread_local! {
        static UNWINDER: RefCell<Option<Unwinder>> = const { RefCell::new(None) };
    }

    /// Called by the C library's `qsort`, which is forgotten meanwhile.
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> i32 {
        UNWINDER.with_borrow_mut(|unwinder| check(unwinder.as_mut().unwrap()));
        0
    }

    #[inline(never)]
    fn check(unwinder: &mut Unwinder) {
        let epoch = Epoch::for_test(1);
        let known = unwinder.modules.clone();
        let mut others = known.clone();
        others.forget(libc::qsort as *const () as usize);
        let mut whole = Vec::new();
        // The same call twice, so that both walks have the same frames.
        for forgets in [false, true] {
            if forgets {
                unwinder.exchange(&mut others);
            }
            unwinder.walk(epoch);
            let wanted = unwinder.wanted.take();
            assert_eq!(wanted.is_some(), forgets);
            if !forgets {
                whole = unwinder.frames().to_vec();
                continue;
            }
            let wanted = wanted.unwrap();
            let (inner, place) = (wanted.inner, wanted.place);
            assert_eq!(unwinder.frames()[..inner], whole[..inner]);
            assert_eq!(place, whole[inner].address);
            let memory = Probe::new().unwrap();
            let copy = |unwinder: &mut Unwinder| {
                let (frames, end) = (&unwinder.frames, unwinder.main_end);
                let words = &mut unwinder.chunk.as_mut().unwrap().words;
                UnfinishedWalk::copy(wanted, frames, end, memory, &mut unwinder.kept, words)
                    .unwrap()
            };
            // A second copy has most of its parts from the first one.
            let (first, copy) = (copy(unwinder), copy(unwinder));
            assert!(native::UnfinishedStack::bytes(&copy) < native::UnfinishedStack::bytes(&first));
            // As before, as long as it is not known. After a later look, nothing waits for it any more.
            assert!(!unwinder.knows(&copy));
            unwinder.resume(&copy);
            assert_eq!(unwinder.frames()[..inner], whole[..inner]);
            assert_ne!(unwinder.frames(), whole);
            unwinder.walk(epoch);
            assert!(unwinder.wanted.is_none());
            unwinder.exchange(&mut known.clone());
            assert!(unwinder.unknown.is_empty());
            // A look that had begun already may find it.
            assert!(unwinder.knows(&copy));
            unwinder.resume(&copy);
            if whole[whole.len() - 1].stack - whole[inner].stack < copied::MOST {
                assert_eq!(unwinder.frames(), whole);
            } else {
                assert!(whole.starts_with(unwinder.frames()));
                assert!(unwinder.frames().len() > inner + 5);
            }
        }
    }

    #[inline(never)]
    fn down(depth: usize) -> usize {
        let mut room = black_box([depth; 300]);
        if depth > 0 {
            return down(depth - 1) + room[299];
        }
        // SAFETY: two words of an array, and a function that compares any.
        unsafe { libc::qsort(room.as_mut_ptr().cast(), 2, 8, Some(compare)) };
        room[0]
    }

    for depth in [0, 5, 200] {
        let Some(unwinder) = unwinder() else {
            return;
        };
        UNWINDER.set(Some(unwinder));
        down(depth);
    }
}

/// The CPU time of this thread.
fn cpu_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

thread_local! {
    /// For a function that has no argument for it.
    static MINE: RefCell<Option<Unwinder>> = const { RefCell::new(None) };
}

/// Compares a walk with the C library's, and says whether it has asked the kernel for words of the stack.
fn check_here(depth: usize) -> bool {
    MINE.with_borrow_mut(|unwinder| {
        let unwinder = unwinder.as_mut().unwrap();
        first(unwinder, depth, check);
        unwinder.chunk.as_ref().unwrap().reads > 0
    })
}

/// A thread's own stack is read as it is. One that the program has made, for a coroutine, is read through the kernel, though
/// it is beside the thread's own.
#[test]
fn the_threads_own_stack_is_read_without_the_kernel() {
    extern "C" fn coroutine() {
        assert!(check_here(20));
    }

    if !bounds::are_known() {
        return;
    }
    let (size, memory) = (1 << 20, bounds::mapped(2 << 20));
    bounds::in_thread(Ok(memory + size..memory + 2 * size), || {
        let Some(unwinder) = unwinder() else {
            return;
        };
        MINE.set(Some(unwinder));
        assert!(!check_here(20));
        // SAFETY: zeroes are a valid value of both; the second one's stack is memory that nobody else uses.
        unsafe {
            let mut here: libc::ucontext_t = std::mem::zeroed();
            let mut there: libc::ucontext_t = std::mem::zeroed();
            assert_eq!(libc::getcontext(&raw mut there), 0);
            there.uc_stack.ss_sp = std::ptr::without_provenance_mut(memory);
            there.uc_stack.ss_size = size;
            there.uc_link = &raw mut here;
            libc::makecontext(&raw mut there, coroutine, 0);
            assert_eq!(libc::swapcontext(&raw mut here, &raw const there), 0);
        }
        assert!(!check_here(20));
        MINE.set(None);
    });
}

/// What a walk of thirty frames costs: `cargo test --release -p nthbyte-unwind cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost() {
    #[inline(never)]
    fn down(unwinder: &mut Unwinder, depth: usize) -> usize {
        let room = black_box([depth; 20]);
        if depth > 0 {
            return down(unwinder, depth - 1) + room[19];
        }
        let epoch = Epoch::for_test(1);
        unwinder.walk(epoch);
        let rounds = 50_000;
        let start = cpu_nanos();
        for _ in 0..rounds {
            unwinder.walk(epoch);
        }
        let each = (cpu_nanos() - start) / rounds;
        let frames = unwinder.frames().len();
        eprintln!("{frames} frames: {each} ns, {:?}", unwinder.cache.stats());
        let (registers, copy) = interrupted();
        let start = cpu_nanos();
        for _ in 0..rounds {
            unwinder.walk_interrupted(&Interrupted::new(registers, &copy));
        }
        let each = (cpu_nanos() - start) / rounds;
        let frames = unwinder.frames().len();
        eprintln!(
            "{frames} frames of a copy of {} bytes: {each} ns",
            copy.len()
        );
        room[0]
    }
    let Some(mut unwinder) = unwinder() else {
        return;
    };
    for way in ["through the kernel", "in the thread's own stack"] {
        eprintln!("{way}:");
        for depth in [5, 15, 25, 45] {
            down(&mut unwinder, depth);
        }
        if !bounds::are_known() {
            break;
        }
    }
}
