//! The functions of native code in a profile, looked up when it is read.
//!
//! ```text
//! profile: image, build id, address ─▶ binary: the file, its debug file, debuginfod's cache
//!                                        │ the same build id
//!                                        ▼
//!                                      symbol table, debug information ─▶ names ─▶ functions
//! ```
//!
//! # What this crate guarantees
//!
//! - A file is used only if it has the image's build id. Otherwise a frame is shown as `library.so+0x1234`. In a stripped
//!   file, a function without a name is shown like that too, by its first address.
//! - Nothing is downloaded, and no file is opened but those that have the image's path or its build id in their name, and
//!   the supplement that a debug file names. Only ordinary files are.
//! - A damaged or hostile file costs bounded memory ([`MAX_DEBUG`]) and leads to wrong names at worst.
//!
//! # What this crate does not do
//!
//! It does not unwind, and nothing of it is in the profiled process. It reads no lines, and no split debug information
//! (`.dwo`). The file of a function is its image: its source file is rarely on the machine where a profile is read.

mod binary;
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
            .or_insert_with(|| binary::find(path, build_id));
        all.push(functions(binaries, path, place.address));
    }
    profile.replace_frames(all);
    leave_out_allocators(profile);
}

/// Leaves out the functions at the inner end of allocations' stacks that only pass a request on to `malloc`, such as
/// `operator new`: who calls them is the one that allocates. They take time, so in time samples they stay.
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
    profile.move_allocations(&ends);
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
        let start = binaries.iter().find_map(|binary| binary.start(address));
        vec![match path.starts_with('/') {
            true => format!("{name}+{:#x}", start.unwrap_or(address.into())),
            // The kernel's code in each process.
            false => name.to_owned(),
        }]
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
    use nthbyte_profile::event::{LabelSetId, Nanos, ThreadId, TypeId};
    use nthbyte_profile::model::{
        Frame, Lifetime, Sample, SamplingId, Shape, StackNode, TimeSample,
    };

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
    fn a_function_without_a_name_is_its_first_address() {
        let binaries = [Binary::of_unnamed(vec![(0x100, 0x20), (0x200, 8)])];
        let name = |path: &str, address: u32| {
            let found = functions(&binaries, path, address);
            assert_eq!((found.len(), &*found[0].file), (1, path));
            found[0].name.clone()
        };
        assert_eq!(name("/lib/a.so", 0x100), "a.so+0x100");
        assert_eq!(name("/lib/a.so", 0x11f), "a.so+0x100");
        assert_eq!(name("/lib/a.so", 0x120), "a.so+0x120");
        assert_eq!(name("/lib/a.so", 0xff), "a.so+0xff");
        assert_eq!(name("/lib/a.so", 0x207), "a.so+0x200");
        assert_eq!(name("[vdso]", 0x300), "[vdso]");
    }

    /// Functions of a stripped copy of this test are known by the tables for unwinding.
    #[test]
    fn functions_of_a_stripped_file_begin_somewhere() {
        let folder = tempfile::tempdir().unwrap();
        let stripped = folder.path().join("stripped");
        let this = std::env::current_exe().unwrap();
        let done = std::process::Command::new("strip")
            .arg("-o")
            .args([&stripped, &this])
            .status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("not tested: there is no strip");
            return;
        }
        let whole = Binary::any(&this);
        let stripped = Binary::any(&stripped);
        // The function that a linker's name is of, in the middle.
        let named = whole.named("a_function_without_a_name");
        assert!(!named.is_empty());
        for (start, size) in named {
            let address = u32::try_from(start + size / 2).unwrap();
            assert_eq!(stripped.start(address), Some(start));
            assert_eq!(whole.start(address), None);
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
        for stack in 1..7 {
            profile.samples.push(Sample {
                time: Nanos(0),
                thread: ThreadId(0),
                stack: NodeId(stack),
                shape: Shape {
                    size: 1,
                    block: 1,
                    points: 1,
                    sampling: SamplingId(0),
                },
                type_id: TypeId::UNKNOWN,
                labels: LabelSetId::NONE,
                lifetime: Lifetime::ALL[0],
                freed: None,
            });
        }
        leave_out_allocators(&mut profile);
        let ends: Vec<u32> = profile
            .samples
            .iter()
            .map(|sample| sample.stack.0)
            .collect();
        assert_eq!(ends, [1, 1, 1, 4, 4, 6]);
        // They take time.
        let of_time: Vec<u32> = profile.cpu.iter().map(|sample| sample.stack.0).collect();
        assert_eq!(of_time, [1, 2, 3, 4, 5, 6]);
    }
}
