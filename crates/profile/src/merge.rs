//! Writes a profile from memory as one file.
//!
//! The file has the numbers of the profile's tables. Samples are grouped by process, not ordered by
//! time. The survival of an object cannot follow from collections before its free, because these
//! may belong to another process: so each allocation contains its survival.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::activity;
use crate::compilation::COMPILATION;
use crate::composition::{self, encode_arenas};
use crate::event::{
    Allocation, Code, CodeId, CpuSample, End, Event, Extension, Label, LabelSetId, Lines, Nanos,
    Node, Survival, Thread, ThreadId, TypeName,
};
use crate::format::MAX_EXTENSION;
use crate::holders::HOLDERS;
use crate::model::{Lifetime, Profile, SamplingId};
use crate::pressure::PRESSURE;
use crate::processes::{self, MAX_BYTES, extension};
use crate::varint::put;
use crate::writer::Writer;

impl Profile {
    /// Writes the profile as a file. Reading the file gives the same profile. Calls `progress` at intervals with the
    /// number of samples written.
    ///
    /// # Errors
    /// The errors of `out`; `InvalidInput` if the descriptions of all processes together are longer than a file allows.
    pub fn write(&self, out: impl Write, progress: impl FnMut(u64)) -> io::Result<()> {
        let mut file = File {
            profile: self,
            periods: self.sources.iter().map(|source| source.period).collect(),
            threads: vec![ThreadId(0); self.threads.len()],
            out: Writer::new(out, &self.meta)?,
            tags: if self.processes.len() > 1 {
                0
            } else {
                self.meta.tags().count() as u32
            },
            lost: None,
        };
        file.processes()?;
        file.definitions()?;
        file.samples(progress)?;
        file.collector_and_memory()?;
        file.finish()
    }
}

struct File<'a, W: Write> {
    profile: &'a Profile,
    /// The current period of each source at this point of the file.
    periods: Vec<u64>,
    /// The numbers of threads in the file: the threads of a process follow it.
    threads: Vec<ThreadId>,
    out: Writer<W>,
    /// The number of label sets that stand for the tags of the only process: its description has them.
    tags: u32,
    /// What the file says of lost samples at this point; `None` if it has said nothing.
    lost: Option<u32>,
}

/// Number of samples between two calls of `progress`.
const STEP: u32 = 1 << 16;

impl<W: Write> File<'_, W> {
    fn processes(&mut self) -> io::Result<()> {
        let mut bytes = 0;
        let mut next = 0;
        for process in self.profile.process_ids() {
            if self.has_several() {
                let json = serde_json::to_vec(&self.profile.processes[process.index()])?;
                bytes += json.len();
                if json.len() > MAX_EXTENSION || bytes > MAX_BYTES {
                    let message = "there are too many processes for one file";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
                self.out.write(&Event::Extension(Extension {
                    kind: extension::PROCESS,
                    bytes: &json,
                }))?;
            }
            for (at, names) in self.profile.threads.iter().enumerate() {
                if self.profile.process_of(ThreadId(at as u32)) == process {
                    self.threads[at] = ThreadId(next);
                    next += 1;
                    self.out.write(&Event::Thread(Thread {
                        os_id: names.os_id,
                        name: &names.name,
                    }))?;
                }
            }
        }
        Ok(())
    }

    fn has_several(&self) -> bool {
        self.profile.processes.len() > 1
    }

    fn definitions(&mut self) -> io::Result<()> {
        let images = self.profile.images.iter();
        let images: HashMap<u32, &str> = images
            .map(|image| (image.function, image.build_id.as_str()))
            .collect();
        for (number, function) in (0..).zip(&self.profile.functions) {
            self.out.write(&Event::Code(Code {
                name: &function.name,
                file: &function.file,
                first_line: function.first_line,
                lines: images
                    .get(&number)
                    .map_or(Lines::Direct, |id| Lines::Image(id)),
            }))?;
        }
        for node in &self.profile.stacks[1..] {
            let frame = self.profile.frames[node.frame as usize];
            self.out.write(&Event::Node(Node {
                parent: node.parent,
                code: CodeId(frame.function),
                position: frame.line,
                kind: frame.kind,
            }))?;
        }
        for names in &self.profile.types[1..] {
            self.out.write(&Event::Type(TypeName {
                name: &names.name,
                native: &names.native,
            }))?;
        }
        for set in self.profile.label_sets.iter().skip(1 + self.tags as usize) {
            self.out.write(&Event::Label(Label {
                parent: self.labels(set.parent),
                key: &set.key,
                value: &set.value,
            }))?;
        }
        Ok(())
    }

    /// The number of a label set in the file.
    const fn labels(&self, set: LabelSetId) -> LabelSetId {
        LabelSetId(set.0.saturating_sub(self.tags))
    }

    fn thread(&self, thread: ThreadId) -> ThreadId {
        self.threads.get(thread.index()).copied().unwrap_or(thread)
    }

    /// Writes the period of the source, if it differs from the last one written.
    fn period(&mut self, sampling: SamplingId) -> io::Result<()> {
        let sampling = self.profile.sampling(sampling);
        let period = &mut self.periods[sampling.source.index()];
        if std::mem::replace(period, sampling.period) != sampling.period {
            self.out
                .write(&Event::Period(sampling.source, sampling.period))?;
        }
        Ok(())
    }

    /// Writes how many samples were lost beside the next ones, if the number differs from the last that was written. A file without
    /// any says nothing.
    fn lost_beside(&mut self, sampling: SamplingId) -> io::Result<()> {
        let lost = self.profile.sampling(sampling).lost;
        let is_needed = !self.profile.lost.is_empty();
        if is_needed && self.lost.replace(lost) != Some(lost) {
            let mut bytes = Vec::new();
            put(&mut bytes, lost.into());
            self.out.write(&Event::Extension(Extension {
                kind: extension::LOST,
                bytes: &bytes,
            }))?;
        }
        Ok(())
    }

    fn samples(&mut self, mut progress: impl FnMut(u64)) -> io::Result<()> {
        // A period without a sample says something too: what it may have missed.
        for id in 0..self.profile.samplings.len() {
            self.period(SamplingId(id as u32))?;
        }
        for id in self.profile.samples.ids() {
            let sample = self.profile.samples.get(id);
            self.period(sample.shape.sampling)?;
            self.lost_beside(sample.shape.sampling)?;
            self.out.write(&Event::Allocation(Allocation {
                time: sample.time,
                thread: self.thread(sample.thread),
                stack: sample.stack,
                size: sample.shape.size,
                block: sample.shape.block,
                points: sample.shape.points,
                type_id: sample.type_id,
                labels: self.labels(sample.labels),
                source: self.profile.sampling(sample.shape.sampling).source,
                survival: match sample.lifetime {
                    Lifetime::DiedYoung => Survival::DiedYoung,
                    Lifetime::Freed | Lifetime::Survived => Survival::Survived,
                    Lifetime::StillLive => Survival::Unsaid,
                },
            }))?;
            if let Some(time) = sample.freed {
                self.out.write(&Event::Freed(id, time))?;
            }
            if id.0 % STEP == 0 {
                progress(id.0.into());
            }
        }
        for sample in &self.profile.cpu {
            self.period(sample.sampling)?;
            self.out.write(&Event::Cpu(CpuSample {
                time: sample.time,
                thread: self.thread(sample.thread),
                stack: sample.stack,
                labels: self.labels(sample.labels),
                source: self.profile.sampling(sample.sampling).source,
            }))?;
        }
        Ok(())
    }

    fn collector_and_memory(&mut self) -> io::Result<()> {
        for collection in &self.profile.collections {
            let mut collection = *collection;
            collection.thread = self.thread(collection.thread);
            self.out.write(&Event::Collection(collection))?;
        }
        for &memory in &self.profile.memory {
            self.out.write(&Event::Memory(memory))?;
        }
        if self.has_several() {
            for process in self.profile.process_ids() {
                for memory in self.profile.memory_of(process) {
                    self.out.write(&Event::Extension(Extension {
                        kind: extension::PROCESS_MEMORY,
                        bytes: &processes::encode_memory(process, memory),
                    }))?;
                }
            }
        }
        if let (false, Some(counted)) = (self.has_several(), self.profile.counted) {
            self.out.write(&Event::Extension(Extension {
                kind: extension::COUNTED,
                bytes: &extension::counted(counted),
            }))?;
        }
        self.compositions()?;
        for &(kind, count) in &self.profile.lost {
            self.out.write(&Event::Lost(kind, count))?;
        }
        Ok(())
    }

    fn compositions(&mut self) -> io::Result<()> {
        let processes = self.profile.process_ids().zip(&self.profile.processes);
        for (process, of) in processes {
            for of_process in &of.compositions {
                self.out.write(&Event::Extension(Extension {
                    kind: composition::COMPOSITION,
                    bytes: &of_process.encode(process.0),
                }))?;
            }
            for of_process in &of.activity {
                self.out.write(&Event::Extension(Extension {
                    kind: activity::ACTIVITY,
                    bytes: &of_process.encode(process.0),
                }))?;
            }
            for of_process in &of.pressure {
                self.out.write(&Event::Extension(Extension {
                    kind: PRESSURE,
                    bytes: &of_process.encode(process.0),
                }))?;
            }
            for of_process in &of.compilations {
                self.out.write(&Event::Extension(Extension {
                    kind: COMPILATION,
                    bytes: &of_process.encode(process.0),
                }))?;
            }
            for of_process in &of.snapshots {
                self.out.write(&Event::Extension(Extension {
                    kind: HOLDERS,
                    bytes: &of_process.encode(process.0),
                }))?;
            }
        }
        for runs in self.profile.arenas.chunks(composition::MOST_RUNS) {
            self.out.write(&Event::Extension(Extension {
                kind: composition::ARENAS,
                bytes: &encode_arenas(runs),
            }))?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        // With several processes, each description says how its process ended.
        if !self.profile.complete && !self.has_several() {
            return self.out.flush();
        }
        let end = End {
            time: self.profile.end,
            allocated: self.profile.allocated,
        };
        self.out.finish(end).map(|_| ())
    }
}

/// A time in the precision of a file: whole microseconds.
pub(crate) const fn whole_ticks(time: Nanos) -> Nanos {
    let tick = crate::format::TICK_NANOS as u64;
    Nanos(time.0 / tick * tick)
}
