//! Source files: their names and, if the user asks for it, their text.
//!
//! The profile names the files, and it may come from another machine or be forged. It has no hashes
//! of the sources, so the files on this machine cannot be compared with them. So nothing is read unless
//! [`FirefoxOptions::sources`](super::FirefoxOptions::sources) is set, and then only regular files with a Python suffix.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use nthbyte_profile::Profile;
use nthbyte_profile::event::FrameKind;

use crate::strings::Strings;

const LARGEST_FILE: u64 = 1 << 20;
const LARGEST_SUM: u64 = 32 << 20;
const SUFFIXES: [&str; 4] = ["py", "pyi", "pyw", "pyx"];

/// The profile's table of sources.
pub(super) struct Sources {
    /// Index of the file's name in the string array, by source.
    pub names: Vec<u32>,
    /// Text, by source; `None` if it is unknown.
    pub texts: Vec<Option<String>>,
    /// The source of each function of the profile.
    pub of_function: Vec<Option<u32>>,
}

impl Sources {
    /// The files of all functions, with their text if `texts` is true.
    pub fn of(profile: &Profile, texts: bool, strings: &mut Strings) -> Self {
        let native = native_functions(profile);
        let mut indexes: HashMap<&str, u32> = HashMap::new();
        let mut sources = Self {
            names: Vec::new(),
            texts: Vec::new(),
            of_function: Vec::with_capacity(profile.functions.len()),
        };
        let mut left = LARGEST_SUM;
        for (function, native) in profile.functions.iter().zip(native) {
            let file = function.file.as_str();
            if file.is_empty() || (native && is_library(profile, file)) {
                sources.of_function.push(None);
                continue;
            }
            let index = *indexes.entry(file).or_insert_with(|| {
                let text = if texts { read(file, &mut left) } else { None };
                sources.names.push(strings.index(file));
                sources.texts.push(text);
                sources.names.len() as u32 - 1
            });
            sources.of_function.push(Some(index));
        }
        sources
    }
}

/// By function: whether it is machine code of a library.
pub(super) fn native_functions(profile: &Profile) -> Vec<bool> {
    let mut native = vec![false; profile.functions.len()];
    for frame in &profile.frames {
        native[frame.function as usize] |= frame.kind == FrameKind::Native;
    }
    native
}

/// Whether a file of native code is a library or executable, not a source file.
pub(super) fn is_library(profile: &Profile, file: &str) -> bool {
    let mut images = 0..profile.images.len() as u32;
    if images.any(|image| profile.image_path(image) == file) {
        return true;
    }
    let name = file.rsplit('/').next().unwrap_or_default();
    name.contains(".so") || !name.contains('.')
}

fn read(file: &str, left: &mut u64) -> Option<String> {
    let path = Path::new(file);
    let suffix = path.extension()?.to_str()?;
    if !SUFFIXES.contains(&suffix) {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_FILE.min(*left) {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    *left = left.saturating_sub(text.len() as u64);
    Some(text)
}
