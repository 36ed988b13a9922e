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
use nthbyte_profile::event::{FrameKind, NodeId};
use nthbyte_profile::model::Function;

use binary::Binary;
pub use binary::MAX_DEBUG;
use names::{demangle, is_global_allocator, is_mangled};

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
    leave_out_allocators(profile);
}

/// Leaves out the functions at the inner end of stacks that only pass a request on to `malloc`, such as `operator new`: who
/// calls them is the one that allocates.
fn leave_out_allocators(profile: &mut Profile) {
    let functions = profile.functions.iter();
    let is_allocator: Vec<bool> = functions
        .map(|one| names::is_allocator(&one.name))
        .collect();
    let mut ends = vec![NodeId::ROOT];
    for (number, node) in (0..).zip(&profile.stacks).skip(1) {
        let frame = profile.frames[node.frame as usize];
        let inner = ends[node.parent.index()];
        let is_left_out = frame.kind == FrameKind::Native
            && is_allocator[frame.function as usize]
            && inner != NodeId::ROOT;
        ends.push(if is_left_out { inner } else { NodeId(number) });
    }
    profile.replace_stacks(profile.stacks.clone(), &ends);
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
    let names = without_global_allocator(names.unwrap_or_else(unknown));
    names.into_iter().map(function).collect()
}

/// Leaves out what was inlined into the compiler's functions of the global allocator: it is the allocator. Debug information
/// of lines only (`debug = "line-tables-only"`) names it without its namespace: `alloc`.
fn without_global_allocator(mut names: Vec<String>) -> Vec<String> {
    if let Some(at) = names.iter().rposition(|name| is_global_allocator(name)) {
        names.drain(..at);
    }
    names
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::Meta;
    use nthbyte_profile::event::{LabelSetId, Nanos, ThreadId};
    use nthbyte_profile::model::{Frame, SamplingId, StackNode, TimeSample};

    use super::*;

    #[test]
    fn what_is_inlined_into_the_global_allocator_is_left_out() {
        let left = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            without_global_allocator(names)
        };
        let chain = ["alloc<System>", "__rust_alloc", "alloc", "main"];
        assert_eq!(left(&chain), chain[1..]);
        let chain = ["alloc<System>", "__rustc::__rust_realloc"];
        assert_eq!(left(&chain), chain[1..]);
        for whole in [
            &["main", "__rust_begin_short_backtrace"][..],
            &["handler", "operator new"],
            &[],
        ] {
            assert_eq!(left(whole), whole);
        }
    }

    #[test]
    fn the_caller_of_the_allocator_allocates() {
        let mut profile = Profile::empty(Meta::default());
        for name in [
            "main",
            "operator new",
            "std::allocator<int>::allocate",
            "handler",
        ] {
            profile.functions.push(Function {
                name: name.to_owned(),
                file: String::new(),
                first_line: 0,
            });
        }
        profile.frames = (0..4)
            .map(|function| Frame {
                function,
                line: 0,
                kind: FrameKind::Native,
            })
            .collect();
        let node = |parent, frame| StackNode {
            parent: NodeId(parent),
            frame,
        };
        // main - allocate - new - handler - new; a stack of new only.
        profile.stacks.extend([
            node(0, 0),
            node(1, 2),
            node(2, 1),
            node(3, 3),
            node(4, 1),
            node(0, 1),
        ]);
        profile.cpu = (1..7)
            .map(|stack| TimeSample {
                time: Nanos(0),
                thread: ThreadId(0),
                stack: NodeId(stack),
                labels: LabelSetId::NONE,
                sampling: SamplingId(0),
            })
            .collect();
        leave_out_allocators(&mut profile);
        let ends: Vec<u32> = profile.cpu.iter().map(|sample| sample.stack.0).collect();
        assert_eq!(ends, [1, 1, 1, 4, 4, 6]);
    }
}
