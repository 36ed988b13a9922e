//! Names of the collector's types.
//!
//! `gc.get_typeids_z()` holds a line for each type, `member12   GcStruct pypy.….W_IntObject { … }`, and
//! `gc.get_typeids_list()` the numbers that stand in objects' headers, in the same order.

use nthbyte_profile::event::{TypeId, TypeName};
use rustc_hash::FxHashMap;

use super::classes::Classes;
use super::python_names::python_name;
use crate::session::Recorder;

/// The types of this interpreter, and which of them the profile has.
#[derive(Debug, Default)]
pub struct Types {
    /// RPython's names, by number.
    native: FxHashMap<u32, Box<str>>,
    ids: FxHashMap<u32, TypeId>,
    classes: Option<Classes>,
}

impl Types {
    /// Reads both tables.
    #[must_use]
    pub fn parse(text: &str, numbers: &[u32]) -> Self {
        let names = text.lines().map(native_name);
        let native = numbers
            .iter()
            .copied()
            .zip(names)
            .filter(|&(number, name)| number != 0 && name != "?");
        Self {
            native: native.map(|(number, name)| (number, name.into())).collect(),
            ids: FxHashMap::default(),
            classes: None,
        }
    }

    /// How many types have a name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.native.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.native.is_empty()
    }

    /// Adds what is known of the classes of instances.
    pub fn set_classes(&mut self, classes: Option<Classes>) {
        self.classes = classes;
    }

    /// What is known of the classes of instances.
    pub fn classes(&mut self) -> Option<&mut Classes> {
        self.classes.as_mut()
    }

    /// The number of the type in the profile; "not known" for a number that is no type.
    pub fn id(&mut self, recorder: &mut Recorder, number: u32) -> TypeId {
        if let Some(&known) = self.ids.get(&number) {
            return known;
        }
        let Some(native) = self.native.get(&number) else {
            return TypeId::UNKNOWN;
        };
        if self.ids.try_reserve(1).is_err() {
            return TypeId::UNKNOWN;
        }
        let name = python_name(native);
        let Some(id) = recorder.type_name(&TypeName {
            name: &name,
            native,
        }) else {
            return TypeId::UNKNOWN;
        };
        self.ids.insert(number, id);
        id
    }

    /// Forgets which types the profile has: it is a new one.
    pub fn forget(&mut self) {
        self.ids.clear();
        if let Some(classes) = &mut self.classes {
            classes.forget();
        }
    }
}

/// `member12   GcStruct a.b.C { x, y }` → `a.b.C`; `member8  GcArray of * GcStruct object { typeptr }` →
/// `GcArray of * object`.
fn native_name(line: &str) -> &str {
    let text = line
        .split_once(char::is_whitespace)
        .map_or("?", |(_, text)| text.trim());
    let text = text.split(" {").next().unwrap_or(text).trim();
    text.strip_prefix("GcStruct ").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_numbers_go_together() {
        let text = "member0    ?\nmember1    GcStruct JITFRAME { jf_frame_info }\n\
                    member2    GcStruct pypy.objspace.std.intobject.W_IntObject { super, inst_intval }\n";
        let types = Types::parse(text, &[0, 8, 72]);
        assert_eq!(types.len(), 2);
        assert_eq!(&*types.native[&8], "JITFRAME");
        assert_eq!(
            &*types.native[&72],
            "pypy.objspace.std.intobject.W_IntObject"
        );
    }
}
