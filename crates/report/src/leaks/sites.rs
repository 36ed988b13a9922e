//! Allocation sites, and the objects of each that lived long enough to matter.
//!
//! A site is a set of samples with something in common, at one of five [`Level`]s. All begin with
//! the innermost frame of the user's *own code*: the user can change the line that calls
//! `json.loads` and keeps the result, not the library's line. If a stack has no frame of own code,
//! its innermost frame is used.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, Nanos, NodeId, SampleId};
use nthbyte_profile::model::{Function, Lifetime};

use super::clock::{Clocks, Instant, STEP};
use crate::fold::stands_for;
use crate::inclusive;

/// What the samples of a site have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The function of own code.
    Function,
    /// … and its line.
    Line,
    /// … and the allocated type.
    Type,
    /// … (the line) and the line of own code that called.
    Caller,
    /// … (the line) and the innermost frame, where that is in a library.
    Inner,
}

const LEVELS: [Level; 5] = [
    Level::Function,
    Level::Line,
    Level::Type,
    Level::Caller,
    Level::Inner,
];

/// Never freed, as a position.
pub(crate) const NEVER: f32 = f32::INFINITY;

/// A sampled object that lived for a [`SHORTEST`] part of the run or to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) sample: SampleId,
    pub(crate) birth: Instant,
    /// [`NEVER`] if it was alive when the session ended.
    pub(crate) death: Instant,
}

/// Shorter lives do not change live bytes at the resolution of the curves.
const SHORTEST: f32 = 2.0 * STEP;

/// A site, and all that is needed to judge it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) level: Level,
    /// A group of functions: see [`Frames::group`].
    pub(crate) function: u32,
    /// The line of own code; 0 at [`Level::Function`].
    pub(crate) line: u32,
    /// Where its objects are in [`Sites::members`].
    members: Range<u32>,
    /// The time of the first birth of any object, even of a short-lived one.
    first: Nanos,
    /// The number of samples, including short-lived objects.
    births: u32,
}

/// Whether a module is being imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Import {
    No,
    /// It is searched and loaded.
    Loading,
    /// Its code runs: a function, by its number.
    Running(u32),
}

/// For each node of the stack tree, its frame of own code. Frames are indexes into
/// `Profile::frames`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// The innermost frame of own code, or else the innermost frame.
    pub(crate) frame: u32,
    /// The node of that frame.
    pub(crate) node: NodeId,
    has_own: bool,
    /// Whether it or one of its callers is code of a file.
    in_file: bool,
    importing: Import,
}

/// Properties of frames and functions.
#[derive(Debug)]
pub(crate) struct Frames {
    /// By node.
    pub(crate) own: Vec<Own>,
    /// By function: functions that a user regards as one have one group. A comprehension belongs to
    /// the function that contains it.
    pub(crate) group: Vec<u32>,
}

/// All sites of a profile.
#[derive(Debug)]
pub(crate) struct Sites {
    pub(crate) frames: Frames,
    pub(crate) lives: Vec<Life>,
    pub(crate) sites: Vec<Site>,
    /// Indexes into `lives`: the lives of each site together.
    members: Vec<u32>,
    /// A module whose import includes most of the program's run: such an import shows nothing.
    main_module: Option<u32>,
}

/// Marks of files that are not the user's own code.
const LIBRARIES: [&str; 10] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "/lib64/python3",
    "/lib/pypy3",
    "/lib-python/3",
    "/lib_pypy/",
    "/pypy3.",
    "/nthbyte/_",
    "/bin/nthbyte",
];

fn is_own(file: &str) -> bool {
    !file.is_empty()
        && !file.starts_with("<frozen")
        // PyPy's built-in modules that are written in Python.
        && !file.starts_with("<builtin>/")
        && !LIBRARIES.iter().any(|part| file.contains(part))
}

/// Whether code was made by a program, and has no file: `<string>`. What a user types in has none either, but is the user's own.
fn is_made(file: &str) -> bool {
    let typed = ["<stdin>", "<console>", "<ipython", "<doctest"];
    file.starts_with('<') && !typed.iter().any(|start| file.starts_with(start))
}

/// Whether this is the code of a script without a suffix in a folder for commands, which calls a library's main function:
/// `bin/pytest`. Nothing is to be changed there.
fn is_command(function: &Function) -> bool {
    let mut folders = function.file.rsplit('/');
    let is_script = folders.next().is_some_and(|name| !name.contains('.'));
    is_script && folders.next() == Some("bin") && function.name == "<module>"
}

/// The name without comprehensions at its end.
pub(crate) fn folded(mut name: &str) -> &str {
    loop {
        let inner = [
            ".<locals>.<listcomp>",
            ".<locals>.<dictcomp>",
            ".<locals>.<setcomp>",
            ".<locals>.<genexpr>",
        ];
        match inner.iter().find_map(|end| name.strip_suffix(end)) {
            Some(outer) => name = outer,
            None => return name,
        }
    }
}

impl Frames {
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut groups: HashMap<(&str, &str), u32, RandomState> = HashMap::default();
        let mut group = Vec::with_capacity(profile.functions.len());
        for function in &profile.functions {
            let next = groups.len() as u32;
            group.push(
                *groups
                    .entry((folded(&function.name), &function.file))
                    .or_insert(next),
            );
        }
        let functions = profile.functions.iter();
        let mut is_own: Vec<bool> = functions
            .clone()
            .map(|function| is_own(&function.file) && !is_command(function))
            .collect();
        // A line of Python is where something can be changed.
        let natives = profile.frames.iter();
        for frame in natives.filter(|frame| frame.kind == FrameKind::Native) {
            is_own[frame.function as usize] = false;
        }
        let is_inner: Vec<bool> = functions
            .clone()
            .map(|function| folded(&function.name) != function.name)
            .collect();
        let made: Vec<bool> = functions
            .clone()
            .map(|function| is_made(&function.file))
            .collect();
        let in_file: Vec<bool> = functions
            .clone()
            .zip(&made)
            .map(|(function, &made)| !made && stands_for(&function.file).is_none())
            .collect();
        let imports: Vec<bool> = functions
            .map(|function| function.file.starts_with("<frozen importlib._bootstrap"))
            .collect();
        let mut own = vec![
            Own {
                frame: u32::MAX,
                node: NodeId::ROOT,
                has_own: false,
                in_file: false,
                importing: Import::No,
            };
            profile.stacks.len()
        ];
        // Parents come before their children.
        for (number, node) in profile.stacks.iter().enumerate().skip(1) {
            let frame = &profile.frames[node.frame as usize];
            let parent = own[node.parent.index()];
            let function = frame.function as usize;
            // Where a file's code has made it, that is what a user can change. All of `python -c` is made.
            let by_file = made[function] && parent.in_file;
            let is_own = is_own[function] && frame.kind != FrameKind::Note && !by_file;
            let mut here = parent;
            here.in_file |=
                in_file[function] && !matches!(frame.kind, FrameKind::Note | FrameKind::Native);
            // A comprehension is a part of its function, and has the callers of that.
            let is_part = is_inner[function]
                && parent.has_own
                && group[profile.frames[parent.frame as usize].function as usize]
                    == group[function];
            if is_own && is_part {
                here.frame = node.frame;
            } else if is_own || !parent.has_own {
                here.frame = node.frame;
                here.node = NodeId(number as u32);
                here.has_own = is_own;
            }
            here.importing = match parent.importing {
                Import::No if imports[function] => Import::Loading,
                // The outermost of those that import each other.
                Import::Loading if profile.functions[function].name == "<module>" => {
                    Import::Running(frame.function)
                }
                importing => importing,
            };
            own[number] = here;
        }
        Self { own, group }
    }

    /// The next frame of own code that called a frame of it.
    pub(crate) fn caller(&self, profile: &Profile, stack: NodeId) -> Option<Own> {
        let of = self.own[stack.index()];
        if of.node == NodeId::ROOT {
            return None;
        }
        let parent = profile.stacks[of.node.index()].parent;
        let caller = self.own[parent.index()];
        caller.has_own.then_some(caller)
    }
}

/// The samples of one [`nthbyte_profile::model::Site`].
#[derive(Clone, Copy)]
struct Seen {
    /// Its sites, one of each level: an index into [`Making::numbers`]; [`UNSEEN`] without a sample.
    numbers: u32,
    births: u32,
    first: Nanos,
}

const UNSEEN: u32 = u32::MAX;

/// Tables that are needed only while sites are made.
#[derive(Default)]
struct Making {
    /// By stack and type: an index into `numbers`.
    of: HashMap<(NodeId, u32), u32, RandomState>,
    numbers: Vec<[u32; LEVELS.len()]>,
    keys: HashMap<(Level, u32, u32, u32), u32, RandomState>,
}

impl Sites {
    /// Passes over the samples once, with a row for each of the profile's own sites; the rest is done by row.
    pub(crate) fn of(profile: &Profile, clocks: &Clocks) -> Self {
        let samples = &profile.samples;
        let mut sites = Self {
            frames: Frames::of(profile),
            lives: Vec::new(),
            sites: Vec::new(),
            members: Vec::new(),
            main_module: None,
        };
        let mut making = Making::default();
        let none = Seen {
            numbers: UNSEEN,
            births: 0,
            first: Nanos(u64::MAX),
        };
        let mut seen = vec![none; samples.sites().len()];
        let short = clocks.step();
        let mut mark = clocks.mark(Nanos(0));
        for id in samples.ids() {
            let site = samples.site_id(id);
            let of = &mut seen[site.index()];
            if of.numbers == UNSEEN {
                let site = samples.site(site);
                of.numbers = sites.enter(profile, &mut making, site.stack, site.type_id.0);
            }
            let born = samples.time(id);
            of.births += 1;
            of.first = of.first.min(born);
            let death = match samples.freed(id) {
                Some(freed) => {
                    let freed = freed.max(born);
                    if !mark.contains(&born.0) {
                        mark = clocks.mark(born);
                    }
                    // Most objects die soon: they need no exact moments.
                    if freed.0 < mark.end && freed.0 - born.0 <= short {
                        continue;
                    }
                    clocks.moment(freed)
                }
                None if samples.lifetime(id) == Lifetime::DiedYoung => continue,
                // On PyPy the lifetime of old objects is not known: this is the longest possible
                // one.
                None => [NEVER; 2],
            };
            let birth = clocks.moment(born);
            let mut ages = death.iter().zip(birth).map(|(death, birth)| death - birth);
            if ages.any(|age| age >= SHORTEST) {
                sites.lives.push(Life {
                    sample: id,
                    birth,
                    death,
                });
            }
        }
        sites.divide(profile, &seen, &making);
        let mut running = vec![0_usize; profile.functions.len()];
        for (site, of) in samples.sites().iter().zip(&seen) {
            if let Import::Running(module) = sites.frames.own[site.stack.index()].importing {
                running[module as usize] += of.births as usize;
            }
        }
        let main = running.iter().position(|&count| count * 2 > samples.len());
        sites.main_module = main.map(|module| module as u32);
        sites
    }

    /// Says of each site which objects it has, and when its first was born.
    fn divide(&mut self, profile: &Profile, seen: &[Seen], making: &Making) {
        let of = |number: u32| making.numbers[number as usize].map(|site| site as usize);
        for seen in seen.iter().filter(|seen| seen.numbers != UNSEEN) {
            for site in of(seen.numbers) {
                let site = &mut self.sites[site];
                site.births += seen.births;
                site.first = site.first.min(seen.first);
            }
        }
        let sites_of = |life: &Life| of(seen[profile.samples.site_id(life.sample).index()].numbers);
        for life in &self.lives {
            for site in sites_of(life) {
                self.sites[site].members.end += 1;
            }
        }
        let mut before = 0;
        for site in &mut self.sites {
            let members = site.members.end;
            site.members = before..before;
            before += members;
        }
        self.members = vec![0; before as usize];
        for (number, life) in (0..).zip(&self.lives) {
            for site in sites_of(life) {
                let end = &mut self.sites[site].members.end;
                self.members[*end as usize] = number;
                *end += 1;
            }
        }
    }

    /// The objects of a site that lived long enough: indexes into `lives`.
    pub(crate) fn members(&self, site: &Site) -> &[u32] {
        &self.members[site.members.start as usize..site.members.end as usize]
    }

    fn enter(
        &mut self,
        profile: &Profile,
        making: &mut Making,
        stack: NodeId,
        type_id: u32,
    ) -> u32 {
        if let Some(&known) = making.of.get(&(stack, type_id)) {
            return known;
        }
        let place = |frame: u32| match profile.frames.get(frame as usize) {
            Some(frame) => (self.frames.group[frame.function as usize], frame.line),
            None => (u32::MAX, 0),
        };
        let (function, line) = place(self.frames.own[stack.index()].frame);
        let caller = self.frames.caller(profile, stack);
        let numbers = LEVELS.map(|level| {
            let line = if level == Level::Function { 0 } else { line };
            let third = match level {
                Level::Function | Level::Line => 0,
                Level::Type => type_id,
                Level::Caller => caller.map_or(u32::MAX, |caller| caller.frame),
                Level::Inner => profile.stacks[stack.index()].frame,
            };
            let key = (level, function, line, third);
            *making.keys.entry(key).or_insert_with(|| {
                let site = Site {
                    level,
                    function,
                    line,
                    members: 0..0,
                    first: Nanos(u64::MAX),
                    births: 0,
                };
                inclusive::push(&mut self.sites, site);
                self.sites.len() as u32 - 1
            })
        });
        making.numbers.push(numbers);
        let number = making.numbers.len() as u32 - 1;
        making.of.insert((stack, type_id), number);
        number
    }

    /// The numbers of the sites to examine: each set of samples once, at its most general level.
    pub(crate) fn distinct(&self) -> Vec<usize> {
        let mut seen = HashSet::with_hasher(RandomState::default());
        let mut order: Vec<usize> = (0..self.sites.len()).collect();
        order.sort_by_key(|&number| self.sites[number].level);
        order.retain(|&number| {
            let site = &self.sites[number];
            let lives = self.members(site);
            let key = (
                site.function,
                site.births,
                lives.len() as u32,
                lives.first().copied(),
                lives.last().copied(),
            );
            seen.insert(key)
        });
        order
    }

    /// The first birth of any object of a site, even of a short-lived one.
    pub(crate) fn first(&self, site: &Site, clocks: &Clocks) -> Instant {
        clocks.moment(site.first)
    }

    /// Whether a module is being imported when this site allocates. Each module is imported once,
    /// so its memory stops growing, even if late.
    pub(crate) fn is_import(&self, profile: &Profile, lives: &[u32]) -> bool {
        let importing = lives.iter().filter(|&&life| {
            let stack = profile.samples.stack(self.lives[life as usize].sample);
            match self.frames.own[stack.index()].importing {
                Import::No => false,
                Import::Loading => true,
                Import::Running(module) => self.main_module != Some(module),
            }
        });
        importing.count() * 2 > lives.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_in_a_bin_folder_is_not_own_code() {
        let is_command = |name: &str, file: &str| {
            is_command(&Function {
                name: name.into(),
                file: file.into(),
                first_line: 0,
            })
        };
        assert!(is_command("<module>", "/home/me/venv/bin/pytest"));
        assert!(!is_command("main", "/home/me/bin/tool"));
        assert!(!is_command("<module>", "/home/me/bin/tool.py"));
        assert!(!is_command("<module>", "/home/me/tool"));
        assert!(!is_command("<module>", "tool"));
    }
}
