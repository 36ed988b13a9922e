//! VMProf's binary profiles, read and written again as a `.nthb` file.
//!
//! The layout is that of `vmprof/reader.py` in the package `vmprof` (0.4 to 0.6, file versions 0 to 7)
//! and of PyPy's `_vmprof`; the allocation samples, object information and statistics of the
//! collector are those of the fork that "Low Overhead Allocation Sampling in a Garbage Collected
//! Virtual Machine" describes, as its converter (`vmprof-firefox-converter`, branch
//! `allocation_sampling_obj_info`) reads them.
//!
//! A file is a header of five words and then records, each a marker byte and its content. Names
//! of functions may come after the samples that use them, so samples are kept (as nodes of a
//! [tree](stacks)) until the file is read, and written after that.
//!
//! What the format does not say, and what stands for it: a sample without a time gets one as if
//! all came at equal distances; the size of a sampled object is taken to be the period, and so is
//! its weight, which makes sums of bytes right and numbers of objects meaningless.

mod bytes;
mod emit;
mod names;
mod recording;
mod stacks;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::Progress;
use recording::Recording;

/// Larger files, after decompression, are refused rather than read into memory.
const LARGEST: u64 = 8 << 30;

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not a VMProf profile, or too damaged to be read.
    #[error("{} is not a VMProf profile: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The new profile could not be written. The message names its path where that matters.
    #[error("{0}")]
    Write(#[from] io::Error),
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Interpreter, as VMProf calls it: `cpython` or `pypy`.
    pub interpreter: String,
    /// Time samples in the VMProf file.
    pub time_samples: u64,
    /// Allocation samples in the VMProf file.
    pub allocation_samples: u64,
    /// Functions with a sample.
    pub functions: u64,
    /// What could not be read, a sentence each; also among the profile's notes.
    pub damage: Vec<String>,
}

/// Reads a VMProf profile, compressed or not, and writes it as a `.nthb` file. One step of
/// `progress` is one byte.
///
/// # Errors
/// See [`Error`]. A damaged file is no error as long as its header can be read:
/// [`Imported::damage`] says what is lost.
pub fn import(path: &Path, out_path: &Path, progress: Progress<'_>) -> Result<Imported, Error> {
    let (data, broken_off) = read(path)?;
    let mut recording = Recording::parse(&data, progress).map_err(|why| Error::Foreign {
        path: path.to_owned(),
        why,
    })?;
    recording.damage.extend(broken_off);
    let out = nthbyte_profile::create(out_path)?;
    let functions = emit::write(&recording, path, out)?;
    progress(data.len() as u64, data.len() as u64);
    Ok(Imported {
        interpreter: recording.interpreter,
        time_samples: recording.time_samples.len() as u64,
        allocation_samples: recording.allocations.len() as u64,
        functions,
        damage: recording.damage,
    })
}

/// The whole file, decompressed; and, if the compressed data breaks off, a sentence about it.
fn read(path: &Path) -> Result<(Vec<u8>, Option<String>), Error> {
    let failed = |error| Error::Read {
        path: path.to_owned(),
        error,
    };
    let mut data = Vec::new();
    let mut file = File::open(path).map_err(failed)?;
    (&mut file)
        .take(LARGEST + 1)
        .read_to_end(&mut data)
        .map_err(failed)?;
    let mut broken_off = None;
    if data.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        let mut decoder = MultiGzDecoder::new(data.as_slice()).take(LARGEST + 1);
        if let Err(error) = decoder.read_to_end(&mut plain) {
            broken_off = Some(format!(
                "the compressed file is damaged after {} bytes of content: {error}",
                plain.len()
            ));
        }
        data = plain;
    }
    if data.len() as u64 > LARGEST {
        let why = "the file is larger than 8 GiB".to_owned();
        let path = path.to_owned();
        return Err(Error::Foreign { path, why });
    }
    Ok((data, broken_off))
}
