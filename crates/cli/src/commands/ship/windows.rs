//! What of each recording was not sent yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use nthbyte_formats::Window;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::{Meta, Profile, Reader, folder};

/// What was recorded in the last second of a profile that grows may still be written.
const UNCERTAIN: Nanos = Nanos(1_000_000_000);
/// A profile that has no end, and was not written to for so long, grows no more.
const ABANDONED: Duration = Duration::from_secs(30);

/// How far each recording was taken, in nanoseconds since its start, by the name of the recording.
pub type State = BTreeMap<String, u64>;

/// A window of a recording.
pub struct Shipment<'a> {
    /// What was read of the recording.
    pub profile: &'a Profile,
    /// The window.
    pub window: Window,
    /// Its identity, made of the recording's and the window's start.
    pub id: [u8; 16],
}

impl Shipment<'_> {
    /// The name of the service: its tag, or the program's.
    pub fn service(&self) -> String {
        let meta = &self.profile.meta;
        let tag = meta.tags().find(|(key, _)| *key == "service");
        let program = meta.command.first().map(|word| Path::new(word).file_name());
        let program = program.flatten().map(|name| name.to_string_lossy());
        match (tag, program) {
            (Some((_, name)), _) => name.to_owned(),
            (None, Some(name)) => name.into_owned(),
            (None, None) => "python".to_owned(),
        }
    }

    /// When it ends, in nanoseconds since 1970.
    pub fn ends_unix(&self) -> u64 {
        let began = self.profile.meta.started_unix_nanos;
        began.saturating_add(self.window.until.0)
    }

    /// The identity in hexadecimal digits.
    pub fn hexadecimal(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The identity as a UUID of version 8, whose content is free.
    pub fn uuid(&self) -> String {
        let mut id = self.id;
        id[6] = id[6] & 0x0f | 0x80;
        id[8] = id[8] & 0x3f | 0x80;
        let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        [
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..],
        ]
        .join("-")
    }

    /// In a line.
    pub fn describe(&self) -> String {
        let samples = self.profile.samples.iter();
        let Window { since, until } = self.window;
        let count = samples
            .filter(|one| since <= one.time && one.time < until)
            .count();
        format!(
            "would send {count} samples of {} (process {}), {:.1} s to {:.1} s, as {}",
            self.service(),
            self.profile.meta.pid,
            since.0 as f64 / 1e9,
            until.0 as f64 / 1e9,
            self.uuid(),
        )
    }
}

/// The profiles of a folder, each recording once: not its earlier parts'.
///
/// # Errors
/// If the folder cannot be read.
pub fn sessions_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = folder::profiles_in(folder)?;
    let is_part = |path: &PathBuf| {
        path.parent()
            .and_then(Path::extension)
            .is_some_and(|end| end == "kept")
    };
    found.retain(|path| !is_part(path));
    Ok(found)
}

/// Calls `found` with each window of a recording that is complete and was not taken yet, and notes that it was. With `all`, the last one may be
/// shorter. A file that cannot be read now is looked at later.
///
/// # Errors
/// If `found` fails.
pub fn each(
    path: &Path,
    state: &mut State,
    every: Nanos,
    all: bool,
    found: &mut impl FnMut(&Shipment<'_>) -> Result<()>,
) -> Result<()> {
    let Ok(meta) = Reader::describe(path) else {
        return Ok(());
    };
    let name = name_of(&meta);
    let mut since = state.get(&name).copied().unwrap_or(0);
    if since == ENDED {
        return Ok(());
    }
    let written = path.metadata().and_then(|found| found.modified());
    let is_quiet = written.is_ok_and(|written| {
        SystemTime::now()
            .duration_since(written)
            .is_ok_and(|for_long| for_long > ABANDONED)
    });
    let began = meta.started_unix_nanos;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let age = now.map_or(u64::MAX, |now| {
        (now.as_nanos() as u64).saturating_sub(began)
    });
    if !all && !is_quiet && age < since.saturating_add(every.0) && !is_done(path) {
        // Too young for a whole window.
        return Ok(());
    }
    let Ok(profile) = Profile::load_all(&files(path, &meta, since), |_, _| ()) else {
        return Ok(());
    };
    let is_over = profile.complete || is_quiet;
    let end = match is_over {
        true => profile.end.0 + 1,
        false => profile.end.0.saturating_sub(UNCERTAIN.0),
    };
    if let Some(kept) = profile.processes[0].kept_since
        && kept.0 > since
    {
        // What came before was dropped meanwhile.
        since = kept.0;
    }
    while since < end {
        let until = since.saturating_add(every.0);
        if until > end && !(is_over || all) {
            break;
        }
        let window = Window {
            since: Nanos(since),
            until: Nanos(until.min(end)),
        };
        let shipment = Shipment {
            profile: &profile,
            window,
            id: identity(&name, since),
        };
        found(&shipment)?;
        since = window.until.0;
        state.insert(name.clone(), since);
    }
    if is_over {
        state.insert(name, ENDED);
    }
    Ok(())
}

/// In the state: nothing more comes.
const ENDED: u64 = u64::MAX;

/// Whether the last block of a file says that the session has ended: then the rest is sent at once.
fn is_done(path: &Path) -> bool {
    let Ok(mut reader) = Reader::open(path) else {
        return false;
    };
    let mut is_done = false;
    while let Ok(Some(mut block)) = reader.next_block() {
        while let Some(event) = block.next_event() {
            is_done = matches!(event, nthbyte_profile::event::Event::End(_));
        }
    }
    is_done
}

/// The files with what was recorded since then, and with what was alive.
fn files(path: &Path, meta: &Meta, since: u64) -> Vec<PathBuf> {
    let starts = |meta: &Meta| meta.segment.map_or(0, |segment| segment.since_nanos);
    let mut files = vec![path.to_owned()];
    if starts(meta) <= since {
        return files;
    }
    for earlier in folder::earlier(path).into_iter().rev() {
        let start = Reader::describe(&earlier).map(|meta| starts(&meta));
        files.insert(0, earlier);
        if start.is_ok_and(|start| start <= since) {
            break;
        }
    }
    files
}

/// The name of a recording: no other one has it.
fn name_of(meta: &Meta) -> String {
    let host = meta.host.as_deref().unwrap_or_default();
    format!(
        "{host}/{}/{}/{}",
        meta.run.unwrap_or(0),
        meta.pid,
        meta.started_unix_nanos
    )
}

/// 128 bits of a hash (FNV-1a).
fn identity(name: &str, since: u64) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = name.bytes().chain(since.to_le_bytes());
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let hash = bytes.fold(start, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    hash.to_be_bytes()
}
