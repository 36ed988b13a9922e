//! Code objects: their functions, and the lines of positions in them.

use super::Loader;
use crate::event::{Code, Lines};
use crate::lines::LineTable;
use crate::model::{Function, Image};

/// A code object's lines, decoded at the first use.
#[derive(Clone)]
pub(super) enum CodeLines {
    Direct,
    Raw(Box<[u8]>),
    Decoded(LineTable),
}

#[derive(Clone)]
pub(super) struct LoadedCode {
    pub(super) function: u32,
    pub(super) lines: CodeLines,
}

impl CodeLines {
    pub(super) fn line(&mut self, position: u32, first_line: u32) -> u32 {
        if let Self::Raw(table) = self {
            *self = Self::Decoded(LineTable::decode(table, first_line));
        }
        match self {
            Self::Decoded(table) => table.line(position),
            _ => position,
        }
    }
}

/// The file of a code object. PyPy has names of its own for some frozen modules: `<builtin>/frozen zipimport`.
fn file_of(name: &str) -> String {
    match name.strip_prefix("<builtin>/frozen ") {
        Some(module) => format!("<frozen {module}>"),
        None => name.to_owned(),
    }
}

impl Loader {
    pub(super) fn code(&mut self, code: &Code<'_>) {
        let function = Function {
            name: code.name.to_owned(),
            file: file_of(code.file),
            first_line: code.first_line,
        };
        let (function, lines) = match code.lines {
            Lines::Image(build_id) => (self.image(function, build_id), CodeLines::Direct),
            Lines::Direct => (self.function(function), CodeLines::Direct),
            Lines::LocationTable(table) => (self.function(function), CodeLines::Raw(table.into())),
        };
        self.code_numbers.define(self.codes.len() as u32);
        self.codes.push(LoadedCode { function, lines });
    }

    pub(super) fn function(&mut self, function: Function) -> u32 {
        self.functions.intern(&mut self.profile.functions, function)
    }

    /// The function that stands for an image. Two images may have the same path.
    pub(super) fn image(&mut self, function: Function, build_id: &str) -> u32 {
        let profile = &mut self.profile;
        let key = (function.file.clone(), build_id.to_owned());
        *self.images.entry(key).or_insert_with(|| {
            let number = profile.functions.len() as u32;
            profile.functions.push(function);
            profile.images.push(Image {
                function: number,
                build_id: build_id.to_owned(),
            });
            number
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_lines_at_the_first_use_and_later() {
        let table: &[u8] = &[0x80 | 11 << 3, 0, 0];
        let mut lines = CodeLines::Raw(table.into());
        assert_eq!((lines.line(0, 10), lines.line(0, 10)), (11, 11));
        assert_eq!(CodeLines::Direct.line(7, 10), 7);
    }

    #[test]
    fn images_of_one_path_are_told_apart_by_their_build_ids() {
        let mut loader = Loader::default();
        let function = || Function {
            name: String::new(),
            file: "/usr/lib/libc.so.6".to_owned(),
            first_line: 0,
        };
        let numbers = ["a", "b", "a"].map(|build_id| loader.image(function(), build_id));
        assert_eq!(numbers, [0, 1, 0]);
        let images = loader
            .profile
            .images
            .iter()
            .map(|image| (image.function, &*image.build_id));
        assert_eq!(images.collect::<Vec<_>>(), [(0, "a"), (1, "b")]);
    }

    #[test]
    fn frozen_modules_have_the_same_names_on_every_interpreter() {
        let external = "<frozen importlib._bootstrap_external>";
        assert_eq!(
            file_of("<builtin>/frozen importlib._bootstrap_external"),
            external
        );
        for same in [external, "<builtin>/app_io.py", "/a/b.py", ""] {
            assert_eq!(file_of(same), same);
        }
    }
}
