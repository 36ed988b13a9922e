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

use crate::aggregate::Aggregate;
use crate::estimate::{Estimate, Estimator, Totals};
use crate::inclusive::{ByStack, Children, WithCallees};
use crate::selection::Moment;
use crate::text::{self, Cut};
use crate::time::{self, Clock, TimeTotals};

/// A line of a call tree.
#[derive(Clone, Debug)]
struct Branch {
    /// `None` for everything.
    function: Option<u32>,
    totals: Totals,
    /// The branches shown below, heaviest first, by their numbers.
    callees: Vec<usize>,
    /// The number of functions below that are not shown, and their samples.
    hidden: (usize, Totals),
}

/// A call tree.
#[derive(Debug)]
pub struct Tree<'a> {
    profile: &'a Profile,
    measure: Measure,
    /// The name of the first branch.
    whole: &'static str,
    /// The first branch is everything.
    branches: Vec<Branch>,
}

/// The measure by which branches are compared.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// Bytes allocated.
    Bytes {
        estimator: Estimator,
        /// Whether every allocation was recorded.
        exact: bool,
    },
    /// Time. The estimate of bytes in [`Totals`] has the unit that [`Clock::time`] expects.
    Time(Clock),
}

impl Measure {
    fn weight(self, totals: &Totals) -> f64 {
        match self {
            Self::Bytes { .. } => totals.bytes.estimate,
            Self::Time(_) => totals.bytes.estimate,
        }
    }
}

/// A candidate for the shown branches; the heaviest is taken next.
struct Candidate {
    caller: usize,
    function: u32,
    nodes: Vec<NodeId>,
    totals: Totals,
    weight: f64,
}

impl Candidate {
    fn order(&self) -> (f64, std::cmp::Reverse<u32>) {
        (self.weight, std::cmp::Reverse(self.function))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((one, one_function), (two, two_function)) = (self.order(), other.order());
        one.total_cmp(&two).then(one_function.cmp(&two_function))
    }
}

/// Functions below this share of the whole are not shown.
const FAINTEST: f64 = 0.001;

/// The functions that are not shown under a caller get a line if their sum is this share of the whole.
const WORTH_A_LINE: f64 = 0.01;

impl<'a> Tree<'a> {
    /// The `lines` functions that allocated most, in the call tree.
    #[must_use]
    pub fn of(profile: &'a Profile, lines: usize) -> Self {
        let aggregate = Aggregate::of(profile, Moment::End);
        let measure = Measure::Bytes {
            estimator: aggregate.estimator,
            exact: profile.is_exact(),
        };
        let mut stacks = ByStack::new(profile.stacks.len());
        for (stack, sum) in aggregate.stacks.iter() {
            *stacks.of_mut(stack as usize) = sum.all;
        }
        drop(aggregate);
        Self::grow(profile, measure, stacks, lines)
    }

    /// The `lines` functions that took longest, in the call tree, from the time samples.
    #[must_use]
    pub fn of_time(profile: &'a Profile, lines: usize) -> Self {
        let of_samples = |of: &TimeTotals| {
            let mut totals = Totals::default();
            (totals.samples, totals.bytes.estimate) = (of.samples, of.time);
            totals
        };
        let mut stacks = ByStack::new(profile.stacks.len());
        for (stack, sum) in time::stacks(profile).iter() {
            *stacks.of_mut(stack as usize) = of_samples(sum);
        }
        Self::grow(profile, Measure::Time(Clock::of(profile)), stacks, lines)
    }

    /// The same tree, of a selected part of the profile.
    #[must_use]
    pub fn of_a_part(self) -> Self {
        Self {
            whole: "all that is selected",
            ..self
        }
    }

    fn grow(profile: &'a Profile, measure: Measure, stacks: ByStack<Totals>, lines: usize) -> Self {
        let nodes = &WithCallees::of(profile, stacks);
        let children = Children::of(profile, |node| nodes.get(node).is_some());
        let mut tree = Self {
            profile,
            measure,
            whole: "the whole program",
            branches: Vec::new(),
        };
        let all = nodes.get(NodeId::ROOT).copied().unwrap_or_default();
        let mut candidates = BinaryHeap::new();
        let everything = &[NodeId::ROOT];
        tree.show(None, everything, all, &children, nodes, &mut candidates);
        let least = measure.weight(&all) * FAINTEST;
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
        totals: Totals,
        children: &Children,
        with_callees: &WithCallees<Totals>,
        candidates: &mut BinaryHeap<Candidate>,
    ) {
        let caller = self.branches.len();
        let mut callees: HashMap<u32, Candidate> = HashMap::new();
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
                totals: Totals::default(),
                weight: 0.0,
            });
            candidate.nodes.push(callee);
            candidate.totals.add(&totals);
            candidate.weight += self.measure.weight(&totals);
        }
        candidates.extend(callees.into_values());
        self.branches.push(Branch {
            function,
            totals,
            callees: Vec::new(),
            hidden: (0, Totals::default()),
        });
    }

    fn hide(&mut self, candidate: &Candidate) {
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
            let hidden = self.measure.weight(&branch.hidden.1);
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
        self.measure.weight(&self.branches[0].totals)
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
            self.measure.weight(totals) / whole
        } else {
            0.0
        };
        let figure = match self.measure {
            Measure::Bytes { estimator, exact } => bytes(&estimator.bytes(totals), exact),
            Measure::Time(clock) => time_taken(clock, totals),
        };
        let figures = format!("{:>6} {figure} ", text::percent(share));
        let rest = width.saturating_sub(text::width(&figures));
        // At least half of the line is for the name, at any depth.
        let prefix = text::fit(prefix, rest / 2, Cut::Start);
        let left = rest.saturating_sub(text::width(&prefix));
        let label = fit_label(label, left);
        let _ = writeln!(text, "{figures}{prefix}{label}");
    }

    /// The name of a function, and its place in the source.
    fn label(&self, branch: &Branch) -> (String, String) {
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

/// The place is cut before the name.
fn fit_label((name, place): (String, String), columns: usize) -> String {
    let name = text::fit(&name, columns, Cut::Middle);
    let left = columns.saturating_sub(text::width(&name));
    // A space, two brackets and an ellipsis with some letters.
    if left < 8 {
        return name;
    }
    name + &text::fit(&place, left, Cut::Middle)
}

fn bytes(bytes: &Estimate, exact: bool) -> String {
    let shown = text::bytes(bytes.estimate);
    if exact {
        format!("{shown:>8}")
    } else if bytes.estimate == 0.0 {
        format!("{shown:>8}       ")
    } else if bytes.is_wide() {
        let shown = text::wide_range(bytes.low, bytes.high);
        format!("{shown:>15}")
    } else {
        let error = format!("±{}", bytes.relative_error());
        format!("{shown:>8} {error:<6}")
    }
}

fn time_taken(clock: Clock, totals: &Totals) -> String {
    let time = clock.time(totals.bytes.estimate);
    let shown = clock.figure(time.estimate);
    // The total time is treated as exact.
    let error = if totals.samples == clock.samples {
        String::new()
    } else {
        format!("±{}", time.relative_error())
    };
    format!("{shown:>8} {error:<6}")
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
