//! Names of the collector's types.
//!
//! `gc.get_typeids_z()` is a text, compressed by zlib, with a line for each type, such as `member12   GcStruct
//! pypy.….W_IntObject { … }`. `gc.get_typeids_list()` has the numbers in objects' headers, in the same order.

use std::borrow::Cow;
use std::io::BufRead;
use std::ops::Range;

use nthbyte_host::process::CachedProbe;
use nthbyte_profile::event::{TypeId, TypeName};
use nthbyte_rpython::backlog::TypeIds;
use nthbyte_session::Recording;

use super::classes::{Classes, KnownClass, Recent};
use super::python_names::{is_of_python, python_name};

/// The types of this interpreter.
#[derive(Debug, Default)]
pub struct Types {
    /// The names of types in RPython, one after the other.
    natives: Vec<u8>,
    /// The number of each type with a name and the place of the name, by number.
    places: Vec<(u32, Range<u32>)>,
    /// The number of each type, in the collector's order.
    numbers: Vec<u32>,
    classes: Option<Classes>,
    /// Young instances of known classes, until the first minor collection.
    probe_instances: Vec<ProbeInstance>,
}

/// An instance whose class is known. A few of them show where an instance refers to its class.
#[derive(Debug)]
pub struct ProbeInstance {
    /// The address of the instance when it is old.
    pub instance: usize,
    /// The address of its class when the class is old.
    pub class: usize,
    /// `__qualname__` of the class.
    pub qualified_name: Box<[u8]>,
}

impl Types {
    /// Keeps the names of the types. `text` has a line for each of `numbers`; 0 is not a type. The types behind an error
    /// of `text` have no names.
    #[must_use]
    pub fn new(mut text: impl BufRead, numbers: &[u32]) -> Self {
        let (mut natives, mut places) = (Vec::new(), Vec::new());
        let mut line = Vec::new();
        for &number in numbers {
            line.clear();
            if !text.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                break;
            }
            let native = native_name(&line);
            let place = u32::try_from(natives.len())
                .and_then(|from| Ok(from..u32::try_from(natives.len() + native.len())?));
            if let (Ok(place), true) = (place, number != 0 && native != b"?") {
                natives.extend_from_slice(native);
                places.push((number, place));
            }
        }
        places.sort_by_key(|&(number, _)| number);
        Self {
            natives,
            places,
            numbers: numbers.to_vec(),
            ..Self::default()
        }
    }

    /// The name of a type in RPython.
    fn native(&self, number: u32) -> Option<Cow<'_, str>> {
        let index = self
            .places
            .binary_search_by_key(&number, |&(number, _)| number);
        let Range { start, end } = self.places[index.ok()?].1;
        Some(String::from_utf8_lossy(
            &self.natives[start as usize..end as usize],
        ))
    }

    /// The Python name of an object's type, and whether Python can have the object. In a copy of the process that is about to
    /// end: nothing is moved or freed any more.
    ///
    /// # Safety
    /// It is an object.
    pub unsafe fn name_of(&mut self, object: usize) -> (String, bool) {
        // SAFETY: the caller's promise: an object begins with its type's number.
        let number = unsafe { (object as *const u32).read() };
        // SAFETY: the caller's promise.
        let class = unsafe { self.class(number, object, &mut Recent::default()) };
        let Some(native) = self.native(number) else {
            return ("object of PyPy".to_owned(), false);
        };
        let name = match (class, &self.classes) {
            (Some(class), Some(classes)) => classes.name(class),
            _ => python_name(&native),
        };
        (name, is_of_python(&native))
    }

    /// What `of` says of each type, in the collector's order, by its RPython name.
    pub fn in_order<T>(&self, of: impl Fn(&str) -> T) -> Vec<T> {
        let name = |&number: &u32| self.native(number).unwrap_or_default();
        self.numbers
            .iter()
            .map(|number| of(&name(number)))
            .collect()
    }

    /// Stores the instances. After the next minor collection they are old, and show how an instance refers to its
    /// class.
    pub fn probe_with(&mut self, instances: Vec<ProbeInstance>) {
        self.probe_instances = instances;
    }

    /// Whether that collection has not happened yet. Before it no class is known.
    #[must_use]
    pub fn await_probe_instances(&self) -> bool {
        !self.probe_instances.is_empty()
    }

    /// Called after a minor collection: reads the instances of [`Types::probe_with`], if there are
    /// any.
    pub fn read_probe_instances(&mut self) {
        if self.probe_instances.is_empty() {
            return;
        }
        let known: Vec<_> = self
            .probe_instances
            .iter()
            .map(|one| KnownClass {
                instance: one.instance,
                class: one.class,
                qualified_name: &one.qualified_name,
            })
            .collect();
        let probe = CachedProbe::new();
        self.classes = Classes::probe(&known, |address| probe.word(address));
        self.probe_instances = Vec::new();
    }

    /// The number of an instance's class, if the offsets are known. See [`Classes::of`].
    ///
    /// # Safety
    /// As for [`Classes::of`].
    pub unsafe fn class(
        &mut self,
        number: u32,
        instance: usize,
        recent: &mut Recent,
    ) -> Option<u32> {
        // SAFETY: the caller's promise.
        unsafe { self.classes.as_mut()?.of(number, instance, recent) }
    }
}

impl TypeIds for Types {
    /// The profile's number of a type, or of an instance's class. A number that is not a type gives
    /// "not known".
    fn id(&mut self, recording: &mut Recording<'_>, number: u32, class: Option<u32>) -> TypeId {
        // The class is in the upper half and the type in the lower half; class 0 means none.
        let key = class.map_or(0, |class| u64::from(class) + 1) << 32 | u64::from(number);
        if let Some(known) = recording.known_type(key) {
            return known.id;
        }
        let Some(native) = self.native(number) else {
            return TypeId::UNKNOWN;
        };
        let native = &*native;
        let name = match (class, &self.classes) {
            (Some(class), Some(classes)) => classes.name(class),
            _ => python_name(native),
        };
        let name = TypeName {
            name: &name,
            native,
        };
        recording
            .define_type(key, &name, 0)
            .map_or(TypeId::UNKNOWN, |known| known.id)
    }
}

/// Converts `member12   GcStruct a.b.C { x, y }` to `a.b.C`, and `member8  GcArray of * GcStruct object
/// { typeptr }` to `GcArray of * object`.
fn native_name(line: &[u8]) -> &[u8] {
    let text = line.trim_ascii();
    let Some(end) = text.iter().position(u8::is_ascii_whitespace) else {
        return b"?";
    };
    let text = text[end..].trim_ascii_start();
    let end = memchr::memchr(b'{', text).unwrap_or(text.len());
    let text = text[..end].trim_ascii_end();
    text.strip_prefix(b"GcStruct ").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_numbers_go_together() {
        let text = "member0    ?\nmember1    GcStruct JITFRAME { jf_frame_info }\n\
                    member2    GcStruct pypy.objspace.std.intobject.W_IntObject { super, inst_intval }\n";
        let types = Types::new(text.as_bytes(), &[0, 8, 72]);
        assert_eq!(types.places.len(), 2);
        assert_eq!(types.native(8).as_deref(), Some("JITFRAME"));
        let int = types.native(72);
        assert_eq!(
            int.as_deref(),
            Some("pypy.objspace.std.intobject.W_IntObject")
        );
        assert_eq!(types.native(0), None);
    }
}
