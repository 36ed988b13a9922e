//! A library by which tests check the cut lists, from inside a free-threaded interpreter that loads it with `ctypes.PyDLL`.
//!
//! [`fuzz`] allocates, resizes and frees in the calling thread, and predicts each sample: the lists say how far the sample point
//! is when it was drawn, and the driver counts by itself from there. It checks that each free of a sampled block is told once, and
//! that no block is given out twice.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use nthbyte_heap::SampledBlock;
use nthbyte_mimalloc::{Functions, ThreadedObserver, seams};
use nthbyte_sampling::{Distances, Period, Random, SamplePoints};

/// Blocks that each thread keeps, and that threads exchange.
const KEPT: usize = 3000;
const SHARED: usize = 512;
const TOKENS: usize = 1 << 22;

macro_rules! python {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        #[allow(non_snake_case)]
        #[derive(Clone, Copy)]
        struct Python {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Python {
            fn find() -> Self {
                Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the name ends with a zero.
                        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast()) };
                        assert!(!found.is_null(), "{name}");
                        // SAFETY: CPython's public function of this name.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(found) }
                    },)*
                }
            }
        }
    };
}

python! {
    PyThreadState_GetUnchecked: fn() -> *mut c_void;
    PyMem_GetAllocator: fn(c_int, *mut c_void);
    PyMem_SetAllocator: fn(c_int, *mut c_void);
    PyObject_Malloc: fn(usize) -> *mut c_void;
    PyObject_Calloc: fn(usize, usize) -> *mut c_void;
    PyObject_Realloc: fn(*mut c_void, usize) -> *mut c_void;
    PyObject_Free: fn(*mut c_void);
    PyMem_Malloc: fn(usize) -> *mut c_void;
    PyMem_Calloc: fn(usize, usize) -> *mut c_void;
    PyMem_Realloc: fn(*mut c_void, usize) -> *mut c_void;
    PyMem_Free: fn(*mut c_void);
    PyType_GenericAlloc: fn(*mut c_void, isize) -> *mut c_void;
    Py_DecRef: fn(*mut c_void);
    PyEval_SaveThread: fn() -> *mut c_void;
    PyEval_RestoreThread: fn(*mut c_void);
}

fn python() -> &'static Python {
    static PYTHON: OnceLock<Python> = OnceLock::new();
    PYTHON.get_or_init(Python::find)
}

fn functions() -> Functions {
    let python = python();
    Functions {
        thread_state: python.PyThreadState_GetUnchecked,
        get_allocator: python.PyMem_GetAllocator,
        set_allocator: python.PyMem_SetAllocator,
        malloc: python.PyObject_Malloc,
        free: python.PyObject_Free,
    }
}

fn text(result: Result<(), &str>) -> *const c_char {
    let text = result.err().unwrap_or("fine");
    CString::new(text).unwrap_or_default().into_raw()
}

/// Installs the functions: `fine`, or why not.
#[unsafe(no_mangle)]
extern "C" fn install() -> *const c_char {
    // SAFETY: `PyDLL` calls in a thread with a state, in Python code.
    text(unsafe { nthbyte_mimalloc::install(&functions(), |originals| originals) })
}

/// Verifies the layout with one field changed.
#[unsafe(no_mangle)]
extern "C" fn verify_with(field: usize, change: isize) -> *const c_char {
    // SAFETY: as above.
    text(unsafe { seams::verify_with(&functions(), field, change) })
}

// The observer.

static TAKEN: [AtomicUsize; TOKENS] = [const { AtomicUsize::new(0) }; TOKENS];
static NEXT: AtomicU32 = AtomicU32::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
/// What the samples stand for, in bytes, and how many there were.
static ESTIMATE: AtomicU64 = AtomicU64::new(0);
static SAMPLES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The token of the sample that was taken last, plus 1.
    static LAST: Cell<u32> = const { Cell::new(0) };
}

fn complain(what: &str) {
    if WRONG.fetch_add(1, Relaxed) < 10 {
        eprintln!("wrong: {what}");
    }
}

fn sampled(_: usize, sample: &SampledBlock, period: Period) -> u32 {
    let token = NEXT.fetch_add(1, Relaxed) % TOKENS as u32;
    if TAKEN[token as usize].swap(sample.block as usize, Relaxed) != 0 {
        complain("more samples alive than there is room for");
    }
    let size = sample.block_size as f64;
    let weight = size / -(-size / period.bytes() as f64).exp_m1();
    ESTIMATE.fetch_add(weight as u64, Relaxed);
    SAMPLES.fetch_add(1, Relaxed);
    LAST.with(|last| last.set(token + 1));
    token
}

fn freed(_: usize, contents: usize, token: u32) {
    if TAKEN[token as usize].swap(0, Relaxed) != contents {
        complain("a free of another block");
    }
}

/// Starts a session.
#[unsafe(no_mangle)]
extern "C" fn start(period: u64, seed: u64) {
    for one in &TAKEN {
        one.store(0, Relaxed);
    }
    ESTIMATE.store(0, Relaxed);
    SAMPLES.store(0, Relaxed);
    let period = Period::new(period).unwrap_or(Period::EVERY);
    let observer = ThreadedObserver {
        context: 0,
        sampled,
        freed,
    };
    // SAFETY: installed.
    unsafe {
        nthbyte_mimalloc::start(
            SamplePoints::new(period, Distances::Exponential, seed),
            observer,
        )
    };
}

/// Changes the period.
#[unsafe(no_mangle)]
extern "C" fn set_period(period: u64) {
    nthbyte_mimalloc::set_period(Period::new(period).unwrap_or(Period::EVERY));
}

/// Continues in the child of a fork.
#[unsafe(no_mangle)]
extern "C" fn forked(number: u64) {
    // SAFETY: the child has one thread.
    unsafe { nthbyte_mimalloc::forked(number) };
}

/// Ends the session.
#[unsafe(no_mangle)]
extern "C" fn stop() {
    nthbyte_mimalloc::stop();
}

/// Totals: allocations, bytes, samples, lost samples, the estimate of the bytes, samples as the observer saw them, what was
/// wrong, entries that were displaced, pages of sampled blocks, records, free records.
#[unsafe(no_mangle)]
extern "C" fn totals(into: *mut u64) {
    let counted = nthbyte_mimalloc::statistics();
    let [displaced, pages] = seams::displaced();
    let (records, free) = seams::records();
    let all = [
        counted.allocations,
        counted.bytes,
        counted.samples,
        counted.lost,
        ESTIMATE.load(Relaxed),
        SAMPLES.load(Relaxed),
        WRONG.load(Relaxed),
        displaced,
        pages,
        records as u64,
        free as u64,
    ];
    // SAFETY: the caller's array has so many.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), into, all.len()) };
}

/// The number of samples that are alive.
#[unsafe(no_mangle)]
extern "C" fn alive() -> u64 {
    TAKEN.iter().filter(|one| one.load(Relaxed) != 0).count() as u64
}

// The fuzzer.

/// A block of the driver, at whose ends its number is written.
struct Kept {
    block: *mut u8,
    size: usize,
    is_object: bool,
    /// The token of its sample, plus 1.
    token: u32,
}

/// Blocks that another thread frees.
static EXCHANGE: [AtomicPtr<Kept>; SHARED] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SHARED];

/// Of a class: how many allocations come before the one that is sampled.
type Expected = [[Option<u64>; 60]; 4];

struct Fuzz {
    random: Random,
    kept: Vec<Option<Kept>>,
    objects: Vec<*mut c_void>,
    expected: Expected,
    large: Option<u64>,
    lost: u64,
    samples: u64,
}

const fn ends(block: *mut u8, size: usize) -> [*mut usize; 2] {
    [block.cast(), block.wrapping_add((size & !7) - 8).cast()]
}

impl Fuzz {
    fn forget(&mut self) {
        self.expected = [[None; 60]; 4];
        self.large = None;
        self.lost = lost();
    }

    /// Before an allocation of a known class: is it the one that is sampled?
    fn prediction(&mut self, heap: usize, size: usize) -> Option<bool> {
        if size > 1024 {
            return self.large.map(|left| size as u64 >= left);
        }
        let class = class(size);
        if self.expected[heap][class].is_none() {
            // SAFETY: in a thread with a state, in no allocation.
            self.expected[heap][class] = unsafe { seams::until_sample_of(heap, size) };
        }
        self.expected[heap][class].map(|left| left == 0)
    }

    /// After it: does the observer say the same? Returns its token, plus 1.
    fn judge(&mut self, heap: usize, size: usize, predicted: Option<bool>, block: *mut u8) -> u32 {
        let token = LAST.with(|last| last.replace(0));
        if token != 0 && TAKEN[token as usize - 1].load(Relaxed) != block as usize {
            complain("the sample is another block");
        }
        let is_sampled = token != 0;
        let now = lost();
        let is_lost = now != self.lost;
        self.lost = now;
        self.samples += u64::from(is_sampled);
        if predicted.is_some_and(|predicted| predicted != (is_sampled || is_lost)) {
            complain(&format!(
                "{size} bytes in heap {heap}: predicted {predicted:?}, sampled {is_sampled}"
            ));
        }
        if size > 1024 {
            self.large = if predicted == Some(false) {
                self.large.map(|left| left - size as u64)
            } else {
                large()
            };
        } else {
            let class = class(size);
            self.expected[heap][class] = match (predicted, self.expected[heap][class]) {
                (Some(false), Some(left)) if !is_sampled => Some(left - 1),
                // SAFETY: as above.
                _ => unsafe { seams::until_sample_of(heap, size) },
            };
        }
        token
    }

    fn allocate(&mut self, at: usize) {
        let python = python();
        let bits = self.random.next_u64();
        let is_object = bits & 1 == 0;
        let zero = bits & 14 == 0;
        let size = match bits >> 8 & 63 {
            0 => 1025 + (bits >> 16) as usize % 15_000,
            1 => 1025 + (bits >> 16) as usize % 300_000,
            2..8 => 16 + (bits >> 16) as usize % 1009,
            _ => 16 + (bits >> 16) as usize % 240,
        };
        let heap = usize::from(is_object);
        let predicted = self.prediction(heap, size);
        // SAFETY: in a thread with a state.
        let block: *mut u8 = unsafe {
            match (is_object, zero) {
                (true, false) => (python.PyObject_Malloc)(size),
                (true, true) => (python.PyObject_Calloc)(1, size),
                (false, false) => (python.PyMem_Malloc)(size),
                (false, true) => (python.PyMem_Calloc)(1, size),
            }
        }
        .cast();
        assert!(!block.is_null());
        let token = self.judge(heap, size, predicted, block);
        // SAFETY: a new block of so many bytes.
        unsafe {
            if zero && (0..size).any(|at| *block.add(at) != 0) {
                complain("memory that was to be zero");
            }
            block.write_bytes(0xff, size.min(4096));
            for end in ends(block, size) {
                end.write_unaligned(block as usize ^ size);
            }
        }
        self.kept[at] = Some(Kept {
            block,
            size,
            is_object,
            token,
        });
    }

    fn resize(&mut self, mut kept: Kept) -> Kept {
        let python = python();
        check(&kept);
        let size = 16 + self.random.next_u64() as usize % (2 * kept.size);
        let heap = usize::from(kept.is_object);
        // What becomes of its sample is checked by its end.
        // SAFETY: a block of this domain.
        unsafe {
            let realloc = if kept.is_object {
                python.PyObject_Realloc
            } else {
                python.PyMem_Realloc
            };
            let block: *mut u8 = realloc(kept.block.cast(), size).cast();
            assert!(!block.is_null());
            let moved = block != kept.block;
            if kept.token != 0
                && moved != (TAKEN[kept.token as usize - 1].load(Relaxed) != kept.block as usize)
            {
                complain("the sample of a block that was resized");
            }
            if moved {
                // The allocation of another block was not predicted.
                kept.token = LAST.with(|last| last.replace(0));
                self.lost = lost();
                if size > 1024 {
                    self.large = large();
                } else {
                    self.expected[heap][class(size)] = seams::until_sample_of(heap, size);
                }
            }
            kept.block = block;
            kept.size = size;
            for end in ends(block, size) {
                end.write_unaligned(block as usize ^ size);
            }
        }
        kept
    }

    /// Objects of the collector, of the type that the test gives.
    fn object(&mut self, class: *mut c_void, most: usize) {
        let python = python();
        if self.objects.len() >= most {
            let at = self.random.next_u64() as usize % self.objects.len();
            let object = self.objects.swap_remove(at);
            // SAFETY: a reference of our own.
            unsafe { (python.Py_DecRef)(object) };
            return;
        }
        // SAFETY: a type, whose objects need no more than this.
        unsafe {
            let object = (python.PyType_GenericAlloc)(class, 0);
            assert!(!object.is_null());
            LAST.with(|last| last.set(0));
            self.objects.push(object);
        }
    }
}

fn class(size: usize) -> usize {
    // The classes of one size of blocks.
    let size = seams::block_size(size);
    size.ilog2() as usize * 4 + ((size >> (size.ilog2() - 2)) & 3)
}

fn large() -> Option<u64> {
    // SAFETY: in a thread with a state, in no allocation.
    unsafe { seams::large_and_lost() }.map(|(bytes, _)| bytes)
}

fn lost() -> u64 {
    // SAFETY: as above.
    unsafe { seams::large_and_lost() }.map_or(0, |(_, lost)| lost)
}

fn check(kept: &Kept) {
    for end in ends(kept.block, kept.size) {
        // SAFETY: in the block.
        if unsafe { end.read_unaligned() } != kept.block as usize ^ kept.size {
            complain("a block was written to by somebody else");
        }
    }
}

fn free(kept: &Kept) {
    check(kept);
    // SAFETY: a block of this domain, in use.
    unsafe {
        if kept.is_object {
            (python().PyObject_Free)(kept.block.cast());
        } else {
            (python().PyMem_Free)(kept.block.cast());
        }
    }
    if kept.token != 0 && TAKEN[kept.token as usize - 1].load(Relaxed) == kept.block as usize {
        complain("a free that was not told");
    }
}

/// Runs so many operations. Objects are of `class`, a type of the collector, or none if it is null. Returns the number of samples
/// that were predicted.
#[unsafe(no_mangle)]
extern "C" fn fuzz(seed: u64, operations: u64, class: *mut c_void) -> u64 {
    let mut fuzz = Fuzz {
        random: Random::new(seed),
        kept: (0..KEPT).map(|_| None).collect(),
        objects: Vec::new(),
        expected: [[None; 60]; 4],
        large: None,
        lost: 0,
        samples: 0,
    };
    fuzz.forget();
    LAST.with(|last| last.set(0));
    for step in 0..operations {
        let bits = fuzz.random.next_u64();
        let at = bits as usize % KEPT;
        match (fuzz.kept[at].take(), bits >> 32 & 31) {
            (None, _) => fuzz.allocate(at),
            (Some(kept), 0) => {
                let other = bits as usize >> 16 & (SHARED - 1);
                let given = Box::into_raw(Box::new(kept));
                let got = EXCHANGE[other].swap(given, AcqRel);
                if !got.is_null() {
                    // SAFETY: made by a thread of the fuzzer, which has given it away.
                    free(&*unsafe { Box::from_raw(got) });
                }
            }
            (Some(kept), 1) => {
                let resized = fuzz.resize(kept);
                fuzz.kept[at] = Some(resized);
            }
            (Some(kept), _) => {
                free(&kept);
                fuzz.allocate(at);
            }
        }
        if !class.is_null() && bits >> 40 & 3 == 0 {
            fuzz.object(class, 500);
        }
        if step % 1000 == 999 {
            // The collector stops threads here.
            // SAFETY: in a thread with a state, in no allocation.
            unsafe {
                let state = (python().PyEval_SaveThread)();
                (python().PyEval_RestoreThread)(state);
            }
        }
    }
    for kept in fuzz.kept.iter().flatten() {
        free(kept);
    }
    for object in &fuzz.objects {
        // SAFETY: references of our own.
        unsafe { (python().Py_DecRef)(*object) };
    }
    fuzz.samples
}

/// Frees what threads have given away.
#[unsafe(no_mangle)]
extern "C" fn free_exchanged() {
    for slot in &EXCHANGE {
        let kept = slot.swap(std::ptr::null_mut(), AcqRel);
        if !kept.is_null() {
            // SAFETY: as in `fuzz`.
            free(&*unsafe { Box::from_raw(kept) });
        }
    }
}

/// Pairs of allocations and frees of a size, for counts of instructions.
#[unsafe(no_mangle)]
extern "C" fn spin(pairs: u64, size: usize, live: usize) {
    let python = python();
    let mut ring = vec![std::ptr::null_mut(); live];
    for pair in 0..pairs as usize {
        let slot = &mut ring[pair % live];
        // SAFETY: a block of ours, or null.
        unsafe {
            (python.PyObject_Free)(*slot);
            *slot = (python.PyObject_Malloc)(size);
        }
    }
    for block in ring {
        // SAFETY: as above.
        unsafe { (python.PyObject_Free)(block) };
    }
}
