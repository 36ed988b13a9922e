//! The package that a file of Python code belongs to, by its path; and who allocates native memory.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId};

use super::sources::is_library;
use crate::names;

/// The name for modules of Python itself.
const STANDARD_LIBRARY: &str = "Python's library";

/// The folders that packages are installed in.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// The package of a file: an installed package, Python's library, or the program. `None` for code that is in no file.
pub(super) fn of_file<'a>(file: &'a str, program: &'a str) -> Option<&'a str> {
    let mut installed = INSTALLED.iter().filter_map(|folder| {
        let at = file.rfind(folder)?;
        let rest = &file[at + folder.len()..];
        Some(rest.split('/').next().unwrap_or(rest))
    });
    if let Some(package) = installed.next_back() {
        let name = package.strip_suffix(".py").unwrap_or(package);
        return Some(name).filter(|name| !name.is_empty());
    }
    if file.starts_with("<frozen ") || is_of_library(file) {
        return Some(STANDARD_LIBRARY);
    }
    (!file.is_empty() && !file.starts_with('<')).then_some(program)
}

/// Whether a path has a folder like `lib/python3.13`, `lib/pypy3.11` or `lib-python/3`.
fn is_of_library(file: &str) -> bool {
    let folders: Vec<&str> = file.split('/').collect();
    let folders = &folders[..folders.len().saturating_sub(1)];
    folders.windows(2).any(|pair| match pair {
        ["lib", name] => ["python", "pypy"].iter().any(|start| {
            let version = name.strip_prefix(start);
            version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
        }),
        ["lib-python", _] => true,
        _ => false,
    }) || folders.contains(&"lib_pypy")
}

/// A library's name without its folder and without what follows the first dot.
pub(super) fn of_library(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.')
        .next()
        .filter(|stem| !stem.is_empty())
        .unwrap_or(name)
}

/// Who allocates native memory: the library of the innermost native frame, if there are native frames; else the
/// package of the innermost frame.
pub(super) struct Callers<'a> {
    profile: &'a Profile,
    /// By stack node, as far as it was asked for. The caller is the package or library of the innermost frame that has one.
    known: Vec<Option<Option<&'a str>>>,
}

impl<'a> Callers<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self {
            profile,
            known: vec![None; profile.stacks.len()],
        }
    }

    /// `None` for an empty stack, and for one of code that is in no file.
    pub(super) fn of_stack(&mut self, stack: NodeId) -> Option<String> {
        let mut asked = Vec::new();
        let mut at = stack;
        let found = loop {
            if at == NodeId::ROOT {
                break None;
            }
            if let Some(known) = self.known[at.index()] {
                break known;
            }
            asked.push(at);
            let node = self.profile.stacks[at.index()];
            if let Some(name) = self.of_frame(node.frame) {
                break Some(name);
            }
            at = node.parent;
        };
        for node in asked {
            self.known[node.index()] = Some(found);
        }
        found.map(str::to_owned)
    }

    fn of_frame(&self, frame: u32) -> Option<&'a str> {
        let frame = self.profile.frames[frame as usize];
        let file = self.profile.functions[frame.function as usize]
            .file
            .as_str();
        if frame.kind == FrameKind::Native {
            return (!file.is_empty() && is_library(self.profile, file)).then(|| of_library(file));
        }
        of_file(file, names::program(self.profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_by_their_paths() {
        let package = |file| of_file(file, "app.py");
        let docutils = "/venv/lib/python3.11/site-packages/docutils/nodes.py";
        assert_eq!(package(docutils), Some("docutils"));
        assert_eq!(
            package("/usr/lib/python3/dist-packages/six.py"),
            Some("six")
        );
        for file in [
            "/usr/lib/python3.13/json/decoder.py",
            "/opt/pypy/lib/pypy3.11/re.py",
            "/usr/lib/pypy3.9/lib-python/3/re.py",
            "<frozen importlib._bootstrap>",
        ] {
            assert_eq!(package(file), Some(STANDARD_LIBRARY), "{file}");
        }
        for file in ["/srv/app/app.py", "app.py", "/srv/lib/python/x.py"] {
            assert_eq!(package(file), Some("app.py"), "{file}");
        }
        assert_eq!(package("<string>"), None);
        assert_eq!(package(""), None);
        let umath = "/x/_umath.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(of_library(umath), "_umath");
    }
}
