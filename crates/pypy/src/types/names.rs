//! Names of the collector's types.
//!
//! `gc.get_typeids_z()` has a line for each type, such as `member12   GcStruct pypy.….W_IntObject { …
//! }`. `gc.get_typeids_list()` has the numbers in objects' headers, in the same order.

use nthbyte_profile::event::{TypeId, TypeName};
use nthbyte_session::KeyMap;

use super::classes::{Classes, Known, Recent};
use super::python_names::python_name;
use nthbyte_session::Recording;
use nthbyte_session::process::CachedProbe;

/// The types of this interpreter.
#[derive(Debug, Default)]
pub struct Types {
    text: Vec<u8>,
    numbers: Vec<u32>,
    /// The place of each type's line in the text, by number. It is filled at the first lookup of a
    /// name.
    lines: KeyMap<u32, (u32, u32)>,
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
    /// Stores both tables.
    #[must_use]
    pub fn new(text: Vec<u8>, numbers: Vec<u32>) -> Self {
        Self {
            text,
            numbers,
            ..Self::default()
        }
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
            .map(|one| Known {
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

    /// The profile's number of a type, or of an instance's class. A number that is not a type gives
    /// "not known".
    pub fn id(&mut self, recording: &mut Recording<'_>, number: u32, class: Option<u32>) -> TypeId {
        // The class is in the upper half and the type in the lower half; class 0 means none.
        let key = class.map_or(0, |class| u64::from(class) + 1) << 32 | u64::from(number);
        if let Some(known) = recording.known_type(key) {
            return known.id;
        }
        self.find_lines();
        let Some(&(start, end)) = self.lines.get(&number) else {
            return TypeId::UNKNOWN;
        };
        let line = String::from_utf8_lossy(&self.text[start as usize..end as usize]);
        let native = native_name(&line);
        if native == "?" {
            return TypeId::UNKNOWN;
        }
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

    fn find_lines(&mut self) {
        let numbers = std::mem::take(&mut self.numbers);
        if numbers.is_empty() || self.lines.try_reserve(numbers.len()).is_err() {
            return;
        }
        let mut start = 0;
        for (number, line) in numbers
            .into_iter()
            .zip(self.text.split(|&byte| byte == b'\n'))
        {
            let end = start + line.len();
            if let (Ok(start), Ok(end), true) = (start.try_into(), end.try_into(), number != 0) {
                self.lines.insert(number, (start, end));
            }
            start = end + 1;
        }
    }
}

/// Converts `member12   GcStruct a.b.C { x, y }` to `a.b.C`, and `member8  GcArray of * GcStruct object
/// { typeptr }` to `GcArray of * object`.
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
        let mut types = Types::new(text.into(), vec![0, 8, 72]);
        types.find_lines();
        let name = |number| {
            let (start, end) = types.lines[&number];
            native_name(&text[start as usize..end as usize])
        };
        assert_eq!(types.lines.len(), 2);
        assert_eq!(name(8), "JITFRAME");
        assert_eq!(name(72), "pypy.objspace.std.intobject.W_IntObject");
    }
}
