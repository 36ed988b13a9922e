//! The labels of samples, by key: what each label set says, and a way to distinguish stacks by it.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::event::{LabelSetId, ThreadId};
use crate::model::{LabelSet, ProcessId, Profile, ThreadNames};

/// What stands in place of a value for samples without a label of a key.
pub const NO_LABEL: &str = "[no label]";

/// The key by which reports ask for threads.
pub const THREAD: &str = "thread";
/// The key by which reports ask for machines, or containers.
pub const HOST: &str = "host";
/// The label of a task of asyncio: its name. CPython's agent finds it by itself.
pub const TASK: &str = "task";
/// The label of a task of asyncio: those that wait for it, the outermost one first.
pub const AWAITED_BY: &str = "awaited_by";

/// The values of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValues<'a> {
    /// Each value once.
    pub values: Vec<&'a str>,
    /// By label set: the index of its value; `None` if it has none.
    of_sets: Vec<Option<u32>>,
}

impl LabelValues<'_> {
    /// The index of a set's value; `None` if it has none.
    #[must_use]
    pub fn of(&self, set: LabelSetId) -> Option<usize> {
        let value = self.of_sets.get(set.index()).copied().flatten();
        value.map(|value| value as usize)
    }
}

impl Profile {
    /// The values that label sets have for a key.
    #[must_use]
    pub fn label_values(&self, key: &str) -> LabelValues<'_> {
        let mut found = LabelValues::default();
        let mut numbers: HashMap<&str, u32, RandomState> = HashMap::default();
        // A set comes after the one that it extends.
        for set in &self.label_sets {
            let value = if set.key == key {
                Some(*numbers.entry(&set.value).or_insert_with(|| {
                    found.values.push(&set.value);
                    found.values.len() as u32 - 1
                }))
            } else {
                found.of_sets.get(set.parent.index()).copied().flatten()
            };
            found.of_sets.push(value);
        }
        found
    }

    /// The keys of labels, each once, in the order in which they were defined.
    #[must_use]
    pub fn label_keys(&self) -> Vec<&str> {
        let mut seen: HashSet<&str, RandomState> = HashSet::default();
        // The first set is the empty one.
        let keys = self.label_sets.iter().skip(1).map(|set| set.key.as_str());
        keys.filter(|key| seen.insert(key)).collect()
    }

    /// Gives all samples the label [`THREAD`], with the name of their thread, or its number if it has no name. One that they have is replaced.
    pub fn label_by_thread(&mut self) {
        let names: Vec<Option<String>> = self
            .threads
            .iter()
            .map(|thread| match thread.name.as_str() {
                "" => Some(format!("thread {}", thread.os_id)),
                name => Some(name.to_owned()),
            })
            .collect();
        self.label_by(THREAD, &names);
    }

    /// Gives all samples the label [`HOST`], with the name of the machine, or of the container, that their process ran on, if that is known. Where
    /// samples have such a label already, it stays.
    pub fn label_by_host(&mut self) {
        if self.label_keys().contains(&HOST) {
            return;
        }
        let host = |thread: u32| {
            let process = self.process_of(ThreadId(thread));
            self.processes.get(process.index())?.meta.host.clone()
        };
        let names: Vec<Option<String>> = (0..self.threads.len() as u32).map(host).collect();
        self.label_by(HOST, &names);
    }

    /// Gives the samples of each thread this value of a label.
    fn label_by(&mut self, key: &str, values: &[Option<String>]) {
        let sets = &mut self.label_sets;
        let mut known: HashMap<(ThreadId, LabelSetId), LabelSetId, RandomState> =
            HashMap::default();
        let mut labelled = |thread: ThreadId, parent: LabelSetId| {
            *known.entry((thread, parent)).or_insert_with(|| {
                let Some(Some(value)) = values.get(thread.index()) else {
                    return parent;
                };
                sets.push(LabelSet {
                    parent,
                    key: key.to_owned(),
                    value: value.clone(),
                });
                LabelSetId(sets.len() as u32 - 1)
            })
        };
        self.samples
            .move_sites(|site| site.labels = labelled(site.thread, site.labels));
        for sample in &mut self.cpu {
            sample.labels = labelled(sample.thread, sample.labels);
        }
    }

    /// Gives the samples of each value of a label a thread of its own in each process, which has the value as its name: what shows threads
    /// beside each other then shows values. Those with fewer samples than the first `most` values are together.
    pub fn thread_by_label(&mut self, key: &str, without: &str, most: usize) {
        let LabelValues { values, of_sets } = self.label_values(key);
        let mut names: Vec<String> = values
            .iter()
            .map(|value| format!("{key}={value}"))
            .collect();
        let none = names.len();
        names.push(without.to_owned());
        let of = |set: LabelSetId| {
            let value = of_sets.get(set.index()).copied().flatten();
            value.map_or(none, |value| value as usize)
        };
        let mut counts = vec![0_u64; names.len()];
        for id in self.samples.ids() {
            counts[of(self.samples.labels(id))] += 1;
        }
        for sample in &self.cpu {
            counts[of(sample.labels)] += 1;
        }
        let mut order: Vec<usize> = (0..none).collect();
        order.sort_by_key(|&value| std::cmp::Reverse(counts[value]));
        // Each value's name, by number; those beyond have the last one.
        let mut shown: Vec<usize> = (0..names.len()).collect();
        let others = names.len();
        names.push(format!("{key}: others"));
        for &value in order.iter().skip(most) {
            shown[value] = others;
        }
        let mut next = self.threads.iter().map(|one| one.os_id).max().unwrap_or(0);
        let processes: Vec<_> = (0..self.threads.len() as u32)
            .map(|thread| self.process_of(ThreadId(thread)))
            .collect();
        let mut known: HashMap<_, ThreadId, RandomState> = HashMap::default();
        let mut added = Vec::new();
        let first = self.threads.len();
        let mut place = |thread: ThreadId, set: LabelSetId| {
            let process = processes
                .get(thread.index())
                .copied()
                .unwrap_or(ProcessId::FIRST);
            let value = shown[of(set)];
            *known.entry((process, value)).or_insert_with(|| {
                next += 1;
                let name = names[value].clone();
                added.push((process, ThreadNames { os_id: next, name }));
                ThreadId((first + added.len()) as u32 - 1)
            })
        };
        self.samples
            .move_sites(|site| site.thread = place(site.thread, site.labels));
        for sample in &mut self.cpu {
            sample.thread = place(sample.thread, sample.labels);
        }
        for (process, names) in added {
            self.push_thread(process, names);
        }
    }

    /// Adds a frame with the value of a label at the outer end of every stack, so that all reports of stacks show it. `without` is the
    /// name of the frame of samples without such a label.
    pub fn root_by_label(&mut self, key: &str, without: &str) {
        let values = self.label_values(key);
        let names: Vec<String> = values
            .values
            .iter()
            .map(|value| format!("{key}={value}"))
            .chain([without.to_owned()])
            .collect();
        let of_sets = values.of_sets;
        let others = names.len() - 1;
        self.root_by(names, |_, set| {
            let value = of_sets.get(set.index()).copied().flatten();
            value.map_or(others, |value| value as usize)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;
    use crate::event::{Nanos, NodeId};
    use crate::model::{SamplingId, TimeSample};

    #[test]
    fn a_set_has_the_newest_value_of_each_key() {
        let mut profile = Profile::empty(Meta::default());
        let mut define = |parent: u32, key: &str, value: &str| {
            profile.label_sets.push(LabelSet {
                parent: LabelSetId(parent),
                key: key.to_owned(),
                value: value.to_owned(),
            });
        };
        define(0, "endpoint", "/a");
        define(1, "tenant", "x");
        define(2, "endpoint", "/b");
        define(0, "tenant", "x");
        assert_eq!(profile.label_keys(), ["endpoint", "tenant"]);
        let of = |key: &str| {
            let values = profile.label_values(key);
            let sets = (0..5).map(LabelSetId);
            sets.map(|set| values.of(set).map(|value| values.values[value]))
                .collect::<Vec<_>>()
        };
        let (a, b, x) = (Some("/a"), Some("/b"), Some("x"));
        assert_eq!(of("endpoint"), [None, a, a, b, None]);
        assert_eq!(of("tenant"), [None, None, x, x, x]);
        assert_eq!(of("none"), [None; 5]);
    }

    #[test]
    fn threads_become_labels_and_labels_threads() {
        let mut profile = Profile::empty(Meta::default());
        for (os_id, name) in [(7, "MainThread"), (8, "")] {
            let name = name.to_owned();
            profile.push_thread(ProcessId::FIRST, ThreadNames { os_id, name });
        }
        for value in ["/a", "/b"] {
            profile.label_sets.push(LabelSet {
                parent: LabelSetId::NONE,
                key: "endpoint".to_owned(),
                value: value.to_owned(),
            });
        }
        let sample = |thread: u32, labels: u32| TimeSample {
            time: Nanos(0),
            thread: ThreadId(thread),
            stack: NodeId::ROOT,
            labels: LabelSetId(labels),
            sampling: SamplingId(0),
        };
        profile.cpu = [(0, 0), (0, 1), (1, 1), (1, 2), (0, 2), (0, 1)]
            .map(|(thread, labels)| sample(thread, labels))
            .to_vec();
        profile.label_by_thread();
        let shown = |profile: &Profile, key: &str| -> Vec<Option<String>> {
            let values = profile.label_values(key);
            let of = |one: &TimeSample| Some(values.values[values.of(one.labels)?].to_owned());
            profile.cpu.iter().map(of).collect()
        };
        let (main, other) = (Some("MainThread".to_owned()), Some("thread 8".to_owned()));
        assert_eq!(
            shown(&profile, THREAD),
            [&main, &main, &other, &other, &main, &main].map(Clone::clone)
        );
        let endpoints = shown(&profile, "endpoint");
        assert_eq!(endpoints.iter().flatten().count(), 5);
        profile.thread_by_label("endpoint", "none", 1);
        let names: Vec<&str> = profile
            .cpu
            .iter()
            .map(|one| profile.threads[one.thread.index()].name.as_str())
            .collect();
        let (first, others) = ("endpoint=/a", "endpoint: others");
        assert_eq!(names, ["none", first, first, others, others, first]);
        assert_eq!(shown(&profile, "endpoint"), endpoints);
    }
}
