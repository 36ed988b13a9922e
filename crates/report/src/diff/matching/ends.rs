//! Paths by their ends.

use std::cmp::Ordering;

/// Paths in the order of their parts, the last one first: those that share an end are neighbours.
pub(super) struct Ends<'a>(Vec<&'a str>);

impl<'a> Ends<'a> {
    pub(super) fn of(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut paths: Vec<&str> = paths.collect();
        paths.sort_unstable_by(|one, other| by_end(one, other));
        Self(paths)
    }

    /// The path that shares more parts at its end with this one than any other does: at least the file's name.
    pub(super) fn closest(&self, path: &str) -> Option<&'a str> {
        let at = self.0.partition_point(|other| by_end(other, path).is_lt());
        let before = &self.0[..at];
        let after = &self.0[at..];
        let shared = |other: Option<&&str>| other.map_or(0, |other| common_parts(path, other));
        let (below, above) = (shared(before.last()), shared(after.first()));
        let (found, beside) = match below.cmp(&above) {
            Ordering::Less => (after.first(), after.get(1)),
            Ordering::Greater => (before.last(), before.iter().nth_back(1)),
            Ordering::Equal => return None,
        };
        found.filter(|_| shared(beside) < below.max(above)).copied()
    }
}

fn by_end(one: &str, other: &str) -> Ordering {
    one.rsplit('/').cmp(other.rsplit('/'))
}

/// How many parts at their ends two paths have in common.
fn common_parts(one: &str, other: &str) -> usize {
    let parts = one.rsplit('/').zip(other.rsplit('/'));
    parts.take_while(|(one, other)| one == other).count()
}

/// The length of the end that two paths have in common, in whole parts, with the slash before them.
pub(super) fn common_end(one: &str, other: &str) -> usize {
    let parts = one.rsplit('/').take(common_parts(one, other));
    let length = parts.map(|part| part.len() + 1).sum::<usize>();
    // A path without a folder has no slash before it.
    length.min(one.len()).min(other.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_closest_path_is_that_of_a_look_at_each(
            paths in prop::collection::btree_set("/?([ab]/){0,3}[ab]", 0..12),
            path in "/?([ab]/){0,3}[ab]",
        ) {
            let most = paths.iter().map(|other| common_parts(&path, other)).max().unwrap_or(0);
            let mut found = paths.iter().filter(|other| most > 0 && common_parts(&path, other) == most);
            let only = found.next().filter(|_| found.next().is_none());
            let ends = Ends::of(paths.iter().map(String::as_str));
            prop_assert_eq!(ends.closest(&path), only.map(String::as_str));
        }
    }
}
