//! The far end of the ring: records become events in the file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nthbyte_profile::event::{End, Event, Nanos};
use nthbyte_profile::{Meta, Writer};
use rtrb::Consumer;

use super::clock::Clock;
use super::outcome::Outcome;
use super::output::Output;
use super::record::Record;
use super::recorder::take_lost;
use super::waiting::Waiting;
use super::worker::Worker;

/// A block is written at least this often while there is something to write, so that a killed process
/// loses less than a second. A young process writes more often, in proportion to its age: the workers
/// of a pool may be killed before they are a second old.
const FLUSH_AFTER: Duration = Duration::from_millis(600);
const FLUSH_AFTER_AT_FIRST: Duration = Duration::from_millis(30);

/// So many samples that wait take a few milliseconds to write: more are not written more often than that.
const WRITTEN_AT_ONCE: usize = 1 << 16;

pub(super) struct Drain {
    ring: Consumer<Record>,
    clock: Clock,
    sink: Sink,
    path: PathBuf,
    waiting: Waiting,
    flushed: Instant,
    dirty: bool,
    samples: u64,
    lost: u64,
}

enum Sink {
    /// The file is made when there is something to write.
    Later(Box<Meta>),
    Open(Box<Writer<Output>>),
    Failed(String),
}

impl Drain {
    /// A drain into a file that is made now.
    pub(super) fn open(
        ring: Consumer<Record>,
        clock: Clock,
        path: &Path,
        meta: &Meta,
    ) -> Result<Self, String> {
        let sink = Sink::Open(Box::new(create(path, meta)?));
        Ok(Self::new(ring, clock, path.to_owned(), sink))
    }

    /// A drain into a file that is made with the first record.
    pub(super) fn later(ring: Consumer<Record>, clock: Clock, path: PathBuf, meta: &Meta) -> Self {
        Self::new(ring, clock, path, Sink::Later(Box::new(meta.clone())))
    }

    fn new(ring: Consumer<Record>, clock: Clock, path: PathBuf, sink: Sink) -> Self {
        Self {
            ring,
            clock,
            sink,
            path,
            waiting: Waiting::default(),
            flushed: Instant::now(),
            dirty: false,
            samples: 0,
            lost: 0,
        }
    }

    /// Takes what is in the ring. Whether a block was written because it was time.
    pub(super) fn work(&mut self, worker: &Worker) -> bool {
        let was_provisional = self.is_provisional();
        while let Ok(record) = self.ring.pop() {
            match record {
                Record::Announced(sample) => self.waiting.announce(sample),
                Record::Allocation(sample) => {
                    self.waiting.recorded(sample.time);
                    self.samples += 1;
                }
                _ => {}
            }
            if let Some(event) = record.event() {
                self.write(&event, worker);
            }
        }
        let patience = self.patience();
        // A block that was full has taken the place of samples that wait still, or are in the next block.
        let is_overwritten =
            was_provisional && !self.is_provisional() && self.waiting.len() <= WRITTEN_AT_ONCE;
        let is_due = is_overwritten || self.flushed.elapsed() >= patience;
        let writes = is_due && self.dirty;
        if is_due {
            self.write_all(worker, patience / 2);
        }
        writes
    }

    /// Takes what is in the ring, and gets ready to be away for a while.
    pub(super) fn rest(&mut self, worker: &Worker) {
        self.work(worker);
        self.write_all(worker, Duration::ZERO);
    }

    /// Writes what was taken so far, and the samples that wait, if one has waited for so long. That takes a while: until
    /// it is done, the file has the end that it had.
    fn write_all(&mut self, worker: &Worker, patience: Duration) {
        if let Sink::Open(writer) = &mut self.sink {
            writer.get_mut().hold();
        }
        self.flush(worker);
        let mut written = self.write_waiting(patience);
        if let Sink::Open(writer) = &mut self.sink {
            written = written.and(writer.get_mut().release());
        }
        if let Err(error) = written {
            self.fail(&error, worker);
        }
    }

    /// How long what was recorded may wait for its block to be written.
    pub(super) fn patience(&self) -> Duration {
        let age = Duration::from_nanos(self.clock.now().0);
        (age / 4).clamp(FLUSH_AFTER_AT_FIRST, FLUSH_AFTER)
    }

    /// Ends the current block, so that what was taken so far is in the file.
    fn flush(&mut self, worker: &Worker) {
        self.flushed = Instant::now();
        for (kind, events) in take_lost(worker) {
            if events > 0 {
                self.lost += events;
                self.write(&Event::Lost(kind, events), worker);
            }
        }
        if std::mem::take(&mut self.dirty)
            && let Sink::Open(writer) = &mut self.sink
        {
            self.waiting.overwritten();
            if let Err(error) = writer.flush() {
                self.fail(&error, worker);
            }
        }
    }

    fn is_provisional(&self) -> bool {
        matches!(&self.sink, Sink::Open(writer) if writer.get_ref().is_provisional())
    }

    /// Puts the samples that wait at the end of the file, if one has waited for so long.
    fn write_waiting(&mut self, patience: Duration) -> io::Result<()> {
        let now = self.clock.now().0;
        let since = now.saturating_sub(patience.as_nanos() as u64);
        if let Sink::Open(writer) = &mut self.sink
            && let Some(samples) = self.waiting.take_changed(Nanos(since))
        {
            let blocks = writer.provisional(samples)?;
            writer.get_mut().write_provisional(&blocks)?;
        }
        Ok(())
    }

    /// Writes the rest and the end.
    pub(super) fn finish(mut self, worker: &Worker, end: End) -> Outcome {
        self.work(worker);
        self.flush(worker);
        let mut outcome = Outcome {
            path: Some(self.path.clone()),
            samples: self.samples,
            lost: self.lost,
            bytes_allocated: end.allocated,
            notes: Vec::new(),
        };
        match std::mem::replace(&mut self.sink, Sink::Failed(String::new())) {
            Sink::Later(_) => return Outcome::default(),
            Sink::Failed(error) => outcome.notes.push(error),
            Sink::Open(writer) => {
                if let Err(error) = writer.finish(end) {
                    outcome.notes.push(describe(&self.path, &error));
                }
            }
        }
        outcome
    }

    fn write(&mut self, event: &Event<'_>, worker: &Worker) {
        if let Sink::Later(meta) = &self.sink {
            self.sink = match create(&self.path, meta) {
                Ok(writer) => Sink::Open(Box::new(writer)),
                Err(error) => Sink::Failed(error),
            };
        }
        match &mut self.sink {
            Sink::Open(writer) => {
                self.dirty = true;
                if let Err(error) = writer.write(event) {
                    self.fail(&error, worker);
                }
            }
            Sink::Failed(_) | Sink::Later(_) => {
                worker.set_dead();
                if matches!(event, Event::Allocation(_)) {
                    self.lost += 1;
                }
            }
        }
    }

    fn fail(&mut self, error: &std::io::Error, worker: &Worker) {
        worker.set_dead();
        let when = self.clock.now().0 / 1_000_000_000;
        self.sink = Sink::Failed(format!(
            "{}; the profile ends {when} s after its start",
            describe(&self.path, error)
        ));
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Writer<Output>, String> {
    let writer = Output::create(path).and_then(|file| Writer::new(file, meta));
    writer.map_err(|error| describe(path, &error))
}

fn describe(path: &Path, error: &std::io::Error) -> String {
    let has_folder = path.parent().is_some_and(Path::is_dir);
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::StorageFull => {
            format!("no space left for {path}; choose another place with -o")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("not allowed to write {path}; choose another place with -o")
        }
        std::io::ErrorKind::NotFound if !has_folder => {
            format!("the folder of {path} does not exist; make it, or choose another with -o")
        }
        // What `nthbyte_profile::create` says names the path.
        _ if error.to_string().starts_with("cannot write") => error.to_string(),
        _ => format!("cannot write {path}: {error}"),
    }
}
