//! Matches the functions of the old side with those of the new side.
//!
//! Nothing is guessed: two functions are one if their names, files and lines are the same, or if they differ in
//! a way that leaves no doubt.
//!
//! - *Another place of a folder.* A file that only one side has may lie under another folder on the other: a virtual
//!   environment, a checkout, another version's standard library. Files with the longest common end of their paths
//!   are candidates; if there is one such, and at least half of the functions that were seen in the smaller one have
//!   names that were seen in the other, it is the same file.
//! - *Another line.* In one file, a name that each side has once is the same function wherever it
//!   stands. Names that need not be unique (`<lambda>`, `<listcomp>`, or one that a side has several times) are the
//!   same function only if the nearest unique functions before and after moved by as many lines as they did.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nthbyte_profile::model::Function;
use serde::Serialize;

use super::runs::Key;

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
    /// Folders whose files were matched, in the order of their names.
    pub(super) folders: Vec<Folder>,
}

impl Matching {
    /// `prefixes`: pairs of folders that the user declares equal, the old one first.
    pub(super) fn of(old: &[&Function], new: &[&Function], prefixes: &[(String, String)]) -> Self {
        let (old_names, new_names) = (names_by_file(old), names_by_file(new));
        let mut matching = Self::default();
        let mut folders = BTreeSet::new();
        for (file, names) in &old_names {
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
                None => elsewhere(file, names, &old_names, &new_names),
            };
            if let Some((path, folder)) = found
                && path != *file
            {
                matching.files.insert((*file).to_owned(), path);
                folders.insert(folder);
            }
        }
        matching.folders = folders.into_iter().collect();
        matching.match_lines(old, new);
        matching
    }

    /// The new side's key for an old key; the same key if the function did not move.
    pub(super) fn translate(&self, key: &Key) -> Key {
        let mut key = key.clone();
        if let Some(file) = self.files.get(&key.file) {
            if key.name == key.file {
                key.name.clone_from(file);
            }
            key.file.clone_from(file);
        }
        if key.first_line > 0 {
            let of = (key.name.clone(), key.file.clone(), key.first_line);
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

/// What follows a folder in a path, with the slash before it.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The path on the new side of a file of the old side, and the folders of both.
fn elsewhere(
    file: &str,
    names: &BTreeSet<&str>,
    old: &Names,
    new: &Names,
) -> Option<(String, Folder)> {
    let only_new = new.keys().copied().filter(|path| !old.contains_key(path));
    let candidates = closest(file, only_new);
    let [path] = candidates[..] else { return None };
    // The same test in the other direction: no other file of the old side is as close to it.
    let only_old = old.keys().copied().filter(|path| !new.contains_key(path));
    if closest(path, only_old) != [file] {
        return None;
    }
    let theirs = &new[path];
    let named = |names: &BTreeSet<&str>| names.iter().filter(|name| is_name(name)).count();
    let fewest = named(names).min(named(theirs));
    let common = names
        .intersection(theirs)
        .filter(|name| is_name(name))
        .count();
    let base = file.rsplit('/').next().unwrap_or(file);
    let is_same = if fewest == 0 {
        // If the file has only the module's own code, its file's name must be specific.
        !base.starts_with("__") && names.intersection(theirs).next().is_some()
    } else {
        2 * common >= fewest
    };
    let end = common_end(file, path);
    is_same.then(|| {
        (
            path.to_owned(),
            Folder {
                old: file[..file.len() - end].to_owned(),
                new: path[..path.len() - end].to_owned(),
            },
        )
    })
}

/// The paths that share the longest end with this one: at least the file's name.
fn closest<'a>(path: &str, among: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut longest = 1;
    let mut found = Vec::new();
    for other in among {
        let end = common_end(path, other);
        if end > longest {
            longest = end;
            found.clear();
        }
        if end == longest {
            found.push(other);
        }
    }
    found
}

/// The length of the end that two paths have in common, in whole parts, with the slash before them.
fn common_end(one: &str, other: &str) -> usize {
    let parts = one.rsplit('/').zip(other.rsplit('/'));
    let common = parts.take_while(|(one, other)| one == other);
    let length = common.map(|(part, _)| part.len() + 1).sum::<usize>();
    // A path without a folder has no slash before it.
    length.min(one.len()).min(other.len())
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

    fn key(name: &str, file: &str, first_line: u32, line: u32) -> Key {
        Key {
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
