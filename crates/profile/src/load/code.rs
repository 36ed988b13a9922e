//! Code objects: their functions, and the lines of positions in them.

use super::Loader;
use crate::event::{Code, Lines};
use crate::lines::LineTable;
use crate::model::{Function, Image};

/// A code object's lines, decoded at the first use.
pub(super) enum CodeLines {
    Direct,
    Raw(Box<[u8]>),
    Decoded(LineTable),
}

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

impl Loader {
    pub(super) fn code(&mut self, code: &Code<'_>) {
        let function = Function {
            name: code.name.to_owned(),
            file: code.file.to_owned(),
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

    fn function(&mut self, function: Function) -> u32 {
        self.functions.intern(&mut self.profile.functions, function)
    }

    /// The function that stands for an image. Two images may have the same path.
    fn image(&mut self, function: Function, build_id: &str) -> u32 {
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
