//! Leaves out the frames that are not the program's: the machinery of `import`, and the launcher.
//!
//! A module that is imported is then called by the one that imports it, and the program's first
//! frame is its own. What the machinery itself allocates, such as the code objects of the modules
//! that it reads, belongs to one frame [`IMPORT`] below the importing function; what the launcher
//! allocates, to [`LAUNCHER`]. So no figure is attributed to other code, and sums do not change.

use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId};
use nthbyte_profile::model::{Frame, Function, StackNode};

/// The name of the frame for the machinery of `import`.
pub const IMPORT: &str = "[import]";

/// The name of the frame for the launcher.
pub const LAUNCHER: &str = "[launcher]";

/// The files of the machinery of `import`, by the ends of their paths.
const IMPORT_FILES: [&str; 6] = [
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
    "<frozen zipimport>",
    "/importlib/_bootstrap.py",
    "/importlib/_bootstrap_external.py",
    "/importlib/__init__.py",
];

/// The launcher's files, by the ends of their paths: the files of Python's `-m`, and the command.
const LAUNCHER_FILES: [&str; 3] = ["<frozen runpy>", "/runpy.py", "/bin/nthbyte"];

/// The modules of the package `nthbyte` that others import. They belong to the launcher, and so do those whose names begin with `_`.
const PUBLIC_MODULES: [&str; 2] = ["check", "tune"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Program,
    Import,
    Launcher,
}

/// Removes these frames from all stacks of a profile.
pub fn fold(profile: &mut Profile) {
    fold_parts(profile, part);
}

/// Removes the frames of the launcher only.
pub fn fold_launcher(profile: &mut Profile) {
    fold_parts(profile, |file| match part(file) {
        Part::Launcher => Part::Launcher,
        Part::Import | Part::Program => Part::Program,
    });
}

fn fold_parts(profile: &mut Profile, part: fn(&str) -> Part) {
    let functions: Vec<Part> = profile
        .functions
        .iter()
        .map(|function| part(&function.file))
        .collect();
    if functions.iter().all(|&part| part == Part::Program) {
        return;
    }
    let mut tree = Folded {
        stacks: vec![profile.stacks[0]],
        nodes: HashMap::default(),
    };
    // For each old node: the new node of the nearest frame that stays, whether all frames up to
    // here are the launcher's, and the part that it belongs to.
    let mut outer = Vec::with_capacity(profile.stacks.len());
    outer.push((NodeId::ROOT, true, Part::Program));
    // The new stack of samples whose stack is the old node.
    let mut new = Vec::with_capacity(profile.stacks.len());
    new.push(NodeId::ROOT);
    let old = std::mem::take(&mut profile.stacks);
    let mut frames = [None; 2];
    for &node in &old[1..] {
        let (caller, is_start, around) = outer[node.parent.index()];
        let frame = profile.frames[node.frame as usize];
        let part = match functions[frame.function as usize] {
            // The interpreter's own functions, between these and the next frame of Python.
            Part::Program if frame.kind == FrameKind::Native => around,
            // Only the outermost ones: a program may use runpy itself.
            Part::Launcher if !is_start => Part::Program,
            part => part,
        };
        if part == Part::Program {
            let node = tree.place(caller, node.frame);
            outer.push((node, false, part));
            new.push(node);
            continue;
        }
        outer.push((caller, is_start && part == Part::Launcher, part));
        let frame = *frames[usize::from(part == Part::Launcher)]
            .get_or_insert_with(|| add_frame(profile, part));
        new.push(tree.place(caller, frame));
    }
    profile.replace_stacks(tree.stacks, &new);
}

/// The names of the frames that [`fold`] has added to this profile.
pub(crate) fn folded(profile: &Profile) -> Vec<&'static str> {
    let functions = &profile.functions;
    // They are at the end.
    let last = &functions[functions.len().saturating_sub(2)..];
    let names = [IMPORT, LAUNCHER].into_iter();
    let is_there = |name: &&str| {
        let mut last = last.iter();
        last.any(|function| function.file.is_empty() && function.name == *name)
    };
    names.filter(is_there).collect()
}

/// Whether it is the name of a frame that stands for removed ones.
pub(crate) fn is_name(name: &str) -> bool {
    [IMPORT, LAUNCHER].contains(&name)
}

/// The name that stands for the functions of a file, if [`fold`] removes them.
pub(crate) fn stands_for(file: &str) -> Option<&'static str> {
    match part(file) {
        Part::Program => None,
        Part::Import => Some(IMPORT),
        Part::Launcher => Some(LAUNCHER),
    }
}

fn part(file: &str) -> Part {
    let is_one = |files: &[&str]| files.iter().any(|end| file.ends_with(end));
    if is_one(&IMPORT_FILES) {
        Part::Import
    } else if is_one(&LAUNCHER_FILES) || is_of_package(file) {
        Part::Launcher
    } else {
        Part::Program
    }
}

/// Whether a file is a module of the package `nthbyte`.
fn is_of_package(file: &str) -> bool {
    let Some((folder, name)) = file.rsplit_once('/') else {
        return false;
    };
    let module = name.strip_suffix(".py").unwrap_or_default();
    let is_module = module.starts_with('_') || PUBLIC_MODULES.contains(&module);
    (folder == "nthbyte" || folder.ends_with("/nthbyte")) && is_module
}

fn add_frame(profile: &mut Profile, part: Part) -> u32 {
    let name = match part {
        Part::Launcher => LAUNCHER,
        Part::Import | Part::Program => IMPORT,
    };
    profile.functions.push(Function {
        name: name.to_owned(),
        file: String::new(),
        first_line: 0,
    });
    profile.frames.push(Frame {
        function: profile.functions.len() as u32 - 1,
        line: 0,
        kind: FrameKind::Note,
    });
    profile.frames.len() as u32 - 1
}

/// The new stack tree.
struct Folded {
    stacks: Vec<StackNode>,
    nodes: HashMap<StackNode, NodeId, foldhash::fast::RandomState>,
}

impl Folded {
    fn place(&mut self, parent: NodeId, frame: u32) -> NodeId {
        let node = StackNode { parent, frame };
        let stacks = &mut self.stacks;
        *self.nodes.entry(node).or_insert_with(|| {
            stacks.push(node);
            // There are at most as many nodes as before.
            NodeId(stacks.len() as u32 - 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_has_these_modules() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/nthbyte");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_module = path.extension().is_some_and(|of| of == "py");
            let path = path.to_str().unwrap();
            assert!(!is_module || is_of_package(path), "{path}");
        }
    }

    #[test]
    fn a_module_of_another_package_is_the_programs() {
        for (file, of_launcher) in [
            ("/srv/lib/nthbyte/_children.py", true),
            ("nthbyte/_session.py", true),
            ("/srv/notnthbyte/_session.py", false),
            ("/srv/nthbyte/views.py", false),
            ("/srv/nthbyte/sub/_session.py", false),
            ("_session.py", false),
        ] {
            assert_eq!(stands_for(file) == Some(LAUNCHER), of_launcher, "{file}");
        }
    }
}
