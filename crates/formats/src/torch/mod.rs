//! PyTorch's snapshots of device memory (`torch.cuda.memory._snapshot()`), read into a `.nthb` file.
//!
//! ```text
//! segments       the blocks in use at the end, with the Python stack of each
//! device_traces  for each device, what was allocated and freed until then, with times and stacks, if a history was recorded
//! host_segments, host_traces   the same of pinned host memory, in newer versions
//! ```
//!
//! A block in use whose allocation the history does not have was allocated before it: at the start. Every allocation is there, so figures are exact.

mod value;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nthbyte_profile::event::{
    Allocation, Code, CodeId, End, Event, FrameKind, LabelSetId, Lines, Nanos, Node, NodeId,
    SampleId, SourceId, Survival, Thread, ThreadId, TypeId, TypeName,
};
use nthbyte_profile::{Distances, Meta, Method, Source, SourceKind, Writer};

use value::Value;

/// Larger files are refused, to limit memory.
const LARGEST: u64 = 1 << 30;
/// More blocks and entries than this are refused: parts of a pickle may be there by reference, often.
const MOST: usize = 1 << 24;
/// A stack is cut here.
const DEEPEST: usize = 1 << 10;

/// Why a snapshot could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum TorchError {
    /// The file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is no snapshot.
    #[error("{} is not a snapshot of PyTorch: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The new profile could not be written.
    #[error("{0}")]
    Write(#[from] io::Error),
}

/// Whether a file begins as a snapshot does: as a pickle, or as JSON.
#[must_use]
pub fn is_snapshot(path: &Path) -> bool {
    let mut start = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && (start[0] == b'{' || start[0] == 0x80 && (2..=5).contains(&start[1]))
}

/// Reads a snapshot, a pickle or JSON, and writes it as a `.nthb` file. Returns the number of blocks that were in use.
///
/// # Errors
/// See [`TorchError`].
pub fn import(path: &Path, out_path: &Path) -> Result<u64, TorchError> {
    let foreign = |why: String| TorchError::Foreign {
        path: path.to_owned(),
        why,
    };
    let mut data = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut data))
        .map_err(|error| TorchError::Read {
            path: path.to_owned(),
            error,
        })?;
    if data.len() as u64 > LARGEST {
        return Err(foreign("the file is larger than 1 GiB".to_owned()));
    }
    let snapshot = if data.first() == Some(&b'{') {
        serde_json::from_slice(&data).map_err(|error| foreign(error.to_string()))?
    } else {
        value::unpickle(&data).map_err(foreign)?
    };
    drop(data);
    let moments = moments(&snapshot).map_err(foreign)?;
    let in_use = moments.iter().filter(|one| one.freed.is_none()).count();
    write(moments, path, nthbyte_profile::create(out_path)?)?;
    Ok(in_use as u64)
}

/// A block, from its allocation to its free.
struct Life {
    from: Nanos,
    freed: Option<Nanos>,
    size: u64,
    block: u64,
    /// Of the device, or of the host.
    place: Rc<str>,
    stream: u64,
    frames: Value,
}

/// All blocks, in the order of their allocations.
fn moments(snapshot: &Value) -> Result<Vec<Life>, String> {
    let (segments, traces) = (snapshot.get("segments"), snapshot.get("device_traces"));
    if !matches!((&segments, &traces), (Value::List(_), Value::List(_))) {
        return Err("it has no segments and device_traces".to_owned());
    }
    let mut lives: Vec<Life> = Vec::new();
    // By place and address: the block that is in use there.
    let mut used: HashMap<(Rc<str>, u64), usize> = HashMap::new();
    let mut traces: Vec<(Rc<str>, Value)> = (0..)
        .zip(traces.items())
        .map(|(device, trace)| (device_name(device), trace))
        .collect();
    let host: Rc<str> = "pinned host memory".into();
    let of_host = snapshot.get("host_traces");
    traces.extend(of_host.items().into_iter().map(|of| (host.clone(), of)));
    let entries: Vec<(Rc<str>, Vec<Value>)> = traces
        .into_iter()
        .map(|(place, trace)| (place, trace.items()))
        .collect();
    let time = |entry: &Value| entry.get("time_us").number().unwrap_or(0);
    let began = entries
        .iter()
        .flat_map(|(_, of)| of)
        .map(time)
        .filter(|&at| at > 0)
        .min();
    let began = began.unwrap_or(0);
    let count: usize = entries.iter().map(|(_, of)| of.len()).sum();
    if count > MOST {
        return Err("it has more than 16 million entries".to_owned());
    }
    let mut end = Nanos(0);
    for (place, entries) in entries {
        for entry in entries {
            let at = Nanos(time(&entry).saturating_sub(began).saturating_mul(1_000));
            end = end.max(at);
            let key = (place.clone(), entry.get("addr").number().unwrap_or(0));
            match entry.get("action").text().as_deref() {
                Some("alloc") => {
                    let size = entry.get("size").number().unwrap_or(0);
                    let life = Life {
                        from: at,
                        freed: None,
                        size,
                        block: size,
                        place: place.clone(),
                        stream: entry.get("stream").number().unwrap_or(0),
                        frames: entry.get("frames"),
                    };
                    if let Some(earlier) = used.insert(key, lives.len()) {
                        // Its free is missing.
                        lives[earlier].freed = Some(at);
                    }
                    lives.push(life);
                }
                Some("free_requested") => {
                    if let Some(life) = used.remove(&key) {
                        lives[life].freed = Some(at);
                    }
                }
                _ => {}
            }
        }
    }
    let mut blocks = 0;
    let mut is_used = vec![false; lives.len()];
    let of_host = snapshot.get("host_segments").items();
    let segments = segments.items().into_iter().map(|of| (false, of));
    for (is_host, segment) in segments.chain(of_host.into_iter().map(|of| (true, of))) {
        let place = match is_host {
            true => host.clone(),
            false => device_name(segment.get("device").number().unwrap_or(0)),
        };
        let mut address = segment.get("address").number().unwrap_or(0);
        for block in segment.get("blocks").items() {
            blocks += 1;
            if blocks > MOST {
                return Err("it has more than 16 million blocks".to_owned());
            }
            let size = block.get("size").number().unwrap_or(0);
            // Older versions do not say the address: blocks follow each other.
            address = block.get("address").number().unwrap_or(address);
            let here = address;
            address = address.saturating_add(size);
            if block.get("state").text().as_deref() != Some("active_allocated") {
                continue;
            }
            let asked = block.get("requested_size").number().unwrap_or(size);
            if let Some(&life) = used.get(&(place.clone(), here)) {
                is_used[life] = true;
                lives[life].size = asked;
                lives[life].block = size;
                continue;
            }
            lives.push(Life {
                from: Nanos(0),
                freed: None,
                size: asked,
                block: size,
                place: place.clone(),
                stream: segment.get("stream").number().unwrap_or(0),
                frames: block.get("frames"),
            });
        }
    }
    // What the history has no free of, and is not in use, was freed: an entry was left out.
    for (life, _) in lives
        .iter_mut()
        .zip(is_used)
        .filter(|(_, is_used)| !is_used)
    {
        life.freed = life.freed.or(Some(end));
    }
    lives.sort_by_key(|life| life.from);
    Ok(lives)
}

fn device_name(device: u64) -> Rc<str> {
    format!("cuda:{device}").into()
}

/// Writes a profile in which every allocation is recorded.
fn write(lives: Vec<Life>, path: &Path, out: File) -> io::Result<()> {
    let source = Source::allocations(SourceKind::Device, Method::Imported, Distances::Every, 1);
    let meta = Meta {
        nthbyte: env!("CARGO_PKG_VERSION").to_owned(),
        interpreter: "PyTorch".to_owned(),
        command: vec![path.display().to_string()],
        sources: vec![source],
        notes: vec![format!(
            "imported from {}, a snapshot of PyTorch",
            path.display()
        )],
        ..Meta::default()
    };
    let mut writer = Writer::new(out, &meta)?;
    let mut tables = Tables::default();
    let mut events: Vec<(Nanos, u32, Option<Allocation>)> = Vec::new();
    for (number, life) in (0..).zip(lives) {
        let allocation = Allocation {
            time: life.from,
            thread: tables.thread(&life.place, life.stream, &mut writer)?,
            stack: tables.stack(&life.frames, &mut writer)?,
            size: life.size,
            block: life.block.max(life.size),
            points: 1,
            type_id: tables.type_id(&life.place, &mut writer)?,
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            // No collector decides.
            survival: match life.freed {
                Some(_) => Survival::Survived,
                None => Survival::Unsaid,
            },
        };
        events.push((life.from, number, Some(allocation)));
        events.extend(life.freed.map(|at| (at, number, None)));
    }
    // Stable, and an allocation is before the free of its own: they were added so.
    events.sort_by_key(|&(time, ..)| time);
    let mut end = Nanos(0);
    let mut samples: HashMap<u32, SampleId> = HashMap::new();
    for (time, number, allocation) in events {
        end = end.max(time);
        match allocation {
            Some(allocation) => {
                samples.insert(number, SampleId(samples.len() as u32));
                writer.write(&Event::Allocation(allocation))?;
            }
            None => writer.write(&Event::Freed(samples[&number], time))?,
        }
    }
    writer.finish(End {
        time: end,
        allocated: None,
    })?;
    Ok(())
}

/// The file's definitions so far.
#[derive(Default)]
struct Tables {
    threads: HashMap<(Rc<str>, u64), ThreadId>,
    types: HashMap<Rc<str>, TypeId>,
    codes: HashMap<(Rc<str>, Rc<str>), CodeId>,
    nodes: HashMap<(NodeId, CodeId, u32), NodeId>,
}

impl Tables {
    fn thread(
        &mut self,
        place: &Rc<str>,
        stream: u64,
        writer: &mut Writer<File>,
    ) -> io::Result<ThreadId> {
        let key = (place.clone(), stream);
        if let Some(&known) = self.threads.get(&key) {
            return Ok(known);
        }
        let id = ThreadId(self.threads.len() as u32);
        writer.write(&Event::Thread(Thread {
            os_id: u64::from(id.0),
            name: &format!("{place}, stream {stream}"),
        }))?;
        self.threads.insert(key, id);
        Ok(id)
    }

    fn type_id(&mut self, place: &Rc<str>, writer: &mut Writer<File>) -> io::Result<TypeId> {
        if let Some(&known) = self.types.get(place) {
            return Ok(known);
        }
        let id = TypeId(self.types.len() as u32 + 1);
        writer.write(&Event::Type(TypeName {
            name: place,
            native: "",
        }))?;
        self.types.insert(place.clone(), id);
        Ok(id)
    }

    /// The first frame is the innermost one. C++ frames are left out, unless there are no others: a thread of PyTorch's own.
    fn stack(&mut self, frames: &Value, writer: &mut Writer<File>) -> io::Result<NodeId> {
        let mut stack = NodeId::ROOT;
        let mut frames = frames.items();
        // C++ frames have the names of their sources, or none.
        let is_python = |file: &str| file.ends_with(".py") || file.starts_with('<');
        let is_of_python = |frame: &Value| {
            frame
                .get("filename")
                .text()
                .is_some_and(|file| is_python(&file))
        };
        if frames.iter().any(is_of_python) {
            frames.retain(is_of_python);
        }
        for frame in frames.iter().take(DEEPEST).rev() {
            let text = |key| frame.get(key).text().unwrap_or_else(|| "".into());
            let (name, file) = (text("name"), text("filename"));
            let line = frame.get("line").number().unwrap_or(0);
            let line = u32::try_from(line).unwrap_or(0);
            let code = self.code(name, file.clone(), writer)?;
            let key = (stack, code, line);
            stack = match self.nodes.get(&key) {
                Some(&known) => known,
                None => {
                    let kind = match is_python(&file) {
                        true => FrameKind::Interpreted,
                        false => FrameKind::Native,
                    };
                    writer.write(&Event::Node(Node {
                        parent: stack,
                        code,
                        position: line,
                        kind,
                    }))?;
                    let id = NodeId(self.nodes.len() as u32 + 1);
                    self.nodes.insert(key, id);
                    id
                }
            };
        }
        Ok(stack)
    }

    fn code(
        &mut self,
        name: Rc<str>,
        file: Rc<str>,
        writer: &mut Writer<File>,
    ) -> io::Result<CodeId> {
        let key = (name, file);
        if let Some(&known) = self.codes.get(&key) {
            return Ok(known);
        }
        let id = CodeId(self.codes.len() as u32);
        writer.write(&Event::Code(Code {
            name: &key.0,
            file: &key.1,
            first_line: 0,
            lines: Lines::Direct,
        }))?;
        self.codes.insert(key, id);
        Ok(id)
    }
}
