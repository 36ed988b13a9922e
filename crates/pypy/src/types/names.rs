//! Names of the collector's types.
//!
//! `gc.get_typeids_z()` holds a line for each type, `member12   GcStruct pypy.….W_IntObject { … }`, and
//! `gc.get_typeids_list()` the numbers that stand in objects' headers, in the same order.

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
    /// Where a type's line is in the text, by number; filled when the first name is asked for.
    lines: KeyMap<u32, (u32, u32)>,
    classes: Option<Classes>,
    /// Young instances of known classes, until the first minor collection.
    probe_instances: Vec<ProbeInstance>,
}

/// An instance whose class is known: from a few of them follows where an instance has its class.
#[derive(Debug)]
pub struct ProbeInstance {
    /// Where it will be when it is old.
    pub instance: usize,
    /// Where its class will be.
    pub class: usize,
    /// `__qualname__` of the class.
    pub qualified_name: Box<[u8]>,
}

impl Types {
    /// Keeps both tables.
    #[must_use]
    pub fn new(text: Vec<u8>, numbers: Vec<u32>) -> Self {
        Self {
            text,
            numbers,
            ..Self::default()
        }
    }

    /// Has the next minor collection, after which these instances are old, find the way from an instance to its class.
    pub fn probe_with(&mut self, instances: Vec<ProbeInstance>) {
        self.probe_instances = instances;
    }

    /// Whether that collection is still to come. Until then no class is known.
    #[must_use]
    pub fn await_probe_instances(&self) -> bool {
        !self.probe_instances.is_empty()
    }

    /// A minor collection has ended: reads the instances of [`Types::probe_with`], if there are any.
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

    /// The number of an instance's class, if it is known where to look. See [`Classes::of`].
    ///
    /// # Safety
    /// As for [`Classes::of`].
    pub unsafe fn class(
        &mut self,
        number: u32,
        instance: usize,
        recent: &mut Recent,
    ) -> Option<u32> {
        // SAFETY: passed on to the caller.
        unsafe { self.classes.as_mut()?.of(number, instance, recent) }
    }

    /// The number in the profile of a type, or of an instance's class; "not known" for a number that is
    /// no type.
    pub fn id(&mut self, recording: &mut Recording<'_>, number: u32, class: Option<u32>) -> TypeId {
        // The class above the type, where 0 is none.
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
