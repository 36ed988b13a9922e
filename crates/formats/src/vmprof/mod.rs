//! Converts VMProf's binary profiles to `.nthb` files.
//!
//! The layout is from `vmprof/reader.py` in the package `vmprof` (0.4 to 0.6, file versions 0 to 7) and from PyPy's
//! `_vmprof`; the allocation samples, object information and statistics of the collector are from the fork that "Low
//! Overhead Allocation Sampling in a Garbage Collected Virtual Machine" describes, as its converter
//! (`vmprof-firefox-converter`, branch `allocation_sampling_obj_info`) reads them.
//!
//! A file is a header of five words and then records, each a marker byte and its content. Names
//! of functions may come after the samples that use them. So samples are kept (as nodes of a
//! [tree](stacks)) until the whole file is read, and are written after that.
//!
//! Some data are not in the format. For samples without times, equal distances are assumed. The
//! size and the weight of a sampled object are assumed to be the period; so sums of bytes are
//! correct, and numbers of objects mean nothing.

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

/// Files larger than this after decompression are refused, to limit memory.
const LARGEST: u64 = 8 << 30;

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum VmprofError {
    /// The file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not a VMProf profile, or it is too damaged.
    #[error("{} is not a VMProf profile: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The new profile could not be written. The message names its path if that helps.
    #[error("{0}")]
    Write(#[from] io::Error),
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// VMProf's name of the interpreter: `cpython` or `pypy`.
    pub interpreter: String,
    /// Time samples in the VMProf file.
    pub time_samples: u64,
    /// Allocation samples in the VMProf file.
    pub allocation_samples: u64,
    /// Functions with a sample.
    pub functions: u64,
    /// A sentence for each part that could not be read. The profile's notes have them too.
    pub damage: Vec<String>,
}

/// Reads a VMProf profile, compressed or not, and writes it as a `.nthb` file. One step of
/// `progress` is one byte.
///
/// # Errors
/// See [`VmprofError`]. A damaged file is no error if its header can be read:
/// [`Imported::damage`] says what it lost.
pub fn import(
    path: &Path,
    out_path: &Path,
    progress: Progress<'_>,
) -> Result<Imported, VmprofError> {
    let (data, broken_off) = read(path)?;
    let mut recording = Recording::parse(&data, progress).map_err(|why| VmprofError::Foreign {
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

/// The whole decompressed file; and a sentence on the damage, if the compressed data are incomplete.
fn read(path: &Path) -> Result<(Vec<u8>, Option<String>), VmprofError> {
    let failed = |error| VmprofError::Read {
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
        return Err(VmprofError::Foreign { path, why });
    }
    Ok((data, broken_off))
}
