//! The tables that all threads share: stacks, frames, functions, libraries, strings and sources.

use std::collections::HashMap;

use nthbyte_profile::event::{FrameKind, NodeId};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::categories;
use super::export::Export;
use super::packages;
use super::sources::{is_library, native_functions};
use super::tables::{Column, object, same};
use crate::names;

/// A kind of resource in the format: a library. The other kinds belong to web pages.
const LIBRARY: u32 = 1;

/// Columns of the table of native symbols. It is empty, since the names are known already.
const NATIVE_SYMBOLS: [&str; 4] = ["libIndex", "address", "name", "functionSize"];

pub(super) struct Shared<'e, 'a>(pub &'e Export<'a>);

impl Serialize for Shared<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let export = self.0;
        let functions = Functions::of(export);
        object(serializer, |map| {
            map.serialize_entry("stackTable", &Stacks(export))?;
            map.serialize_entry("frameTable", &Frames(export))?;
            map.serialize_entry("funcTable", &functions)?;
            map.serialize_entry("resourceTable", &Bags(&functions.bags))?;
            map.serialize_entry("nativeSymbols", &Empty(&NATIVE_SYMBOLS))?;
            map.serialize_entry("sources", &SourceTable(export))?;
            map.serialize_entry("sourceLocationTable", &Empty(&["source", "line", "column"]))?;
            map.serialize_entry("stringArray", &export.strings.borrow().list)
        })
    }
}

/// A table without rows.
struct Empty(&'static [&'static str]);

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object(serializer, |map| {
            for column in self.0 {
                map.serialize_entry(column, &[(); 0])?;
            }
            map.serialize_entry("length", &0)
        })
    }
}

/// All stacks of the profile except the root, then one for each leaf.
struct Stacks<'e, 'a>(&'e Export<'a>);

impl Serialize for Stacks<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let export = self.0;
        let profile = export.profile;
        let nodes = || profile.stacks.iter().enumerate().skip(1);
        let frames = profile.frames.len() as u32;
        object(serializer, |map| {
            map.serialize_entry(
                "frame",
                &Column(|| {
                    let tops = export.top_of_leaf.iter().map(|top| frames + top);
                    nodes().map(|(_, node)| node.frame).chain(tops)
                }),
            )?;
            // The distance back to the caller's stack; 0 without a caller.
            map.serialize_entry(
                "prefixOffset",
                &Column(|| {
                    let offset = |at: usize, parent: NodeId| match parent {
                        NodeId::ROOT => 0,
                        // Node 0 is left out, so all indexes are one less.
                        parent => at - (parent.index() - 1),
                    };
                    let leaves = export.leaves.list.iter().enumerate();
                    nodes()
                        .map(move |(at, node)| offset(at - 1, node.parent))
                        .chain(leaves.map(move |(leaf, of)| {
                            offset(export.leaf_stack(leaf as u32) as usize, of.stack)
                        }))
                }),
            )?;
            map.serialize_entry(
                "length",
                &export.leaf_stack(export.leaves.list.len() as u32),
            )
        })
    }
}

/// All frames of the profile, then one for each type and lifetime.
struct Frames<'e, 'a>(&'e Export<'a>);

impl Serialize for Frames<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Export { profile, tops, .. } = self.0;
        let len = profile.frames.len() + tops.len();
        let functions = profile.functions.len() as u32;
        let frames = || profile.frames.iter();
        object(serializer, |map| {
            map.serialize_entry("address", &same(-1, len))?;
            map.serialize_entry("lib", &same(-1, len))?;
            map.serialize_entry("inlineDepth", &same(0, len))?;
            let categories = || {
                let kinds = frames().map(|frame| categories::of_kind(frame.kind));
                kinds.chain(tops.iter().map(|top| categories::of_lifetime(top.lifetime)))
            };
            let numbers = Column(|| categories().map(|of| of.number));
            map.serialize_entry("category", &numbers)?;
            let subcategories = Column(|| categories().map(|of| of.subcategory));
            map.serialize_entry("subcategory", &subcategories)?;
            map.serialize_entry(
                "func",
                &Column(|| {
                    let tops = 0..tops.len() as u32;
                    let tops = tops.map(|top| functions + top);
                    frames().map(|frame| frame.function).chain(tops)
                }),
            )?;
            map.serialize_entry("nativeSymbol", &same(None::<u32>, len))?;
            map.serialize_entry("innerWindowID", &same(0, len))?;
            map.serialize_entry(
                "line",
                &Column(|| {
                    let lines = frames().map(|frame| Some(frame.line).filter(|&line| line != 0));
                    lines.chain(tops.iter().map(|_| None))
                }),
            )?;
            map.serialize_entry("column", &same(None::<u32>, len))?;
            map.serialize_entry("originalLocation", &same(None::<u32>, len))?;
            map.serialize_entry("length", &len)
        })
    }
}

/// All functions of the profile, then one for each type and lifetime.
///
/// Python code is marked as "JavaScript", so that the page's filter of stacks separates it from
/// native code. Types are shown with either filter.
struct Functions {
    names: Vec<u32>,
    python: Vec<bool>,
    relevant: Vec<bool>,
    resources: Vec<i64>,
    sources: Vec<Option<u32>>,
    lines: Vec<Option<u32>>,
    /// Names of libraries and packages, by resource.
    bags: Vec<u32>,
}

impl Functions {
    fn of(export: &Export<'_>) -> Self {
        let profile = export.profile;
        let native = native_functions(profile);
        let mut python = vec![false; profile.functions.len()];
        for frame in &profile.frames {
            let is_python = matches!(frame.kind, FrameKind::Interpreted | FrameKind::Jit);
            python[frame.function as usize] |= is_python;
        }
        let mut resources = vec![-1; profile.functions.len()];
        let mut bags = Vec::new();
        let mut indexes: HashMap<&str, i64> = HashMap::new();
        let program = names::program(profile);
        for (at, function) in profile.functions.iter().enumerate() {
            let file = function.file.as_str();
            let bag = if native[at] {
                let is_library = !file.is_empty() && is_library(profile, file);
                is_library.then(|| file.rsplit('/').next().unwrap_or(file))
            } else {
                packages::of_file(file, program)
            };
            if let Some(bag) = bag {
                resources[at] = *indexes.entry(bag).or_insert_with(|| {
                    bags.push(export.string(bag));
                    bags.len() as i64 - 1
                });
            }
        }
        let first_line = |line: u32| Some(line).filter(|&line| line != 0);
        let mut functions = Self {
            names: profile
                .functions
                .iter()
                .map(|function| export.string(names::function(function)))
                .collect(),
            relevant: vec![false; python.len()],
            python,
            resources,
            sources: export.sources.of_function.clone(),
            lines: profile
                .functions
                .iter()
                .map(|function| first_line(function.first_line))
                .collect(),
            bags,
        };
        for top in &export.tops {
            let name = names::type_name(profile, top.type_id);
            let fate = names::lifetime(top.lifetime);
            let name = match &top.caller {
                Some(caller) => format!("{name} in {caller} ({fate})"),
                None => format!("{name} ({fate})"),
            };
            functions.names.push(export.string(&name));
            functions.python.push(false);
            functions.relevant.push(true);
            functions.resources.push(-1);
            functions.sources.push(None);
            functions.lines.push(None);
        }
        functions
    }
}

impl Serialize for Functions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let len = self.names.len();
        object(serializer, |map| {
            map.serialize_entry("name", &self.names)?;
            map.serialize_entry("isJS", &self.python)?;
            map.serialize_entry("relevantForJS", &self.relevant)?;
            map.serialize_entry("resource", &self.resources)?;
            map.serialize_entry("source", &self.sources)?;
            map.serialize_entry("lineNumber", &self.lines)?;
            map.serialize_entry("columnNumber", &same(None::<u32>, len))?;
            map.serialize_entry("originalLocation", &same(None::<u32>, len))?;
            map.serialize_entry("length", &len)
        })
    }
}

/// The table of resources: where functions come from. The page can collapse the functions of one.
struct Bags<'e>(&'e [u32]);

impl Serialize for Bags<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object(serializer, |map| {
            map.serialize_entry("name", self.0)?;
            map.serialize_entry("host", &same(None::<u32>, self.0.len()))?;
            map.serialize_entry("type", &same(LIBRARY, self.0.len()))?;
            map.serialize_entry("length", &self.0.len())
        })
    }
}

struct SourceTable<'e, 'a>(&'e Export<'a>);

impl Serialize for SourceTable<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sources = &self.0.sources;
        let len = sources.names.len();
        object(serializer, |map| {
            map.serialize_entry("id", &same(None::<&str>, len))?;
            map.serialize_entry("filename", &sources.names)?;
            map.serialize_entry("startLine", &same(1, len))?;
            map.serialize_entry("startColumn", &same(1, len))?;
            map.serialize_entry("sourceMapURL", &same(None::<u32>, len))?;
            map.serialize_entry("content", &sources.texts)?;
            map.serialize_entry("length", &len)
        })
    }
}
