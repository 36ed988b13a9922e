//! Adds what another loader has read, so that several files which grow are read one block at a time, each by its own loader.

use super::Loader;
use crate::event::{LabelSetId, NodeId, SampleId, SourceId, ThreadId, TypeId};
use crate::model::{Frame, Sample, Sampling, SamplingId, Shape, TimeSample};
use crate::processes::ProcessId;

impl Loader {
    /// Adds the tables of a loader whose file is at its end, as if its file had been read here.
    pub(crate) fn join(&mut self, of: Self) {
        let Self {
            profile: of,
            all_damage,
            files,
            ..
        } = of;
        self.files += files;
        let first_process = self.profile.processes.len() as u32;
        let process = |number: ProcessId| ProcessId(number.0 + first_process);
        let damage = all_damage.into_iter();
        self.all_damage
            .extend(damage.map(|(number, damage)| (process(number), damage)));
        self.profile.processes.extend(of.processes);
        for (kind, count) in of.lost {
            match self.profile.lost.iter_mut().find(|known| known.0 == kind) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => self.profile.lost.push((kind, count)),
            }
        }

        let images = of.images.iter().map(|image| (image.function, image));
        let images: std::collections::HashMap<u32, _> = images.collect();
        let functions =
            (0..)
                .zip(of.functions)
                .map(|(number, function)| match images.get(&number) {
                    Some(image) => self.image(function, &image.build_id),
                    None => self.function(function),
                });
        let functions: Vec<u32> = functions.collect();
        let mut nodes = vec![NodeId::ROOT];
        for node in of.stacks.iter().skip(1) {
            let frame = of.frames[node.frame as usize];
            let frame = Frame {
                function: functions[frame.function as usize],
                ..frame
            };
            let parent = nodes[node.parent.index()];
            nodes.push(self.place(parent, frame));
        }
        let types = of.types.into_iter().skip(1);
        let types = types.map(|names| TypeId(self.types.intern(&mut self.profile.types, names)));
        let types: Vec<TypeId> = std::iter::once(TypeId::UNKNOWN).chain(types).collect();
        let first_thread = self.profile.threads.len() as u32;
        for (number, names) in of.threads.into_iter().enumerate() {
            let known = of.thread_processes.get(number).copied();
            let of_thread = process(known.unwrap_or(ProcessId::FIRST));
            self.profile.push_thread(of_thread, names);
        }
        let thread = |number: ThreadId| ThreadId(number.0 + first_thread);
        let first_label = self.profile.label_sets.len() as u32 - 1;
        let labels = |set: LabelSetId| match set {
            LabelSetId::NONE => set,
            LabelSetId(number) => LabelSetId(number + first_label),
        };
        for mut set in of.label_sets.into_iter().skip(1) {
            set.parent = labels(set.parent);
            self.profile.label_sets.push(set);
        }
        self.sources.begin(&mut self.profile, &of.sources);
        // The tables may have no number left for a source: then its samples are left out, as when a file is read.
        let samplings = of.samplings.iter().map(|&sampling| {
            let source: Option<SourceId> = self.sources.number(sampling.source);
            let sampling = |source| Sampling { source, ..sampling };
            let interned = source.map(sampling);
            interned.map(|sampling| self.sources.intern(&mut self.profile, sampling))
        });
        let samplings: Vec<Option<SamplingId>> = samplings.collect();

        let first_sample = self.profile.samples.len() as u32;
        let mut numbers = Vec::with_capacity(of.samples.len());
        for sample in of.samples.iter() {
            let sampling = samplings[sample.shape.sampling.index()];
            let number = sampling.and_then(|sampling| {
                self.profile.samples.push(Sample {
                    thread: thread(sample.thread),
                    stack: nodes[sample.stack.index()],
                    type_id: types[sample.type_id.index()],
                    labels: labels(sample.labels),
                    shape: Shape {
                        sampling,
                        ..sample.shape
                    },
                    ..sample
                })
            });
            numbers.push(number);
        }
        let is_whole = self.profile.samples.len() - first_sample as usize == numbers.len();
        for mut run in of.arenas.into_iter().filter(|_| is_whole) {
            run.first = SampleId(run.first.0 + first_sample);
            self.profile.arenas.push(run);
        }
        for process in &mut self.profile.processes[first_process as usize..] {
            for snapshot in &mut process.snapshots {
                snapshot.renumber(|sample| numbers.get(sample.index()).copied().flatten());
            }
        }
        for sample in of.cpu {
            if let Some(sampling) = samplings[sample.sampling.index()] {
                self.profile.cpu.push(TimeSample {
                    thread: thread(sample.thread),
                    stack: nodes[sample.stack.index()],
                    labels: labels(sample.labels),
                    sampling,
                    ..sample
                });
            }
        }
        for mut collection in of.collections {
            collection.thread = thread(collection.thread);
            self.profile.collections.push(collection);
        }
    }
}
