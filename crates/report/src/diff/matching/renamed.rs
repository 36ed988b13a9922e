//! Files that have another name on the other side.

use std::collections::HashMap;

use super::{Folder, Names, alike, folder_of, is_name, named};

/// A name that more files have does not tell which of them a file was.
const COMMON: usize = 64;

/// The files that are one, of those that only one side has.
pub(super) fn renamed(
    old_left: &[&str],
    old: &Names<'_>,
    new_left: &[&str],
    new: &Names<'_>,
) -> Vec<Folder> {
    let later = most_alike(old_left, old, new_left, new);
    let earlier = most_alike(new_left, new, old_left, old);
    let scripts = lone_scripts(old_left, old, new_left, new);
    let pair = |&file: &&str| {
        let by_names = later.get(file).copied().filter(|&path| {
            let larger = named(&old[file]).max(named(&new[path]));
            2 * alike(&old[file], &new[path]) >= larger && earlier.get(path) == Some(&file)
        });
        let path = by_names.or_else(|| scripts.get(file).copied())?;
        Some(Folder {
            old: file.to_owned(),
            new: path.to_owned(),
        })
    };
    old_left.iter().filter_map(pair).collect()
}

/// For each of these files, the one of the others that has most of its names, if there is one such.
fn most_alike<'a>(
    files: &[&'a str],
    names: &Names<'_>,
    others: &[&'a str],
    other_names: &Names<'_>,
) -> HashMap<&'a str, &'a str> {
    let mut having: HashMap<&str, Vec<&'a str>> = HashMap::new();
    for &other in others {
        for &name in other_names[other].iter().filter(|name| is_name(name)) {
            let files = having.entry(name).or_default();
            if files.len() <= COMMON {
                files.push(other);
            }
        }
    }
    let most = |file: &'a str| {
        let mut counts: HashMap<&'a str, usize> = HashMap::new();
        let found = names[file].iter().filter_map(|name| having.get(name));
        for &other in found.filter(|files| files.len() <= COMMON).flatten() {
            *counts.entry(other).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let mut found = counts.iter().filter(|(_, count)| **count == most);
        let (&first, _) = found.next()?;
        found.next().is_none().then_some((file, first))
    };
    files.iter().filter_map(|file| most(file)).collect()
}

/// Scripts without functions, by those that take their places: the only ones of their folder.
fn lone_scripts<'a>(
    old_left: &[&'a str],
    old: &Names<'_>,
    new_left: &[&'a str],
    new: &Names<'_>,
) -> HashMap<&'a str, &'a str> {
    let only = |left: &[&'a str]| {
        let mut only: HashMap<&'a str, Option<&'a str>> = HashMap::new();
        for &file in left {
            let first = only.entry(folder_of(file)).or_insert(Some(file));
            *first = first.filter(|first| *first == file);
        }
        only
    };
    let theirs = only(new_left);
    let pair = |(folder, file): (&'a str, Option<&'a str>)| {
        let (file, path) = (file?, theirs.get(folder).copied().flatten()?);
        let is_script = [&old[file], &new[path]]
            .into_iter()
            .all(|names| names.contains("<module>") && named(names) == 0);
        is_script.then_some((file, path))
    };
    only(old_left).into_iter().filter_map(pair).collect()
}
