//! A profile of which old parts are dropped: `--keep 24h`, `--keep 500MB`.
//!
//! ```text
//! events ─▶ the session's numbers become the present file's ─▶ file
//!             definitions: written where they are first referred to
//!             live:        samples that are alive, which the next file begins with
//!             sums:        the rest of a dropped file
//!             ring:        the earlier files
//! ```
//!
//! The rest of the session does not know of it: its numbers go on. See [`nthbyte_profile::segment`] for what the files are.

mod definitions;
mod live;
mod ring;
mod sums;

use std::io;
use std::path::Path;

use nthbyte_profile::compilation::{COMPILATION, Compilation};
use nthbyte_profile::composition::{ARENAS, encode_arenas, parse_arenas};
use nthbyte_profile::event::{
    Allocation, Collection, CpuSample, End, Event, Extension, Nanos, SampleId, Survival,
};
use nthbyte_profile::extension::NOTE;
use nthbyte_profile::holders::{HOLDERS, Snapshot};
use nthbyte_profile::segment::{CARRIED, Carried, SUMS, SessionPart};
use nthbyte_profile::{Meta, Writer};

use crate::config::Keep;
use crate::output::Output;
use definitions::{Definitions, File};
use live::Live;
use ring::Ring;
use sums::Counter;

/// A file is divided after this part of the time, or of the bytes, that is kept.
const PARTS_OF_TIME: u64 = 16;
const PARTS_OF_BYTES: u64 = 8;
/// But not sooner, and not later, than this; and after an attempt that failed, not sooner than the later time.
const SHORTEST: Nanos = Nanos(500_000_000);
const LONGEST: Nanos = Nanos(600_000_000_000);

/// A snapshot of more bytes is not kept in sums.
const LARGEST_SNAPSHOT: usize = 256 << 10;

pub(super) struct Kept {
    ring: Ring,
    meta: Meta,
    segment: SessionPart,
    definitions: Definitions,
    live: Live,
    /// The session's number of the next sample, and of the first one in the present file that was not carried.
    next: u32,
    first: u32,
    /// The number of carried samples in the present file.
    carried: u32,
    /// The periods in force.
    periods: Vec<u64>,
    notes: Vec<Vec<u8>>,
    sums: Counter,
    /// The last snapshot of the present file, without its samples' numbers.
    snapshot: Option<Vec<u8>>,
    /// Bytes of the present file before anything new, and of all files before.
    bytes_at_start: u64,
    bytes_before: u64,
    /// When the last attempt to divide failed.
    failed: Option<Nanos>,
}

/// The description of the first file of a session that keeps so much.
pub(super) fn first_meta(meta: &Meta, keep: Option<Keep>) -> Meta {
    Meta {
        segment: keep.map(|_| SessionPart {
            number: 1,
            since_nanos: 0,
        }),
        ..meta.clone()
    }
}

impl Kept {
    /// `profile`: the path of the present file, of which this is the description.
    pub(super) fn new(keep: Keep, profile: &Path, meta: &Meta) -> Self {
        Self {
            ring: Ring::new(keep, profile),
            segment: SessionPart {
                number: 1,
                since_nanos: 0,
            },
            periods: meta.sources.iter().map(|source| source.period).collect(),
            meta: meta.clone(),
            definitions: Definitions::new(),
            live: Live::default(),
            next: 0,
            first: 0,
            carried: 0,
            notes: Vec::new(),
            sums: Counter::default(),
            snapshot: None,
            bytes_at_start: 0,
            bytes_before: 0,
            failed: None,
        }
    }

    /// Writes an event of the session to the present file.
    pub(super) fn write(&mut self, event: &Event<'_>, file: &mut File) -> io::Result<()> {
        if self.definitions.keep(event, file)? {
            return Ok(());
        }
        match event {
            Event::Allocation(allocation) => self.allocation(allocation, file),
            Event::Freed(sample, time) => match self.live.remove(*sample) {
                Some(here) => file.write(&Event::Freed(here, *time)),
                None => Ok(()),
            },
            Event::Cpu(sample) => {
                let sample = CpuSample {
                    thread: self.definitions.thread(sample.thread, file)?,
                    stack: self.definitions.node(sample.stack, file)?,
                    labels: self.definitions.labels(sample.labels, file)?,
                    ..*sample
                };
                file.write(&Event::Cpu(sample))
            }
            Event::Collection(collection) => {
                let thread = self.definitions.thread(collection.thread, file)?;
                file.write(&Event::Collection(Collection {
                    thread,
                    ..*collection
                }))
            }
            Event::Period(source, period) => {
                if let Some(known) = self.periods.get_mut(source.index()) {
                    *known = *period;
                }
                file.write(event)
            }
            Event::Extension(extension) => self.extension(extension, file),
            _ => file.write(event),
        }
    }

    /// No later event refers to what was defined before, but for a few under way: see [`crate::recording`]'s interner.
    pub(super) fn renewed(&mut self, threads: bool) {
        self.sums.shrink();
        let in_sums = self.sums.numbers();
        self.definitions.renewed(threads, &self.live, in_sums);
    }

    fn allocation(&mut self, allocation: &Allocation, file: &mut File) -> io::Result<()> {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        let here = self.translated(allocation, file)?;
        file.write(&Event::Allocation(here))?;
        let source = allocation.source.index();
        let period = self.periods.get(source).copied().unwrap_or_default();
        let distances = self.meta.sources.get(source).and_then(|of| of.distances());
        let function = self.definitions.function(allocation.stack);
        self.sums.add(allocation, function, distances, period)?;
        if allocation.survival == Survival::Unsaid {
            let here = self.here(number);
            self.live.push(number, here, period, *allocation)?;
        }
        Ok(())
    }

    /// The number in the present file of a sample that was not carried.
    const fn here(&self, number: u32) -> u32 {
        number.wrapping_sub(self.first).wrapping_add(self.carried)
    }

    /// An allocation with the numbers of the present file, which gets the definitions that it has not yet.
    pub(super) fn translated(
        &mut self,
        allocation: &Allocation,
        file: &mut File,
    ) -> io::Result<Allocation> {
        translated(&mut self.definitions, allocation, file)
    }

    fn extension(&mut self, extension: &Extension<'_>, file: &mut File) -> io::Result<()> {
        let changed = match extension.kind {
            NOTE => {
                self.notes.push(extension.bytes.to_vec());
                None
            }
            HOLDERS => self.snapshot(extension.bytes),
            ARENAS => parse_arenas(extension.bytes).map(|mut runs| {
                // They are of samples since the last block, so none of them was carried.
                for run in &mut runs {
                    run.first = SampleId(self.here(run.first.0));
                }
                encode_arenas(&runs)
            }),
            COMPILATION => match Compilation::parse(extension.bytes) {
                Some((process, mut compilation)) => {
                    compilation.thread = self.definitions.thread(compilation.thread, file)?;
                    Some(compilation.encode(process))
                }
                None => None,
            },
            _ => None,
        };
        let bytes = changed.as_deref().unwrap_or(extension.bytes);
        let kind = extension.kind;
        file.write(&Event::Extension(Extension { kind, bytes }))
    }

    /// A snapshot with the samples' numbers of the present file.
    fn snapshot(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (process, mut snapshot) = Snapshot::parse(bytes)?;
        let mut anonymous = snapshot.clone();
        anonymous.renumber(|_| None);
        let anonymous = anonymous.encode(process);
        if anonymous.len() <= LARGEST_SNAPSHOT {
            self.snapshot = Some(anonymous);
        }
        snapshot.renumber(|sample| match sample.0 >= self.first {
            true => Some(SampleId(self.here(sample.0))),
            false => self.live.here(sample),
        });
        Some(snapshot.encode(process))
    }

    /// Bytes of all files until now.
    pub(super) fn bytes(&self, file: &File) -> u64 {
        self.bytes_before + file.bytes_written()
    }

    /// Whether a new file is to be begun.
    pub(super) fn is_due(&self, now: Nanos, file: &File) -> bool {
        let keep = self.ring.keep();
        let age = now.0.saturating_sub(self.segment.since_nanos);
        if let Some(failed) = self.failed
            && now.0.saturating_sub(failed.0) < LONGEST.0
        {
            return false;
        }
        let of_time = keep.nanos.map_or(LONGEST.0, |nanos| {
            (nanos / PARTS_OF_TIME).clamp(2 * SHORTEST.0, LONGEST.0)
        });
        let longest = keep.part_nanos.unwrap_or(of_time);
        let new = file.bytes_written().saturating_sub(self.bytes_at_start);
        let is_large = keep.bytes.is_some_and(|bytes| new > bytes / PARTS_OF_BYTES);
        age >= longest || (is_large && age >= SHORTEST.0)
    }

    /// Ends the present file, and begins the next one in its place. The caller has ended the block. `Ok(None)` gives the file back: no new one could
    /// be made.
    ///
    /// # Errors
    /// If a file fails. The present one is at its end then.
    pub(super) fn divide(
        &mut self,
        mut file: File,
        path: &Path,
        now: Nanos,
    ) -> io::Result<(File, bool)> {
        let meta = Meta {
            segment: Some(SessionPart {
                number: self.segment.number + 1,
                since_nanos: now.0,
            }),
            sources: self
                .meta
                .sources
                .iter()
                .zip(&self.periods)
                .map(|(source, &period)| nthbyte_profile::Source {
                    period,
                    ..source.clone()
                })
                .collect(),
            ..self.meta.clone()
        };
        let next = self.ring.next().and_then(|next| {
            let output = Output::create(&next)?;
            Ok((next, Writer::new(output, &meta)?))
        });
        let (next, mut new) = match next {
            Ok(next) => next,
            Err(error) => {
                if self.failed.is_none() {
                    let note = format!("nothing is dropped: {error}");
                    let bytes = note.as_bytes();
                    file.write(&Event::Extension(Extension { kind: NOTE, bytes }))?;
                }
                self.failed = Some(now);
                return Ok((file, false));
            }
        };
        let sums = self.finished_sums(now)?;
        let bytes = file.bytes_written();
        let end = End {
            time: now,
            allocated: None,
        };
        drop(file.finish(end)?);
        self.ring
            .push(self.segment.number, path, &next, &sums, now)?;
        new.get_mut().has_moved(path);
        self.bytes_before += bytes;
        self.begin_file(&meta, &mut new)?;
        self.ring.drop_old(now, new.bytes_written());
        Ok((new, true))
    }

    fn begin_file(&mut self, meta: &Meta, file: &mut File) -> io::Result<()> {
        self.segment = meta.segment.unwrap_or(self.segment);
        self.definitions.begin_file();
        self.first = self.next;
        for bytes in &self.notes {
            file.write(&Event::Extension(Extension { kind: NOTE, bytes }))?;
        }
        let living = self.live.begin_file();
        self.carried = living.len() as u32;
        let numbers: Vec<u32> = living.iter().map(|one| one.number).collect();
        for carried in Carried::events(self.next, &numbers) {
            file.write(&Event::Extension(Extension {
                kind: CARRIED,
                bytes: &carried.encode(),
            }))?;
        }
        let mut periods = self.periods.clone();
        for one in living {
            let source = one.allocation.source;
            if let Some(known) = periods.get_mut(source.index())
                && *known != one.period
            {
                *known = one.period;
                file.write(&Event::Period(source, one.period))?;
            }
            let allocation = translated(&mut self.definitions, &one.allocation, file)?;
            file.write(&Event::Allocation(allocation))?;
        }
        for (source, (&here, &now)) in (0..).zip(periods.iter().zip(&self.periods)) {
            if here != now {
                file.write(&Event::Period(
                    nthbyte_profile::event::SourceId(source),
                    now,
                ))?;
            }
        }
        file.flush()?;
        self.bytes_at_start = file.bytes_written();
        Ok(())
    }

    /// The file that is left of the present one once it is dropped. A new count begins.
    fn finished_sums(&mut self, now: Nanos) -> io::Result<Vec<u8>> {
        let meta = Meta {
            segment: Some(self.segment),
            ..self.meta.clone()
        };
        let since = Nanos(self.segment.since_nanos);
        let sums = self.sums.finish(since, now, &self.definitions);
        let mut file = Writer::new(Vec::new(), &meta)?;
        file.write(&Event::Extension(Extension {
            kind: SUMS,
            bytes: &sums.encode(),
        }))?;
        if let Some(bytes) = self.snapshot.take() {
            file.write(&Event::Extension(Extension {
                kind: HOLDERS,
                bytes: &bytes,
            }))?;
        }
        file.finish(End {
            time: now,
            allocated: None,
        })
    }
}

fn translated(
    definitions: &mut Definitions,
    allocation: &Allocation,
    file: &mut File,
) -> io::Result<Allocation> {
    Ok(Allocation {
        thread: definitions.thread(allocation.thread, file)?,
        stack: definitions.node(allocation.stack, file)?,
        type_id: definitions.type_id(allocation.type_id, file)?,
        labels: definitions.labels(allocation.labels, file)?,
        ..*allocation
    })
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::{
        Code, CodeId, FrameKind, LabelSetId, Lines, Node, NodeId, SourceId, Thread, ThreadId,
        TypeId, TypeName,
    };

    use super::*;
    use crate::config::Config;

    /// Each sample has a function, a type and a stack of its own. One of a hundred lives on, the others die at once.
    #[test]
    fn definitions_are_dropped_unless_something_alive_needs_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.nthb");
        let json = serde_json::json!({"output": path, "period": 1, "distances": "every",
            "keep": {"nanos": 3_600_000_000_000_u64}});
        let config = Config::parse(&json.to_string()).unwrap();
        let meta = config.meta(nthbyte_profile::Method::NurseryLimit, 1, Vec::new());
        let meta = first_meta(&meta, config.keep);
        let mut file = Writer::new(Output::create(&path).unwrap(), &meta).unwrap();
        let mut kept = Kept::new(config.keep.unwrap(), &path, &meta);
        let thread = Thread { os_id: 7, name: "" };
        kept.write(&Event::Thread(thread), &mut file).unwrap();
        let (mut most, mut of_sums) = (0, 0);
        for step in 0..20_000_u32 {
            let name = &format!("function {step}");
            let code = Code {
                name,
                file: "f.py",
                first_line: 1,
                lines: Lines::Direct,
            };
            let node = |parent| {
                Event::Node(Node {
                    parent: NodeId(parent),
                    code: CodeId(step),
                    position: 1,
                    kind: FrameKind::Interpreted,
                })
            };
            let types = TypeName { name, native: "" };
            let sample = Allocation {
                time: Nanos(step.into()),
                thread: ThreadId(0),
                stack: NodeId(2 * step + 2),
                size: u64::from(step),
                block: u64::from(step),
                points: 1,
                type_id: TypeId(step + 1),
                labels: LabelSetId::NONE,
                source: SourceId::ALLOCATIONS,
                survival: Survival::Unsaid,
            };
            let lives = step % 100 == 0;
            let freed = Event::Freed(SampleId(step), Nanos(step.into()));
            let events = [
                Event::Code(code),
                node(0),
                node(2 * step + 1),
                Event::Type(types),
                Event::Allocation(sample),
            ];
            for event in events.iter().chain((!lives).then_some(&freed)) {
                kept.write(event, &mut file).unwrap();
            }
            if step % 1000 == 999 {
                kept.renewed(false);
                most = most.max(kept.definitions.count());
                of_sums = of_sums.max(kept.sums.numbers().into_iter().map(Iterator::count).sum());
            }
            if step % 5000 == 4999 {
                let now = Nanos((u64::from(step) + 1) * 1_000_000);
                file = kept.divide(file, &path, now).unwrap().0;
            }
        }
        // Four of each sample of the last generations, of those that are alive, and what sums name.
        assert!(most < 4 * 2000 + 4 * 200 + 2 * 1600 + 2, "{most}");
        assert!(of_sums <= 8 * (200 + 100), "{of_sums}");
        let end = End {
            time: Nanos(21_000_000_000),
            allocated: None,
        };
        drop(file.finish(end).unwrap());
        // The last file alone has all that is alive.
        let last = nthbyte_profile::Profile::load(&path).unwrap();
        assert!(last.damage.is_empty());
        let mut seen: Vec<u64> = Vec::new();
        for sample in last.samples.iter() {
            let name = format!("function {}", sample.shape.size);
            let stack: Vec<_> = last.stack(sample.stack).collect();
            assert_eq!(stack.len(), 2);
            for frame in stack {
                assert_eq!(last.functions[frame.function as usize].name, name);
            }
            assert_eq!(last.types[sample.type_id.0 as usize].name, name);
            seen.push(sample.shape.size);
        }
        assert_eq!(seen, (0..20_000).step_by(100).collect::<Vec<u64>>());
    }
}
