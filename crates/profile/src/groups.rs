//! Groups of samples that a page can show apart: those with the same labels, of the same kind of thread.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::{LabelSetId, ThreadId};
use crate::model::Profile;

/// Keys of labels that groups are made by.
const MOST_KEYS: usize = 8;
/// Values of a key. Those with the fewest samples are [`OTHER`].
const MOST_VALUES: usize = 100;
/// Groups. Those with the fewest samples are one, of [`OTHER`] values. Each may repeat a part of the stack tree.
const MOST_GROUPS: usize = 400;
/// The value in place of those that are too many. A recording has the same in place of its own.
const OTHER: &str = "(other)";

/// What groups are made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKey {
    /// The label's key, or `thread`.
    pub name: String,
    /// Whether it is the thread, and no label.
    pub is_thread: bool,
    /// Each value once.
    pub values: Vec<String>,
}

/// The groups of a profile's samples: its stacks have been rooted by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// What they are made by.
    pub keys: Vec<GroupKey>,
    /// By group and key: the index of its value; `None` if it has none.
    pub values: Vec<Vec<Option<u32>>>,
    /// The number of the function at the outer end of the first group's stacks. The others' follow.
    pub first_function: u32,
    /// Whether there were too many values or groups, so that some are together.
    pub are_merged: bool,
}

/// The labels of a sample, and its thread.
type Who = (ThreadId, LabelSetId);

impl Profile {
    /// Adds a frame for its group at the outer end of every stack. `None`, and nothing is changed, if there is one group only. `first` is the key
    /// that is kept in any case, if there are many.
    pub fn root_by_groups(&mut self, first: Option<&str>) -> Option<Groups> {
        let counts = self.counts();
        let mut keys = self.label_keys();
        if let Some(at) = first.and_then(|first| keys.iter().position(|key| *key == first)) {
            keys[..=at].rotate_right(1);
        }
        let mut are_merged = keys.len() > MOST_KEYS;
        keys.truncate(MOST_KEYS);
        let mut columns: Vec<Column> = keys
            .into_iter()
            .map(|key| self.column(key, &counts, &mut are_merged))
            .collect();
        // Of the thread only where that does not push labels together.
        let labels = grouped(&columns, &counts);
        columns.push(self.threads(&counts));
        if columns.last().is_some_and(|of| of.key.values.len() < 2)
            || (grouped(&columns, &counts).len() > MOST_GROUPS.max(labels.len()))
        {
            columns.pop();
        }
        columns.retain(|of| !of.key.values.is_empty());
        let (values, of_who) = numbered(&mut columns, &counts, &mut are_merged);
        if values.len() < 2 {
            return None;
        }
        let first_function = self.functions.len() as u32;
        let names = (0..values.len()).map(|group| format!("[group {group}]"));
        self.root_by(names.collect(), |thread, labels| {
            of_who.get(&(thread, labels)).map_or(0, |&group| group)
        });
        Some(Groups {
            keys: columns.into_iter().map(|of| of.key).collect(),
            values,
            first_function,
            are_merged,
        })
    }

    /// The samples of each label set and thread.
    fn counts(&self) -> Vec<(Who, u64)> {
        let mut counts: HashMap<Who, u64, RandomState> = HashMap::default();
        let mut of_sites = vec![0_u64; self.samples.sites().len()];
        for id in self.samples.ids() {
            of_sites[self.samples.site_id(id).index()] += 1;
        }
        for (site, count) in self.samples.sites().iter().zip(of_sites) {
            if count > 0 {
                *counts.entry((site.thread, site.labels)).or_default() += count;
            }
        }
        for sample in &self.cpu {
            *counts.entry((sample.thread, sample.labels)).or_default() += 1;
        }
        let mut counts: Vec<(Who, u64)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|&(who, _)| who);
        counts
    }

    /// The values of a label.
    fn column(&self, key: &str, counts: &[(Who, u64)], are_merged: &mut bool) -> Column {
        let of_sets = self.label_values(key);
        let value = |who: &Who| {
            of_sets
                .of(who.1)
                .map(|value| of_sets.values[value].to_owned())
        };
        Column::of(key, false, counts, value, are_merged)
    }

    /// The kinds of threads: a pool's are one, `worker-*`.
    fn threads(&self, counts: &[(Who, u64)]) -> Column {
        let value = |who: &Who| {
            let thread = self.threads.get(who.0.index())?;
            Some(kind_of(&thread.name)).filter(|name| !name.is_empty())
        };
        Column::of("thread", true, counts, value, &mut false)
    }
}

/// What threads with numbers in their names have in common.
fn kind_of(name: &str) -> String {
    let kind = name.trim_end_matches(|sign: char| sign.is_ascii_digit());
    match kind.len() == name.len() {
        true => name.to_owned(),
        false => format!("{kind}*"),
    }
}

/// A key, and its values by label set and thread.
struct Column {
    key: GroupKey,
    of: HashMap<Who, u32, RandomState>,
}

impl Column {
    fn of(
        name: &str,
        is_thread: bool,
        counts: &[(Who, u64)],
        value: impl Fn(&Who) -> Option<String>,
        are_merged: &mut bool,
    ) -> Self {
        let mut by_value: HashMap<String, u64, RandomState> = HashMap::default();
        for (who, count) in counts {
            if let Some(value) = value(who) {
                *by_value.entry(value).or_default() += count;
            }
        }
        let mut values: Vec<(String, u64)> = by_value.into_iter().collect();
        values.sort_unstable_by(|one, other| {
            (Reverse(one.1), &one.0).cmp(&(Reverse(other.1), &other.0))
        });
        if values.len() > MOST_VALUES {
            *are_merged = true;
            values.truncate(MOST_VALUES);
        }
        let mut column = Self {
            key: GroupKey {
                name: name.to_owned(),
                is_thread,
                values: values.into_iter().map(|(value, _)| value).collect(),
            },
            of: HashMap::default(),
        };
        let numbers: HashMap<String, u32, RandomState> =
            column.key.values.iter().cloned().zip(0..).collect();
        for (who, _) in counts {
            if let Some(value) = value(who) {
                let number = numbers.get(&value).copied();
                let number = number.unwrap_or_else(|| column.other());
                column.of.insert(*who, number);
            }
        }
        column
    }

    /// The number of the value of all others.
    fn other(&mut self) -> u32 {
        let values = &mut self.key.values;
        let known = values.iter().position(|value| value == OTHER);
        known.unwrap_or_else(|| {
            values.push(OTHER.to_owned());
            values.len() - 1
        }) as u32
    }
}

type Values = Vec<Option<u32>>;

/// The samples of each group.
fn grouped(columns: &[Column], counts: &[(Who, u64)]) -> HashMap<Values, u64, RandomState> {
    let mut groups: HashMap<Values, u64, RandomState> = HashMap::default();
    for (who, count) in counts {
        *groups.entry(values_of(columns, who)).or_default() += count;
    }
    groups
}

fn values_of(columns: &[Column], who: &Who) -> Values {
    columns.iter().map(|of| of.of.get(who).copied()).collect()
}

/// The groups, the largest first, and the number of each label set's and thread's.
fn numbered(
    columns: &mut [Column],
    counts: &[(Who, u64)],
    are_merged: &mut bool,
) -> (Vec<Values>, HashMap<Who, usize, RandomState>) {
    let mut groups: Vec<(Values, u64)> = grouped(columns, counts).into_iter().collect();
    groups
        .sort_unstable_by(|one, other| (Reverse(one.1), &one.0).cmp(&(Reverse(other.1), &other.0)));
    let mut groups: Vec<Values> = groups.into_iter().map(|(values, _)| values).collect();
    if groups.len() > MOST_GROUPS {
        *are_merged = true;
        groups.truncate(MOST_GROUPS);
        groups.push(columns.iter_mut().map(|of| Some(of.other())).collect());
    }
    let numbers: HashMap<&Values, usize, RandomState> = groups.iter().zip(0..).collect();
    let last = groups.len().saturating_sub(1);
    let of_who = counts.iter().map(|(who, _)| {
        let group = numbers.get(&values_of(columns, who)).copied();
        (*who, group.unwrap_or(last))
    });
    let of_who = of_who.collect();
    (groups, of_who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;
    use crate::event::{Nanos, NodeId};
    use crate::model::{LabelSet, SamplingId, StackNode, ThreadNames, TimeSample};

    /// Samples of `values` endpoints in threads with these names: of the first value most.
    fn profile(values: u32, threads: &[&str]) -> Profile {
        let mut profile = Profile::empty(Meta::default());
        profile.threads = threads
            .iter()
            .map(|name| ThreadNames {
                os_id: 1,
                name: (*name).to_owned(),
            })
            .collect();
        profile.stacks.push(StackNode {
            parent: NodeId::ROOT,
            frame: 0,
        });
        for value in 0..values {
            profile.label_sets.push(LabelSet {
                parent: LabelSetId::NONE,
                key: "endpoint".to_owned(),
                value: format!("/{value}"),
            });
            for at in 0..values - value {
                profile.cpu.push(TimeSample {
                    time: Nanos(0),
                    thread: ThreadId(at % threads.len() as u32),
                    stack: NodeId(1),
                    labels: LabelSetId(1 + value),
                    sampling: SamplingId(0),
                });
            }
        }
        profile
    }

    /// By group: its values, and its samples.
    fn found(profile: &Profile, groups: &Groups) -> Vec<(Vec<String>, usize)> {
        let of = |group: usize| {
            let function = groups.first_function + group as u32;
            let samples = profile.cpu.iter().filter(|sample| {
                let frame = profile
                    .stack(sample.stack)
                    .last()
                    .map(|frame| frame.function);
                frame == Some(function)
            });
            let values = groups.keys.iter().zip(&groups.values[group]);
            let values = values.map(|(key, value)| {
                let value = value.map_or("none", |value| &key.values[value as usize]);
                format!("{}={value}", key.name)
            });
            (values.collect(), samples.count())
        };
        (0..groups.values.len()).map(of).collect()
    }

    #[test]
    fn a_group_has_the_samples_of_its_labels_and_its_kind_of_thread() {
        let mut profile = profile(2, &["main", "pool-1", "pool-2"]);
        profile.cpu[1].labels = LabelSetId::NONE;
        let groups = profile.root_by_groups(None).expect("there are groups");
        let named = |values: [&str; 2]| values.map(str::to_owned).to_vec();
        let mut all = found(&profile, &groups);
        all.sort();
        let expected = [
            (named(["endpoint=/0", "thread=main"]), 1),
            (named(["endpoint=/1", "thread=main"]), 1),
            (named(["endpoint=none", "thread=pool-*"]), 1),
        ];
        assert_eq!(all, expected);
        assert!(!groups.are_merged);
    }

    #[test]
    fn too_many_values_are_together_and_threads_push_none_of_them_there() {
        let values = MOST_VALUES as u32 + 3;
        let names: Vec<String> = (0..9).map(|at| format!("worker {at} of nine")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut profile = profile(values, &names);
        let samples = profile.cpu.len();
        let groups = profile.root_by_groups(None).expect("there are groups");
        assert!(groups.are_merged);
        assert_eq!(groups.keys.len(), 1);
        let all = found(&profile, &groups);
        assert_eq!(all.len(), MOST_VALUES + 1);
        assert_eq!(all.iter().map(|(_, count)| count).sum::<usize>(), samples);
        // The three values with one, two and three samples.
        assert!(all.contains(&(vec!["endpoint=(other)".to_owned()], 6)));
    }

    #[test]
    fn one_group_is_none() {
        let mut profile = profile(1, &["main"]);
        assert_eq!(profile.root_by_groups(None), None);
        assert_eq!(profile.stacks.len(), 2);
    }
}
