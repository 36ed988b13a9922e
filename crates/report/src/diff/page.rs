//! The page of a difference: both sides as profiles that share their tables, so that a box of the flame graph is the
//! same function on both.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{LabelSetId, Memory, Nanos, NodeId, TypeId};
use nthbyte_profile::model::{
    Frame, Function, Sample, SamplingId, Shape, StackNode, TimeSample, TypeNames,
};

use super::matching::{Matching, RowKey};
use crate::flamegraph::{self, Base};

/// A time of a session on a time axis of this length. The sessions of a side are scaled to the longest.
fn scaled(of: Nanos, profile: &Profile, longest: Nanos) -> Nanos {
    let length = u128::from(profile.end.0.max(1));
    Nanos((u128::from(of.0) * u128::from(longest.0) / length) as u64)
}

/// Writes the page of the new side, coloured by the change. For several runs the page shows means, and their sessions
/// are combined on one time axis. `progress` is called with the number of finished steps and of all steps.
///
/// # Errors
/// The errors of `out`.
///
/// # Panics
/// If a side is empty.
pub fn write_page(
    old: &[Profile],
    new: &[Profile],
    prefixes: &[(String, String)],
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let matching = Matching::of_profiles(old, new, prefixes);
    let mut tables = Tables::new();
    let mut new_side = tables.combine(new, &Matching::default());
    let mut old_side = tables.combine(old, &matching);
    for side in [&mut new_side, &mut old_side] {
        side.functions.clone_from(&tables.functions.all);
        side.frames.clone_from(&tables.frames.all);
        side.stacks.clone_from(&tables.stacks.all);
        side.types.clone_from(&tables.types);
    }
    let base = Base {
        old: &old_side,
        old_runs: old.len() as u32,
        new_runs: new.len() as u32,
    };
    flamegraph::write_difference(&new_side, &base, out, progress)
}

/// Values, each numbered once.
struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32, RandomState>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn new(all: Vec<T>) -> Self {
        Self {
            all,
            numbers: HashMap::default(),
        }
    }

    fn number(&mut self, one: T) -> u32 {
        *self.numbers.entry(one).or_insert_with_key(|one| {
            self.all.push(one.clone());
            self.all.len() as u32 - 1
        })
    }
}

/// The tables of both sides.
struct Tables {
    functions: Numbered<Function>,
    frames: Numbered<Frame>,
    stacks: Numbered<StackNode>,
    types: Vec<TypeNames>,
    type_numbers: HashMap<String, u32, RandomState>,
}

impl Tables {
    fn new() -> Self {
        let root = StackNode {
            parent: NodeId::ROOT,
            frame: 0,
        };
        Self {
            functions: Numbered::new(Vec::new()),
            frames: Numbered::new(Vec::new()),
            stacks: Numbered::new(vec![root]),
            types: vec![TypeNames::default()],
            type_numbers: HashMap::default(),
        }
    }

    /// All profiles of a side as one, without its tables.
    fn combine(&mut self, profiles: &[Profile], matching: &Matching) -> Profile {
        let mut side = Profile::empty(profiles[0].meta.clone());
        side.samplings.clear();
        side.end = profiles
            .iter()
            .map(|profile| profile.end)
            .max()
            .unwrap_or_default();
        side.complete = profiles.iter().all(|profile| profile.complete);
        for profile in profiles {
            self.add(&mut side, profile, matching);
        }
        // One curve is enough, in the same time as the samples.
        let first = &profiles[0];
        let memory = first.memory.iter().map(|of| Memory {
            time: scaled(of.time, first, side.end),
            ..*of
        });
        side.memory = memory.collect();
        side
    }

    fn add(&mut self, side: &mut Profile, profile: &Profile, matching: &Matching) {
        let frames: Vec<u32> = profile
            .frames
            .iter()
            .map(|frame| self.frame(profile, frame, matching))
            .collect();
        let mut stacks = vec![NodeId::ROOT; profile.stacks.len()];
        for (at, node) in profile.stacks.iter().enumerate().skip(1) {
            let node = StackNode {
                parent: stacks[node.parent.index()],
                frame: frames[node.frame as usize],
            };
            stacks[at] = NodeId(self.stacks.number(node));
        }
        let types: Vec<u32> = profile
            .types
            .iter()
            .map(|names| self.type_number(names))
            .collect();
        let first = side.samplings.len() as u32;
        side.samplings.extend(&profile.samplings);
        let sampling = |of: SamplingId| SamplingId(first + of.0);
        let end = side.end;
        let time = |of: Nanos| scaled(of, profile, end);
        for sample in profile.samples.iter() {
            // More samples than a profile can hold are left out.
            let _ = side.samples.push(Sample {
                time: time(sample.time),
                stack: stacks[sample.stack.index()],
                type_id: TypeId(types[sample.type_id.index()]),
                labels: LabelSetId::NONE,
                shape: Shape {
                    sampling: sampling(sample.shape.sampling),
                    ..sample.shape
                },
                ..sample
            });
        }
        side.cpu.extend(profile.cpu.iter().map(|sample| TimeSample {
            time: time(sample.time),
            stack: stacks[sample.stack.index()],
            labels: LabelSetId::NONE,
            sampling: sampling(sample.sampling),
            ..*sample
        }));
    }

    fn frame(&mut self, profile: &Profile, frame: &Frame, matching: &Matching) -> u32 {
        let function = &profile.functions[frame.function as usize];
        let key = matching.translate(&RowKey {
            name: function.name.clone(),
            file: function.file.clone(),
            first_line: function.first_line,
            line: frame.line,
        });
        let function = self.functions.number(Function {
            name: key.name,
            file: key.file,
            // A function that does not exist on the new side: its line does not matter.
            first_line: if key.first_line > u32::MAX / 2 {
                0
            } else {
                key.first_line
            },
        });
        self.frames.number(Frame {
            function,
            line: key.line,
            kind: frame.kind,
        })
    }

    fn type_number(&mut self, names: &TypeNames) -> u32 {
        if names.name.is_empty() {
            return 0;
        }
        *self
            .type_numbers
            .entry(names.name.clone())
            .or_insert_with(|| {
                self.types.push(names.clone());
                self.types.len() as u32 - 1
            })
    }
}
