//! Matches the functions of the old side with the functions of the new side.
//!
//! Nothing is guessed: two functions are one if their names, files and lines are the same, or if they differ in
//! a way that leaves no doubt.
//!
//! - *Another place of a folder.* A file that only one side has may lie under another folder on the other: a virtual
//!   environment, a checkout, another version's standard library. Files with the longest common end of their paths
//!   are candidates; if there is one such, and at least half of the functions that were seen in the smaller one have
//!   names that were seen in the other, it is the same file.
//! - *Another name of a file.* Two files that only one side has each, `v1.py` and `v2.py`, are one if at least half of the
//!   functions seen in the larger one have names seen in the other, and no other file has as many of them; two scripts without
//!   functions, if no other file of their folder was left.
//! - *Another file of a function.* A name that each side has once, in another file, is one function if at least half of
//!   its lines that ran are as far below its first line on the other side.
//! - *Another line.* In one file, a name that each side has once is the same function wherever it
//!   stands. Names that need not be unique (`<lambda>`, `<listcomp>`, or one that a side has several times) are the
//!   same function only if the nearest unique functions before and after moved by as many lines as they did.

mod ends;
mod renamed;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nthbyte_profile::Profile;
use nthbyte_profile::model::Function;
use serde::Serialize;

use ends::{Ends, common_end};

/// The identity of a row on one side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RowKey {
    /// Function, file or type.
    pub(super) name: String,
    pub(super) file: String,
    /// First line of the function; 0 if there is none.
    pub(super) first_line: u32,
    /// With `--by line`, the line that ran.
    pub(super) line: u32,
}

impl RowKey {
    pub(super) fn named(name: &str) -> Self {
        (name, "", 0, 0).into()
    }
}

/// A key in a profile: name, file, first line and line.
pub(super) type Borrowed<'a> = (&'a str, &'a str, u32, u32);

impl From<Borrowed<'_>> for RowKey {
    fn from((name, file, first_line, line): Borrowed<'_>) -> Self {
        Self {
            name: name.to_owned(),
            file: file.to_owned(),
            first_line,
            line,
        }
    }
}

/// A folder of the old side that was matched with a folder of the new side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Folder {
    /// On the old side.
    pub old: String,
    /// On the new side.
    pub new: String,
}

/// The functions of the new side for the functions of the old side.
#[derive(Debug, Default)]
pub(super) struct Matching {
    /// Files that have another path.
    files: HashMap<String, String>,
    /// First lines that changed: by name, the new side's file and the old first line. `None`: the
    /// new side has another function at this line.
    lines: HashMap<(String, String, u32), Option<u32>>,
    /// Functions in another file: by name, the new side's path of the old file and the old first line, the new place.
    moved: HashMap<(String, String, u32), (String, u32)>,
    /// Folders whose files were matched, in the order of their names.
    pub(super) folders: Vec<Folder>,
    /// Files with another name that were matched.
    pub(super) renamed: Vec<Folder>,
}

impl Matching {
    /// `prefixes`: pairs of folders that the user declares equal, the old one first.
    pub(super) fn of(old: &[&Function], new: &[&Function], prefixes: &[(String, String)]) -> Self {
        let (old_names, new_names) = (names_by_file(old), names_by_file(new));
        let mut matching = Self::default();
        let mut folders = BTreeSet::new();
        let files = Files::of(&old_names, &new_names);
        for file in old_names.keys() {
            let moved = prefixes.iter().find_map(|(from, to)| {
                Some((
                    below(file, from)?,
                    Folder {
                        old: from.clone(),
                        new: to.clone(),
                    },
                ))
            });
            let found = match moved {
                Some((rest, folder)) => Some((
                    format!("{}{rest}", folder.new.trim_end_matches('/')),
                    folder,
                )),
                None if new_names.contains_key(file) => None,
                None => files.elsewhere(file),
            };
            if let Some((path, folder)) = found
                && path != *file
            {
                matching.files.insert((*file).to_owned(), path);
                folders.insert(folder);
            }
        }
        matching.folders = folders.into_iter().collect();
        matching.match_renamed(&old_names, &new_names);
        matching.match_lines(old, new);
        matching
    }

    /// The same for the functions of profiles, whose lines that ran are known.
    pub(super) fn of_profiles(
        old: &[Profile],
        new: &[Profile],
        prefixes: &[(String, String)],
    ) -> Self {
        let mut matching = Self::of(&functions(old), &functions(new), prefixes);
        matching.match_moved(old, new);
        matching
    }

    fn match_moved(&mut self, old: &[Profile], new: &[Profile]) {
        let (ours, theirs) = (only_places(old), only_places(new));
        let mut pairs = Vec::new();
        for (name, place) in ours {
            let Some((place, other)) = place.zip(theirs.get(name).copied().flatten()) else {
                continue;
            };
            let moved = self.files.get(&place.file);
            let file = moved.map_or(&place.file, |file| file);
            if *file != other.file {
                pairs.push((file.clone(), place, other));
            }
        }
        let ran = |profiles: &[Profile], function: usize| {
            let mut numbers = HashMap::new();
            for (number, pair) in pairs.iter().enumerate() {
                numbers.insert([pair.1, pair.2][function], number);
            }
            lines_below(profiles, &numbers, pairs.len())
        };
        let (ours, theirs) = (ran(old, 0), ran(new, 1));
        for ((file, place, other), (ours, theirs)) in pairs.iter().zip(ours.iter().zip(&theirs)) {
            let common = ours.intersection(theirs).count();
            if common > 0 && 2 * common >= ours.len().max(theirs.len()) {
                let from = (place.name.clone(), file.clone(), place.first_line);
                let to = (other.file.clone(), other.first_line);
                self.moved.insert(from, to);
            }
        }
    }

    /// Matches the rest: files that only one side has.
    fn match_renamed(&mut self, old: &Names<'_>, new: &Names<'_>) {
        let taken: BTreeSet<&str> = self.files.values().map(String::as_str).collect();
        // An installed module keeps its name.
        let own = |file: &&str| installed(file).is_none();
        let is_left = |file: &&str| !new.contains_key(file) && !self.files.contains_key(*file);
        let old_left: Vec<&str> = old.keys().copied().filter(own).filter(is_left).collect();
        let is_left = |file: &&str| !old.contains_key(file) && !taken.contains(file);
        let new_left: Vec<&str> = new.keys().copied().filter(own).filter(is_left).collect();
        let renamed = renamed::renamed(&old_left, old, &new_left, new);
        for Folder { old, new } in &renamed {
            self.files.insert(old.clone(), new.clone());
        }
        self.renamed = renamed;
    }

    /// The new side's key for an old key; the same key if the function did not move.
    pub(super) fn translate(&self, key: &RowKey) -> RowKey {
        let mut key = key.clone();
        if let Some(file) = self.files.get(&key.file) {
            if key.name == key.file {
                key.name.clone_from(file);
            }
            key.file.clone_from(file);
        }
        if key.first_line > 0 {
            let of = (key.name.clone(), key.file.clone(), key.first_line);
            if let Some((file, line)) = self.moved.get(&of) {
                key.file.clone_from(file);
                if key.line > 0 {
                    key.line = (key.line + line).saturating_sub(key.first_line);
                }
                key.first_line = *line;
                return key;
            }
            match self.lines.get(&of) {
                Some(&Some(line)) => {
                    if key.line > 0 {
                        key.line = (key.line + line).saturating_sub(key.first_line);
                    }
                    key.first_line = line;
                }
                // A line that no function has.
                Some(None) => key.first_line = u32::MAX - key.first_line,
                None => {}
            }
        }
        key
    }

    fn match_lines(&mut self, old: &[&Function], new: &[&Function]) {
        let mut files: BTreeMap<&str, [Lines; 2]> = BTreeMap::new();
        for (side, functions) in [old, new].into_iter().enumerate() {
            for function in functions.iter().filter(|function| function.first_line > 0) {
                let moved = self.files.get(&function.file).filter(|_| side == 0);
                let file = moved.map_or(function.file.as_str(), String::as_str);
                let lines = &mut files.entry(file).or_default()[side];
                lines
                    .entry(&function.name)
                    .or_default()
                    .insert(function.first_line);
            }
        }
        let mut found = HashMap::new();
        for (file, [old, new]) in &files {
            for (name, from, to) in moves(old, new) {
                found.insert((name.to_owned(), (*file).to_owned(), from), to);
            }
        }
        self.lines = found;
    }
}

fn functions(profiles: &[Profile]) -> Vec<&Function> {
    let all = profiles.iter().flat_map(|profile| &profile.functions);
    all.collect()
}

/// By name, the only function of a file that has it; `None` if there are several.
fn only_places(profiles: &[Profile]) -> HashMap<&str, Option<&Function>> {
    let mut places: HashMap<&str, Option<&Function>> = HashMap::new();
    for function in functions(profiles) {
        if function.first_line > 0 && is_name(&function.name) {
            let place = places.entry(&function.name).or_insert(Some(function));
            if *place != Some(function) {
                *place = None;
            }
        }
    }
    places
}

/// How far below its first line each function ran, by its number.
fn lines_below(
    profiles: &[Profile],
    numbers: &HashMap<&Function, usize>,
    count: usize,
) -> Vec<BTreeSet<u32>> {
    let mut below = vec![BTreeSet::new(); count];
    for profile in profiles {
        let numbered = profile.functions.iter().map(|of| numbers.get(of).copied());
        let numbered: Vec<Option<usize>> = numbered.collect();
        for frame in &profile.frames {
            if let Some(number) = numbered[frame.function as usize] {
                let first = profile.functions[frame.function as usize].first_line;
                below[number].insert(frame.line.saturating_sub(first));
            }
        }
    }
    below
}

/// The first lines of the functions of one file, by name.
type Lines<'a> = BTreeMap<&'a str, BTreeSet<u32>>;

/// The functions of a file whose line changed: name, old and new line; no new line if another function has the old
/// one.
fn moves<'a>(old: &Lines<'a>, new: &Lines<'a>) -> Vec<(&'a str, u32, Option<u32>)> {
    let mut found = Vec::new();
    let mut anchors = BTreeMap::new();
    for (name, lines) in old {
        let only = |lines: &BTreeSet<u32>| lines.first().copied().filter(|_| lines.len() == 1);
        let other = new.get(name).and_then(only);
        if let Some((from, to)) = only(lines).zip(other)
            && is_name(name)
        {
            anchors.insert(from, i64::from(to) - i64::from(from));
            if from != to {
                found.push((*name, from, Some(to)));
            }
        }
    }
    for (name, lines) in old {
        let Some(others) = new.get(name).filter(|others| *others != lines) else {
            continue;
        };
        if is_name(name) && lines.len() == 1 && others.len() == 1 {
            continue;
        }
        for &line in lines {
            let shift = shift(&anchors, line);
            let to = shift.and_then(|shift| u32::try_from(i64::from(line) + shift).ok());
            match to.filter(|to| others.contains(to)) {
                Some(to) if to != line => found.push((name, line, Some(to))),
                Some(_) => {}
                // Another function has its line, so they are not the same.
                None if others.contains(&line) => found.push((name, line, None)),
                None => {}
            }
        }
    }
    found
}

/// The number of lines by which the unique functions around a line moved, if they agree.
fn shift(anchors: &BTreeMap<u32, i64>, line: u32) -> Option<i64> {
    let before = anchors.range(..=line).next_back().map(|(_, &shift)| shift);
    let after = anchors.range(line..).next().map(|(_, &shift)| shift);
    match (before, after) {
        (Some(before), Some(after)) => (before == after).then_some(before),
        (Some(shift), None) | (None, Some(shift)) => Some(shift),
        (None, None) => Some(0),
    }
}

/// Whether a programmer chose this name: the interpreter's own names, such as `<lambda>`, are not
/// evidence.
fn is_name(name: &str) -> bool {
    !name.ends_with('>')
}

type Names<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn names_by_file<'a>(functions: &[&'a Function]) -> Names<'a> {
    let mut files: Names = BTreeMap::new();
    for function in functions
        .iter()
        .filter(|function| !function.file.is_empty())
    {
        files
            .entry(&function.file)
            .or_default()
            .insert(&function.name);
    }
    files
}

/// How many names a programmer chose.
fn named(names: &BTreeSet<&str>) -> usize {
    names.iter().filter(|name| is_name(name)).count()
}

/// How many of these are in both files.
fn alike(names: &BTreeSet<&str>, others: &BTreeSet<&str>) -> usize {
    let common = names.intersection(others);
    common.filter(|name| is_name(name)).count()
}

/// The path without the file's name.
fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// What follows a folder in a path, with the slash before it.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The files of both sides.
struct Files<'a> {
    old: &'a Names<'a>,
    new: &'a Names<'a>,
    /// Those that only one side has.
    only_old: Ends<'a>,
    only_new: Ends<'a>,
}

impl<'a> Files<'a> {
    fn of(old: &'a Names<'a>, new: &'a Names<'a>) -> Self {
        let only = |side: &'a Names<'a>, other: &Names<'_>| {
            Ends::of(
                side.keys()
                    .copied()
                    .filter(|path| !other.contains_key(path)),
            )
        };
        Self {
            old,
            new,
            only_old: only(old, new),
            only_new: only(new, old),
        }
    }

    /// The path on the new side of a file of the old side, and the folders of both.
    fn elsewhere(&self, file: &str) -> Option<(String, Folder)> {
        let path = self.only_new.closest(file)?;
        // The same test in the other direction: no other file of the old side is as close to it.
        if self.only_old.closest(path) != Some(file) {
            return None;
        }
        let (names, theirs) = (&self.old[file], &self.new[path]);
        let fewest = named(names).min(named(theirs));
        let common = alike(names, theirs);
        let base = file.rsplit('/').next().unwrap_or(file);
        let is_same = if fewest == 0 {
            // If the file has only the module's own code, its file's name must be specific.
            !base.starts_with("__") && names.intersection(theirs).next().is_some()
        } else {
            2 * common >= fewest
        };
        let end = common_end(file, path);
        let keeps_name = |path| installed(path).is_none_or(|name| end > name.len());
        (is_same && keeps_name(file) && keeps_name(path)).then(|| {
            (
                path.to_owned(),
                Folder {
                    old: file[..file.len() - end].to_owned(),
                    new: path[..path.len() - end].to_owned(),
                },
            )
        })
    }
}

/// What a module of an installed package, or of the standard library, is called there: it has this name in each folder that
/// it is installed in.
fn installed(path: &str) -> Option<&str> {
    let packages = ["/site-packages/", "/dist-packages/"].into_iter();
    let name = packages.filter_map(|folder| Some(path.rsplit_once(folder)?.1));
    name.min_by_key(|name| name.len()).or_else(|| {
        let below = path.rsplit_once("/lib/python3.")?.1;
        Some(below.split_once('/')?.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, file: &str, first_line: u32) -> Function {
        Function {
            name: name.to_owned(),
            file: file.to_owned(),
            first_line,
        }
    }

    fn key(name: &str, file: &str, first_line: u32, line: u32) -> RowKey {
        RowKey {
            name: name.to_owned(),
            file: file.to_owned(),
            first_line,
            line,
        }
    }

    fn matching(old: &[Function], new: &[Function], prefixes: &[(&str, &str)]) -> Matching {
        let prefixes: Vec<(String, String)> = prefixes
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()))
            .collect();
        let old: Vec<&Function> = old.iter().collect();
        let new: Vec<&Function> = new.iter().collect();
        Matching::of(&old, &new, &prefixes)
    }

    #[test]
    fn a_function_that_moved_takes_its_lines_with_it() {
        let old = [function("f", "a.py", 10), function("g", "a.py", 20)];
        let new = [function("f", "a.py", 13), function("g", "a.py", 20)];
        let found = matching(&old, &new, &[]);
        assert_eq!(
            found.translate(&key("f", "a.py", 10, 12)),
            key("f", "a.py", 13, 15)
        );
        assert_eq!(
            found.translate(&key("g", "a.py", 20, 0)),
            key("g", "a.py", 20, 0)
        );
        assert!(found.folders.is_empty());
    }

    #[test]
    fn a_file_with_another_name_is_known_by_its_functions() {
        let side = |file: &str, names: &[&str]| -> Vec<Function> {
            let numbered = (10..).zip(names);
            numbered
                .map(|(line, name)| function(name, file, line))
                .collect()
        };
        let renamed = |old: &[Function], new: &[Function]| -> Vec<(String, String)> {
            let found = matching(old, new, &[]).renamed.into_iter();
            found.map(|Folder { old, new }| (old, new)).collect()
        };
        let pair = |old: &str, new: &str| vec![(old.to_owned(), new.to_owned())];
        let v1 = side("/a/v1.py", &["<module>", "f", "g", "h"]);
        let v2 = side("/a/v2.py", &["<module>", "f", "g", "other"]);
        assert_eq!(renamed(&v1, &v2), pair("/a/v1.py", "/a/v2.py"));
        let key = matching(&v1, &v2, &[]).translate(&key("f", "/a/v1.py", 11, 12));
        assert_eq!((key.file.as_str(), key.line), ("/a/v2.py", 12));
        // Another file that is as much like it, and one that has too little in common.
        let twice = [v2.clone(), side("/a/v3.py", &["f", "g"])].concat();
        assert_eq!(renamed(&v1, &twice), []);
        assert_eq!(
            renamed(&v1, &side("/a/v2.py", &["<module>", "f", "x", "y"])),
            []
        );
        // Scripts without functions: the only ones of their folder.
        let (one, two) = (
            side("/a/v1.py", &["<module>"]),
            side("/a/v2.py", &["<module>"]),
        );
        assert_eq!(renamed(&one, &two), pair("/a/v1.py", "/a/v2.py"));
        assert_eq!(renamed(&one, &side("/b/v2.py", &["<module>"])), []);
        assert_eq!(
            renamed(&one, &[two, side("/a/x.py", &["<module>"])].concat()),
            []
        );
    }

    #[test]
    fn lambdas_are_matched_only_where_their_neighbours_say_so() {
        let old = [
            function("f", "a.py", 10),
            function("<lambda>", "a.py", 12),
            function("g", "a.py", 20),
            function("<lambda>", "a.py", 22),
            function("h", "a.py", 30),
        ];
        let new = [
            function("f", "a.py", 20),
            function("<lambda>", "a.py", 22),
            function("g", "a.py", 30),
            function("h", "a.py", 45),
        ];
        let found = matching(&old, &new, &[]);
        let lambda = |line| key("<lambda>", "a.py", line, 0);
        assert_eq!(found.translate(&lambda(12)), lambda(22));
        // The one at 22 is not the new one at 22, and g and h moved differently.
        assert_eq!(found.translate(&lambda(22)), lambda(u32::MAX - 22));
    }

    #[test]
    fn another_environment_is_found() {
        let (old, new) = (
            "/home/a/venv/lib/python3.11/site-packages",
            "/srv/env2/lib/python3.11/site-packages",
        );
        let files = [
            "/lark/lexer.py",
            "/lark/parser.py",
            "/lark/__init__.py",
            "/other/__init__.py",
        ];
        let of = |folder: &str| -> Vec<Function> {
            let at = |file: &&str| {
                [
                    function("run", &format!("{folder}{file}"), 3),
                    function("<module>", &format!("{folder}{file}"), 1),
                ]
            };
            files.iter().flat_map(at).collect()
        };
        let found = matching(&of(old), &of(new), &[]);
        assert_eq!(
            found.folders,
            [Folder {
                old: "/home/a/venv".into(),
                new: "/srv/env2".into()
            }]
        );
        for file in files {
            let (from, to) = (format!("{old}{file}"), format!("{new}{file}"));
            assert_eq!(
                found.translate(&key("run", &from, 3, 0)),
                key("run", &to, 3, 0)
            );
            assert_eq!(
                found.translate(&key(&from, &from, 0, 0)),
                key(&to, &to, 0, 0)
            );
        }
    }

    #[test]
    fn what_only_looks_alike_is_left_alone() {
        // Same file name, other functions.
        let found = matching(
            &[function("f", "/a/x/util.py", 1)],
            &[function("g", "/b/y/util.py", 1)],
            &[],
        );
        assert!(found.folders.is_empty());
        // Two files that are equally close.
        let new = [
            function("f", "/b/util.py", 1),
            function("f", "/c/util.py", 1),
        ];
        let found = matching(&[function("f", "/a/util.py", 1)], &new, &[]);
        assert!(found.folders.is_empty());
        // `__init__.py` files, which cannot be distinguished.
        let old = [function("<module>", "/p/a/__init__.py", 1)];
        let new = [function("<module>", "/p/b/__init__.py", 1)];
        assert!(matching(&old, &new, &[]).folders.is_empty());
    }

    #[test]
    fn an_installed_module_is_matched_by_its_whole_name() {
        let core = |folder: &str| [function("run", &format!("{folder}/core.py"), 1)];
        let packages = "/venv/lib/python3.12/site-packages";
        let other = "/opt/env/lib/python3.12/site-packages";
        let is_matched = |one: &str, another: &str| {
            let found = matching(&core(one), &core(another), &[]);
            assert_eq!(found.folders.is_empty(), found.files.is_empty());
            !found.files.is_empty()
        };
        assert!(is_matched(
            &format!("{packages}/numpy"),
            &format!("{other}/numpy")
        ));
        assert!(is_matched("/home/me/src/numpy", &format!("{other}/numpy")));
        assert!(!is_matched(
            &format!("{packages}/numpy"),
            &format!("{other}/anyio")
        ));
        assert!(!is_matched(
            "/usr/lib/python3.11/asyncio",
            "/opt/lib/python3.11/email"
        ));
        assert!(is_matched(
            "/usr/lib/python3.11/asyncio",
            "/opt/lib/python3.11/asyncio"
        ));
        // Nor is it another module of its folder, however alike the names of their functions are.
        let module = |name: &str| {
            [function(
                "__init__",
                &format!("/usr/lib/python3.11/{name}.py"),
                1,
            )]
        };
        let found = matching(&module("_weakrefset"), &module("types"), &[]);
        assert!(found.files.is_empty());
    }

    #[test]
    fn the_user_may_say_which_folders_are_the_same() {
        let old = [function("f", "/a/x.py", 1)];
        let new = [function("g", "/b/x.py", 1)];
        let found = matching(&old, &new, &[("/a/", "/b")]);
        assert_eq!(
            found.translate(&key("f", "/a/x.py", 1, 0)),
            key("f", "/b/x.py", 1, 0)
        );
        assert_eq!(
            found.translate(&key("f", "/ab/x.py", 1, 0)),
            key("f", "/ab/x.py", 1, 0)
        );
    }
}
