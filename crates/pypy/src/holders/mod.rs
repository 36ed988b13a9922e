//! Who holds live objects, on PyPy.
//!
//! ```text
//! mod      what a snapshot may cost, and its steps in the copy
//! pending  has Python take the one that is due
//! dump     the heap as PyPy itself writes it: all objects and references
//! result   the snapshot: the nodes that Python has named, and those that only their type names
//! ```
//!
//! The program goes on while a copy of the process looks ([`nthbyte_session::snapshots`]). The copy is made with the
//! interpreter's lock held, in the middle of an allocation, and then it goes on with that allocation: so Python runs in it,
//! with one thread, and nothing of that reaches the program. `nthbyte/_pypy_holders.py` makes PyPy dump its heap there, and
//! names references: it gets at attributes in all forms, where the objects themselves differ from version to version.

mod dump;
pub mod pending;
mod result;

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nthbyte_holders::{Draw, Subgraph, Ways, WorkLimit, dominators, hash};
use nthbyte_host::clock;
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::holders::{Reason, Snapshot, SnapshotOutcome};
use nthbyte_rpython::binary::MappedLibrary;
use nthbyte_session::snapshots::{self, Duplicate, Limits, cost, room};

use self::dump::{Dump, Role, flag};
use self::result::{Named, Sought, Unnamed};
use crate::collector::Engine;
use crate::sealed::Seal;
use crate::types::{Types, is_cache, is_compiled, is_of_python};

/// What a snapshot takes, as a rule: for each byte that is alive, and besides. Measured with lists and dictionaries of
/// instances and texts on PyPy 7.3.11 to 8.0.1, rounded up.
const NANOS_A_BYTE: u64 = 6;
const NANOS_BESIDES: u64 = 350_000_000;
/// The longest a copy works.
const LONGEST: Duration = Duration::from_secs(30);
/// Bytes that the copy needs for each two that are alive, and besides.
const BYTES_FOR_TWO: u64 = 3;
const BYTES_BESIDES: u64 = 32 << 20;
/// Objects of the recording's samples beside those that are drawn, about.
const MOST_RECORDED: usize = 4000;

/// The copy, from its beginning to its end. Only its one thread uses it.
static COPY: AtomicPtr<Copied> = AtomicPtr::new(std::ptr::null_mut());

struct Copied {
    duplicate: Duplicate,
    reason: Reason,
    began: u64,
    seed: u64,
    types: Types,
    /// Where the objects of the recording's samples are.
    followed: Vec<(usize, SampleId)>,
    dump: *mut Dump,
    found: Option<Unnamed>,
}

/// What a snapshot is asked of.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub time: Nanos,
    pub reason: Reason,
    /// Whatever it costs.
    pub whatever: bool,
    /// Bytes of objects that are alive, or were when the collector looked.
    pub bytes: u64,
}

/// Takes a snapshot, if that is possible and costs no more than it may. `with_lock` runs its argument with the interpreter's
/// lock held, in an allocation after which Python calls [`is_copy`]; it says whether that was possible.
///
/// # Errors
/// One clause that says why there is none.
pub fn take(asked: Asked, with_lock: impl FnOnce(&mut dyn FnMut()) -> bool) -> Result<(), String> {
    let nanos = asked.bytes * NANOS_A_BYTE + NANOS_BESIDES;
    if !asked.whatever {
        cost::affords(Duration::from_nanos(nanos), asked.reason, asked.time)?;
    }
    room::has(asked.bytes / 2 * BYTES_FOR_TWO + BYTES_BESIDES)?;
    let seal = Seal::prepare()?;
    let prebuilt = MappedLibrary::of_this_process().map_or(0..0, |library| library.data);
    let limits = Limits {
        cpu: LONGEST,
        yields: asked.reason != Reason::End,
    };
    let mut taken = Err("it did not allocate where it was expected to".to_owned());
    with_lock(&mut || {
        let follows = Engine::follows();
        taken = match snapshots::split(asked.time, asked.reason, limits) {
            Ok(Some(duplicate)) => {
                begin_copy(asked, &seal, duplicate, &prebuilt, follows);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
    });
    taken
}

/// In the copy: switches sampling off, and sees to it that nothing waits for threads that are not there.
fn begin_copy(
    asked: Asked,
    seal: &Seal,
    duplicate: Duplicate,
    prebuilt: &std::ops::Range<usize>,
    follows: bool,
) {
    let began = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
    let (types, mut followed) = Engine::abandon().unwrap_or_default();
    if !follows {
        followed.clear();
    }
    let roles = types.in_order(|native| match native {
        native if is_of_python(native) => Role::OfPython,
        native if is_cache(native) => Role::Cache,
        native if is_compiled(native) => Role::Compiled,
        _ => Role::Other,
    });
    let copied = Copied {
        duplicate,
        reason: asked.reason,
        began,
        seed: asked.time.0,
        types,
        followed,
        dump: Dump::new(prebuilt.clone(), roles).read(),
        found: None,
    };
    let copied = Box::into_raw(Box::new(copied));
    COPY.store(copied, Relaxed);
    if let Err(why) = seal.close(dump::take) {
        // SAFETY: made above.
        unsafe { (*copied).fail(&why) };
    }
}

/// The copy that this process is.
fn copied<'a>() -> Option<&'a mut Copied> {
    // SAFETY: the copy has one thread, and no function here calls Python.
    unsafe { COPY.load(Relaxed).as_mut() }
}

/// Whether this process is a copy that shall look at its objects.
pub fn is_copy() -> bool {
    copied().is_some()
}

/// Ends the copy without a snapshot. `why`: one clause. Returns only where this process is no copy.
pub fn fail(why: &str) {
    if let Some(copied) = copied() {
        copied.fail(why);
    }
}

/// Reads the graph, once PyPy has dumped its heap: `roots` are the addresses of modules, their dictionaries and classes, and
/// `frames` pairs of a thread, an odd number, and the address of a frame that it runs. Returns the number of nodes.
pub fn graph(roots: &[usize], frames: &[[usize; 2]]) -> usize {
    copied().map_or(0, |copied| copied.graph(roots, frames))
}

/// Three numbers for each node: its address, the number of its parent, and whether Python can have it: see [`Unnamed::nodes`].
pub fn nodes(into: &mut [u64]) {
    if let Some(found) = copied().and_then(|copied| copied.found.as_ref()) {
        found.nodes(into);
    }
}

/// Ends the copy, with its snapshot. `named`: see [`Named::read`]. Returns only where this process is no copy.
pub fn leave(named: &str) {
    if let Some(copied) = copied() {
        copied.leave(named);
    }
}

/// Ends a search that takes too much time, or that nobody waits for.
struct Deadline<'a> {
    duplicate: &'a Duplicate,
    until: u64,
}

impl WorkLimit for Deadline<'_> {
    fn is_over(&mut self) -> bool {
        let used = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
        used >= self.until || self.duplicate.is_alone()
    }
}

impl Copied {
    fn fail(&self, why: &str) -> ! {
        self.duplicate
            .leave(&Snapshot::not_taken(Nanos(0), self.reason, why).body())
    }

    fn graph(&mut self, roots: &[usize], frames: &[[usize; 2]]) -> usize {
        // SAFETY: it was made when the copy began; PyPy writes no more.
        let dump = unsafe { &mut *self.dump };
        dump.finish();
        for &root in roots {
            dump.root(root);
        }
        for &[thread, frame] in frames {
            dump.frame_of(thread, frame);
        }
        let mut draw = Draw::of(dump.bytes, self.seed);
        let (graph, sizes) = (&dump.graph, &dump.sizes);
        let followed = std::mem::take(&mut self.followed).into_iter();
        let found = followed.map(|(address, sample)| (graph.find(address), sample));
        let mut recorded: Vec<(u32, SampleId)> = found.filter(|&(node, _)| node != 0).collect();
        recorded.sort_unstable();
        let most = MOST_RECORDED as f64 / recorded.len().max(MOST_RECORDED) as f64;
        let most = (most * u64::MAX as f64) as u64;
        let drawn: Vec<Sought> = (1..graph.len())
            .filter_map(|node| {
                let (address, size) = (graph.address(node), sizes[node as usize] as usize);
                let is_drawn = size > 0 && draw.takes(address, size);
                let at = recorded.binary_search_by_key(&node, |&(node, _)| node);
                // Beside the drawn ones, by another hash.
                let is_kept = is_drawn || hash(address as u64 ^ !self.seed) <= most;
                let recorded = at
                    .ok()
                    .filter(|_| size > 0 && is_kept)
                    .map(|at| recorded[at].1);
                (is_drawn || recorded.is_some()).then_some(Sought {
                    node,
                    is_drawn,
                    recorded,
                })
            })
            .collect();
        let nodes = || drawn.iter().map(|taken| taken.node);
        let mut limit = Deadline {
            duplicate: &self.duplicate,
            until: self.began + LONGEST.as_nanos() as u64,
        };
        let kind = |node| match graph.flags(node) {
            flags if flags & flag::ROOT != 0 => 1,
            flags if flags & flag::OF_INTERPRETER != 0 => 2,
            _ => 0,
        };
        let part = Subgraph::new(graph, nodes(), kind, &mut limit);
        let Some(mut part) = part else {
            self.fail("the references are too many for its processor time");
        };
        // The interpreter's own references count for what nothing else leads to: the constants of compiled loops are objects of
        // the program, too.
        part.forget_second();
        let tree = dominators(&part, &mut limit);
        let outcome = match &tree {
            Some(_) => SnapshotOutcome::Complete,
            None => SnapshotOutcome::PathsOnly("the references are too many".to_owned()),
        };
        let ways = Ways::of(
            &part,
            tree.as_ref(),
            nodes().map(|node| part.number(node)),
            // The last step from a thread to its frames.
            |way| graph.address(part.in_graph(way)) % 2 == 1,
        );
        // SAFETY: the addresses are of objects of this process, which no collection moves or frees any more.
        let found = unsafe {
            Unnamed::new(
                graph,
                sizes,
                part,
                tree,
                ways,
                drawn,
                draw.period,
                outcome,
                &mut self.types,
            )
        };
        let count = found.len();
        self.found = Some(found);
        count
    }

    fn leave(&mut self, named: &str) -> ! {
        let Some(found) = self.found.take() else {
            self.fail("its objects were not looked at");
        };
        let mut snapshot = found.snapshot(&Named::read(named));
        let now = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
        snapshot.cpu = Nanos(now.saturating_sub(self.began));
        let body = snapshot.body();
        if body.len() > snapshots::LONGEST_BODY {
            self.fail("what it has found is too much for the file");
        }
        self.duplicate.leave(&body)
    }
}
