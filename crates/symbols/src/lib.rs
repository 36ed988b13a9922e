//! The functions of native code in a profile, looked up when it is read.
//!
//! ```text
//! profile: image, build id, address ─▶ files: the binary, its debug file, debuginfod's cache
//!                                        │ the same build id
//!                                        ▼
//!                                      binary: symbol table, debug information ─▶ names ─▶ functions
//! ```
//!
//! # What this crate guarantees
//!
//! - A file is used only if it has the image's build id. Otherwise a frame is shown as `library.so+0x1234`.
//! - Nothing is downloaded, and no file is opened but those that have the image's path or its build id in their name, and
//!   the supplement that a debug file names. Only ordinary files are.
//! - A damaged or hostile file costs bounded memory ([`MAX_DEBUG`]) and leads to wrong names at worst.
//!
//! # What this crate does not do
//!
//! It does not unwind, and nothing of it is in the profiled process. It reads no lines, and no split debug information
//! (`.dwo`). The file of a function is its image: its source file is rarely on the machine where a profile is read.

mod binary;
mod files;
mod names;

use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::model::Function;

use binary::Binary;
pub use binary::MAX_DEBUG;
use names::{demangle, is_mangled};

/// Looks up the functions of all frames in images.
pub fn resolve(profile: &mut Profile) {
    let places = profile.unknown_places();
    if places.is_empty() {
        return;
    }
    let mut binaries: HashMap<u32, Vec<Binary>> = HashMap::new();
    let mut all = Vec::with_capacity(places.len());
    for (_, place) in places {
        let path = profile.image_path(place.image);
        let build_id = &profile.images[place.image as usize].build_id;
        let binaries = binaries
            .entry(place.image)
            .or_insert_with(|| files::find(path, build_id));
        all.push(functions(binaries, path, place.address));
    }
    profile.replace_frames(all);
}

/// The functions at an address, innermost first. Never empty.
fn functions(binaries: &[Binary], path: &str, address: u32) -> Vec<Function> {
    let of_debug = binaries.iter().map(|binary| binary.inlined(address));
    let mut names = of_debug.into_iter().find(|names| !names.is_empty());
    let symbol = binaries.iter().find_map(|binary| binary.symbol(address));
    if let Some(symbol) = symbol {
        match &mut names {
            // Debug information names a local function without its namespace.
            Some(names) if is_mangled(symbol) => {
                if let Some(outermost) = names.last_mut() {
                    *outermost = demangle(symbol);
                }
            }
            Some(_) => (),
            None => names = Some(vec![demangle(symbol)]),
        }
    }
    let unknown = || {
        let name = path.rsplit('/').next().unwrap_or_default();
        vec![format!("{name}+{address:#x}")]
    };
    let function = |name| Function {
        name,
        file: path.to_owned(),
        first_line: 0,
    };
    names
        .unwrap_or_else(unknown)
        .into_iter()
        .map(function)
        .collect()
}
