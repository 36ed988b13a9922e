//! What the search for the collector does alike on every processor: it counts votes, and follows calls from the slow path.

use nthbyte_session::KeyMap;

use super::function::{Function, Set};
use super::incminimark::{COLLECTOR_STRUCT, Collector, MAJOR_STATES, Major};

/// A library with fewer slow paths is refused (Debian's builds of PyPy 7.3.11, 7.3.19 and 8.0.1 have 7,000 to 9,900). If so
/// many agree on one candidate and it leads, the rest of the library is not searched: each page that is read becomes
/// resident, a tenth of the code in these builds. All slow paths of the second-best candidate are fewer (200 to 290), so
/// these alone are not enough, wherever they lie.
pub const FEWEST_SITES: u32 = 500;
/// The best candidate must have this many times the slow paths of the second-best one (measured: 27 to 35 times in all of
/// the code).
pub const LEAD: u32 = 5;

/// What a search finds by the sites of allocations: the rest of the collector follows from it.
pub struct AllocationSites {
    pub gc: usize,
    pub reserve: usize,
    pub nursery_free: usize,
    pub nursery_top: usize,
    pub sites: u32,
    pub runner_up: u32,
}

impl AllocationSites {
    /// `slow_path`: the function at `reserve`.
    pub fn collector(
        self,
        code: &[u8],
        text: usize,
        slow_path: &Function,
    ) -> Result<Collector, String> {
        let Self {
            gc,
            reserve,
            nursery_free,
            nursery_top,
            sites,
            runner_up,
        } = self;
        let minor = minor_collection(
            code,
            text,
            gc,
            reserve,
            slow_path,
            nursery_free,
            nursery_top,
        )?;
        Ok(Collector {
            gc,
            reserve,
            minor,
            nursery_free,
            nursery_top,
            major: major_collection(code, text, slow_path, minor),
            sites,
            runner_up,
        })
    }
}

/// The candidate that the slow paths agree on.
pub struct Agreed<Candidate> {
    pub on: Candidate,
    /// Where its slow paths are.
    pub at: Vec<usize>,
    /// Their number, and the second-best candidate's.
    pub sites: u32,
    pub runner_up: u32,
}

/// Counts slow paths, each with what it is for, until enough of them agree.
///
/// # Errors
/// One clause, if they do not agree.
pub fn agreed<Candidate: Copy + Ord + std::hash::Hash>(
    slow_paths: impl Iterator<Item = (usize, Candidate)>,
) -> Result<Agreed<Candidate>, String> {
    let mut seen = Vec::new();
    let mut votes = KeyMap::<Candidate, u32>::default();
    for (at, candidate) in slow_paths {
        let count = votes.entry(candidate).or_default();
        *count += 1;
        let enough = count.is_multiple_of(FEWEST_SITES);
        seen.push((at, candidate));
        if enough && ranking(&votes).is_some_and(|(_, count, other)| leads(count, other)) {
            break;
        }
    }
    let (on, sites, runner_up) = ranking(&votes).ok_or("no allocation site was found")?;
    if sites < FEWEST_SITES || !leads(sites, runner_up) {
        return Err(format!(
            "the allocation sites do not agree on one collector ({sites} against {runner_up})"
        ));
    }
    seen.retain(|&(_, candidate)| candidate == on);
    Ok(Agreed {
        on,
        at: seen.into_iter().map(|(at, _)| at).collect(),
        sites,
        runner_up,
    })
}

/// The candidate with the most votes, its votes, and the votes of the second-best one.
fn ranking<Candidate: Copy + Ord + std::hash::Hash>(
    votes: &KeyMap<Candidate, u32>,
) -> Option<(Candidate, u32, u32)> {
    let (&winner, &count) = votes.iter().max_by_key(|&(&pair, &count)| (count, pair))?;
    let others = votes.iter().filter(|&(&pair, _)| pair != winner);
    Some((
        winner,
        count,
        others.map(|(_, &count)| count).max().unwrap_or(0),
    ))
}

/// Whether the best candidate leads.
pub const fn leads(count: u32, runner_up: u32) -> bool {
    count / LEAD >= runner_up
}

/// What has most of many votes.
pub fn clear_winner(votes: &KeyMap<usize, u32>) -> Option<usize> {
    let (&winner, &count) = votes.iter().max_by_key(|&(_, &count)| count)?;
    let others: u32 = votes.values().sum::<u32>() - count;
    (count > 100 && others < count / 2).then_some(winner)
}

/// The one function that sets both fields, of those that `collect_and_reserve` calls directly or
/// through one other function.
pub fn minor_collection(
    code: &[u8],
    text: usize,
    gc: usize,
    reserve: usize,
    slow_path: &Function,
    nursery_free: usize,
    nursery_top: usize,
) -> Result<usize, String> {
    let sets_both = |function: &Function| {
        [nursery_free, nursery_top].iter().all(|&offset| {
            function.stores.contains(&offset) || function.stores_absolute.contains(&(gc + offset))
        })
    };
    if !sets_both(slow_path) {
        return Err("the slow path does not set nursery_free and nursery_top".to_owned());
    }
    let mut found = Vec::new();
    let mut level = slow_path.calls.clone();
    for _ in 0..2 {
        let mut next = Vec::new();
        for callee in level {
            if callee == reserve || found.contains(&callee) {
                continue;
            }
            let function = Function::decode(code, text, callee);
            if sets_both(&function) {
                found.push(callee);
            } else {
                next.extend(function.calls);
            }
        }
        if !found.is_empty() {
            break;
        }
        level = next;
        level.sort_unstable();
        level.dedup();
    }
    match found[..] {
        [minor] => Ok(minor),
        [] => Err("no function called by the slow path empties the nursery".to_owned()),
        _ => Err(format!(
            "{} functions called by the slow path seem to empty the nursery",
            found.len()
        )),
    }
}

/// The one function that sets one field to each of the states. A function that `collect_and_reserve` calls, and that
/// also calls the minor collection, calls it.
pub fn major_collection(
    code: &[u8],
    text: usize,
    slow_path: &Function,
    minor: usize,
) -> Option<Major> {
    let mut found = Set::default();
    for &callee in slow_path.calls.iter().filter(|&&call| call != minor) {
        let progress = Function::decode(code, text, callee);
        if !progress.calls.contains(&minor) {
            continue;
        }
        for &step in progress.calls.iter().filter(|&&call| call != minor) {
            let constants = Function::decode(code, text, step).constants;
            let offsets = constants.iter().map(|&(offset, _)| offset);
            let is_set = |&offset: &usize| {
                let mut states = 0..MAJOR_STATES as i32;
                states.all(|state| constants.contains(&(offset, state)))
            };
            let fields = offsets.filter(|&offset| offset < COLLECTOR_STRUCT && offset % 8 == 0);
            found.extend(fields.filter(is_set).map(|state| Major { step, state }));
        }
    }
    let mut found = found.into_iter();
    found.next().filter(|_| found.next().is_none())
}
