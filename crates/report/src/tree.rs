//! The call tree of allocations or of time for a terminal, with the outermost callers first.
//!
//! All calls of one function by one caller are one line, even from different lines of the caller.
//! Only the heaviest nodes are shown, up to the requested number. A node is never lighter than its
//! callees, so the shown nodes are connected. A function that is the only one shown under its
//! caller is not indented further, so that deep chains of calls stay readable.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Write;

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;
use nthbyte_profile::model::Function;

use crate::inclusive::{ByStack, Children, Sum, WithCallees};
use crate::quantity::Quantity;
use crate::text::{self, Cut};

/// A line of a call tree.
#[derive(Clone, Debug)]
struct Branch<S> {
    /// `None` for everything.
    function: Option<u32>,
    totals: S,
    /// The branches shown below, heaviest first, by their numbers.
    callees: Vec<usize>,
    /// The number of functions below that are not shown, and their samples.
    hidden: (usize, S),
}

/// A call tree.
#[derive(Debug)]
pub struct Tree<'a, Q: Quantity> {
    profile: &'a Profile,
    quantity: Q,
    /// The name of the first branch.
    whole: &'static str,
    /// The first branch is everything.
    branches: Vec<Branch<Q::Sum>>,
}

/// A candidate for the shown branches; the heaviest is taken next.
struct Candidate<S> {
    caller: usize,
    function: u32,
    nodes: Vec<NodeId>,
    totals: S,
    weight: f64,
}

impl<S> Candidate<S> {
    fn order(&self) -> (f64, std::cmp::Reverse<u32>) {
        (self.weight, std::cmp::Reverse(self.function))
    }
}

impl<S> PartialEq for Candidate<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S> Eq for Candidate<S> {}

impl<S> PartialOrd for Candidate<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> Ord for Candidate<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((one, one_function), (two, two_function)) = (self.order(), other.order());
        one.total_cmp(&two).then(one_function.cmp(&two_function))
    }
}

/// Functions below this share of the whole are not shown.
const FAINTEST: f64 = 0.001;

/// The functions that are not shown under a caller get a line if their sum is this share of the whole.
const WORTH_A_LINE: f64 = 0.01;

impl<'a, Q: Quantity> Tree<'a, Q> {
    /// The `lines` functions that allocated or took most, in the call tree.
    #[must_use]
    pub fn of(profile: &'a Profile, lines: usize) -> Self {
        let (quantity, stacks) = Q::of(profile);
        Self::grow(profile, quantity, stacks, lines)
    }

    /// The same tree, of a selected part of the profile.
    #[must_use]
    pub fn of_a_part(self) -> Self {
        Self {
            whole: "all that is selected",
            ..self
        }
    }

    fn grow(profile: &'a Profile, quantity: Q, stacks: ByStack<Q::Sum>, lines: usize) -> Self {
        let nodes = &WithCallees::of(profile, stacks);
        let children = Children::of(profile, |node| nodes.get(node).is_some());
        let mut tree = Self {
            profile,
            quantity,
            whole: "the whole program",
            branches: Vec::new(),
        };
        let all = nodes.get(NodeId::ROOT).copied().unwrap_or_default();
        let mut candidates = BinaryHeap::new();
        let everything = &[NodeId::ROOT];
        tree.show(None, everything, all, &children, nodes, &mut candidates);
        let least = Q::size(&all) * FAINTEST;
        while let Some(next) = candidates.pop() {
            if tree.branches.len() > lines || next.weight < least {
                tree.hide(&next);
                continue;
            }
            let number = tree.branches.len();
            tree.branches[next.caller].callees.push(number);
            let function = Some(next.function);
            tree.show(
                function,
                &next.nodes,
                next.totals,
                &children,
                nodes,
                &mut candidates,
            );
        }
        tree
    }

    fn show(
        &mut self,
        function: Option<u32>,
        nodes: &[NodeId],
        totals: Q::Sum,
        children: &Children,
        with_callees: &WithCallees<Q::Sum>,
        candidates: &mut BinaryHeap<Candidate<Q::Sum>>,
    ) {
        let caller = self.branches.len();
        let mut callees: HashMap<u32, Candidate<Q::Sum>> = HashMap::new();
        for callee in nodes.iter().flat_map(|&node| children.of_node(node)) {
            let Some(&totals) = with_callees.get(callee) else {
                continue;
            };
            let frame = self.profile.stacks[callee.index()].frame;
            let function = self.profile.frames[frame as usize].function;
            let candidate = callees.entry(function).or_insert_with(|| Candidate {
                caller,
                function,
                nodes: Vec::new(),
                totals: Q::Sum::default(),
                weight: 0.0,
            });
            candidate.nodes.push(callee);
            candidate.totals.add(&totals);
            candidate.weight += Q::size(&totals);
        }
        candidates.extend(callees.into_values());
        self.branches.push(Branch {
            function,
            totals,
            callees: Vec::new(),
            hidden: (0, Q::Sum::default()),
        });
    }

    fn hide(&mut self, candidate: &Candidate<Q::Sum>) {
        let (number, totals) = &mut self.branches[candidate.caller].hidden;
        *number += 1;
        totals.add(&candidate.totals);
    }

    /// The tree as text, in lines of at most `width` columns (but at least 40).
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let width = width.max(40);
        let mut text = String::new();
        // The lines still to write: a branch (or the hidden ones below it), the indent of its
        // name, and the indent of the names below it. Callees are pushed in reverse.
        let mut todo = vec![(Line::Branch(0), String::new(), String::new())];
        while let Some((line, prefix, below)) = todo.pop() {
            self.line(&mut text, line, &prefix, width);
            let Line::Branch(number) = line else { continue };
            let branch = &self.branches[number];
            let mut lines: Vec<Line> = branch.callees.iter().copied().map(Line::Branch).collect();
            let hidden = Q::size(&branch.hidden.1);
            if !lines.is_empty() && hidden >= self.whole() * WORTH_A_LINE {
                lines.push(Line::Hidden(number));
            }
            let only = lines.len() == 1;
            for (at, &line) in lines.iter().enumerate().rev() {
                let last = at + 1 == lines.len();
                let (mark, space) = match (only, last) {
                    (true, _) => ("", ""),
                    (false, true) => ("╰ ", "  "),
                    (false, false) => ("├ ", "│ "),
                };
                todo.push((line, format!("{below}{mark}"), format!("{below}{space}")));
            }
        }
        text
    }

    fn whole(&self) -> f64 {
        Q::size(&self.branches[0].totals)
    }

    fn line(&self, text: &mut String, line: Line, prefix: &str, width: usize) {
        let (totals, label) = match line {
            Line::Branch(number) => {
                let branch = &self.branches[number];
                (&branch.totals, self.label(branch))
            }
            Line::Hidden(number) => {
                let (hidden, totals) = &self.branches[number].hidden;
                (totals, (format!("… {hidden} more"), String::new()))
            }
        };
        let whole = self.whole();
        let share = if whole > 0.0 {
            Q::size(totals) / whole
        } else {
            0.0
        };
        let figure = self.quantity.figure(totals);
        let figures = format!("{:>6} {figure} ", text::percent(share));
        let rest = width.saturating_sub(text::width(&figures));
        // At least half of the line is for the name, at any depth.
        let prefix = text::fit(prefix, rest / 2, Cut::Start);
        let left = rest.saturating_sub(text::width(&prefix));
        let label = fit_label(label, left);
        let _ = writeln!(text, "{figures}{prefix}{label}");
    }

    /// The name of a function, and its place in the source.
    fn label(&self, branch: &Branch<Q::Sum>) -> (String, String) {
        let Some(function) = branch.function else {
            return (self.whole.to_owned(), String::new());
        };
        let Function {
            name,
            file,
            first_line,
        } = &self.profile.functions[function as usize];
        let file = short(file);
        let place = match (file.is_empty(), first_line) {
            (true, _) => String::new(),
            (false, 0) => format!(" ({file})"),
            (false, line) => format!(" ({file}:{line})"),
        };
        (name.clone(), place)
    }
}

/// The last part of a path. A package's file has its folder too: many files are called `__init__.py`.
fn short(file: &str) -> &str {
    let folders = if file.ends_with("/__init__.py") || file.ends_with("/__main__.py") {
        2
    } else {
        1
    };
    let mut slashes = file.rmatch_indices('/');
    slashes
        .nth(folders - 1)
        .map_or(file, |(at, _)| &file[at + 1..])
}

/// The name gives way to the place, but for some letters.
fn fit_label((name, place): (String, String), columns: usize) -> String {
    const NAME: usize = 8;
    let room = columns.saturating_sub(text::width(&text::clean(&place)));
    let name = text::fit(&name, room.max(NAME).min(columns), Cut::Middle);
    let left = columns.saturating_sub(text::width(&name));
    // A space, two brackets and an ellipsis with some letters.
    if left < 8 {
        return name;
    }
    name + &text::fit(&place, left, Cut::Middle)
}

#[derive(Clone, Copy)]
enum Line {
    Branch(usize),
    Hidden(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packages_file_has_its_folder() {
        for (file, shown) in [
            ("/lib/python3.11/json/__init__.py", "json/__init__.py"),
            ("/lib/python3.11/json/decoder.py", "decoder.py"),
            ("shop/__main__.py", "shop/__main__.py"),
            ("__init__.py", "__init__.py"),
            ("/__init__.py", "/__init__.py"),
            ("", ""),
        ] {
            assert_eq!(short(file), shown);
        }
    }
}
