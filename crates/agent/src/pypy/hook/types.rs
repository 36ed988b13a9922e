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
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// RPython's names, by number.
    native: FxHashMap<u32, Box<str>>,
    ids: FxHashMap<(u32, Option<u32>), TypeId>,
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

    /// Adds what is known of the classes of instances.
    pub fn set_classes(&mut self, classes: Option<Classes>) {
        self.classes = classes;
    }

    /// The number of an instance's class, if it can be told. See [`Classes::of`].
    ///
    /// # Safety
    /// As for [`Classes::of`].
    pub unsafe fn class(&mut self, number: u32, instance: usize) -> Option<u32> {
        // SAFETY: passed on to the caller.
        unsafe { self.classes.as_mut()?.of(number, instance) }
    }

    /// The number in the profile of a type, or of an instance's class; "not known" for a number that is
    /// no type.
    pub fn id(&mut self, recorder: &mut Recorder, number: u32, class: Option<u32>) -> TypeId {
        if let Some(&known) = self.ids.get(&(number, class)) {
            return known;
        }
        let Some(native) = self.native.get(&number) else {
            return TypeId::UNKNOWN;
        };
        if self.ids.try_reserve(1).is_err() {
            return TypeId::UNKNOWN;
        }
        let name = match (class, &self.classes) {
            (Some(class), Some(classes)) => classes.name(class),
            _ => python_name(native),
        };
        let Some(id) = recorder.type_name(&TypeName {
            name: &name,
            native,
        }) else {
            return TypeId::UNKNOWN;
        };
        self.ids.insert((number, class), id);
        id
    }

    /// Forgets which types the profile has: it is a new one.
    pub fn forget(&mut self) {
        self.ids.clear();
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
        assert_eq!(types.native.len(), 2);
        assert_eq!(&*types.native[&8], "JITFRAME");
        assert_eq!(
            &*types.native[&72],
            "pypy.objspace.std.intobject.W_IntObject"
        );
    }
}
