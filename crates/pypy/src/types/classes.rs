//! The Python class of an instance. The paper leaves this as future work.
//!
//! PyPy keeps an instance's attributes in an array whose layout a *map* describes; the map's end, the
//! *terminator*, knows the class (`pypy/objspace/std/mapdict.py`):
//!
//! ```text
//! instance ── map ──▶ attribute … ── terminator ──▶ terminator ── w_cls ──▶ class ── name ──▶ "C"
//! ```
//!
//! The offsets of the four fields differ between versions, and the offset of `map` differs between
//! kinds of instances (of subclasses of `object`, `list`, `dict`, …). The search at the first minor
//! collection follows all short paths from instances whose classes are known: `id()` of an object is
//! its address when the object is old. If no path is found, the type is called `instance`.

use nthbyte_session::KeyMap;

/// Number of words that are searched for a field in an object. A class has about ninety words.
const WORDS: usize = 24;
const CLASS_WORDS: usize = 160;
/// The header of an object that was moved; see `nthbyte_rpython::pending`.
const FORWARDED: i64 = -42;
/// The longest name that is read, in bytes, and the largest number of classes whose names are kept.
const LONGEST_NAME: usize = 1000;
const MOST_CLASSES: usize = 1 << 20;

/// The addresses of an old instance and its class, and the class's name.
#[derive(Clone, Copy, Debug)]
pub struct KnownClass<'a> {
    /// Address of the instance.
    pub instance: usize,
    /// Address of the class.
    pub class: usize,
    /// `__qualname__` of the class.
    pub qualified_name: &'a [u8],
}

/// The offsets of the fields, and the known classes.
#[derive(Debug)]
pub struct Classes {
    /// Offset of `map`, by the type of the instance.
    maps: KeyMap<u32, usize>,
    terminator: usize,
    class: usize,
    name: usize,
    /// Index into `names`, by the address of the class.
    indices: KeyMap<usize, u32>,
    names: Vec<Box<[u8]>>,
}

/// The last map, which many instances share, and its class. Valid as long as no object is moved or freed: after that
/// another map may lie at the address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent(Option<(usize, u32)>);

impl Classes {
    /// Searches for the fields. `read` returns the word at an address, or `None` if no memory is there.
    pub fn probe(known: &[KnownClass<'_>], read: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let words = |count: usize| (1..count).map(|word| word * 8);
        let first = known.first()?;
        let name = words(CLASS_WORDS).find(|&offset| {
            known.iter().all(|one| {
                read(one.class + offset)
                    .is_some_and(|text| is_text(text, one.qualified_name, &read))
            })
        })?;
        let map_of = |one: &KnownClass<'_>, terminator: usize, class: usize| {
            words(WORDS).find(|&map| {
                read(one.instance + map)
                    .and_then(|map| read(map.checked_add(terminator)?))
                    .and_then(|end| read(end.checked_add(class)?))
                    == Some(one.class)
            })
        };
        let mut paths =
            words(WORDS).flat_map(|terminator| words(WORDS).map(move |class| (terminator, class)));
        let (terminator, class) = paths.find(|&(terminator, class)| {
            map_of(first, terminator, class).is_some()
                && known
                    .get(1)
                    .is_some_and(|one| map_of(one, terminator, class).is_some())
        })?;
        let header = |one: &KnownClass<'_>| read(one.instance).map(type_number);
        let maps = known
            .iter()
            .filter_map(|one| Some((header(one)?, map_of(one, terminator, class)?)))
            .collect();
        let (indices, names) = (KeyMap::default(), Vec::new());
        Some(Self {
            maps,
            terminator,
            class,
            name,
            indices,
            names,
        })
    }

    /// The number of the class of an instance of this type, if the offsets are known.
    ///
    /// # Safety
    /// `instance` is an initialised object of the type, and no major collection has executed a step since the object
    /// was reachable: no object that it refers to was freed. Since `recent` was empty, no object was moved or freed.
    pub unsafe fn of(
        &mut self,
        type_number: u32,
        instance: usize,
        recent: &mut Recent,
    ) -> Option<u32> {
        let &offset = self.maps.get(&type_number)?;
        // SAFETY: the caller's promise; the offset was probed for this type.
        let map = unsafe { *((instance + offset) as *const usize) };
        if let Recent(Some((last, index))) = *recent
            && last == map
        {
            return Some(index);
        }
        // SAFETY: the caller's promise; the offsets were probed for this type.
        let index = unsafe { self.of_map(follow(instance, offset)?) }?;
        *recent = Recent(Some((map, index)));
        Some(index)
    }

    /// The number of the class of the instances that a map describes.
    ///
    /// # Safety
    /// `map` is a map, and no object that it refers to was freed.
    unsafe fn of_map(&mut self, map: usize) -> Option<u32> {
        // SAFETY: the caller's promise; the offsets were probed.
        let class = unsafe { follow(follow(map, self.terminator)?, self.class)? };
        // SAFETY: `class` is a class, and its name is an RPython string: header, hash, length,
        // bytes.
        let name = unsafe {
            let text = follow(class, self.name)?;
            let length = *(text as *const usize).add(2);
            if length > LONGEST_NAME {
                return None;
            }
            std::slice::from_raw_parts((text + 24) as *const u8, length)
        };
        if let Some(&index) = self.indices.get(&class)
            && *self.names[index as usize] == *name
        {
            return Some(index);
        }
        if self.names.len() >= MOST_CLASSES || self.names.try_reserve(1).is_err() {
            return None;
        }
        let index = u32::try_from(self.names.len()).ok()?;
        self.names.push(name.into());
        self.indices.insert(class, index);
        Some(index)
    }

    /// The name of a class.
    #[must_use]
    pub fn name(&self, index: u32) -> String {
        let name = self.names.get(index as usize);
        name.map(|name| String::from_utf8_lossy(name).into_owned())
            .unwrap_or_default()
    }
}

/// The object that a field refers to, at its new address if the collector has moved it.
///
/// # Safety
/// `object` is an object with a reference, or null, at this offset.
unsafe fn follow(object: usize, offset: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let target = unsafe { *((object + offset) as *const usize) };
    if target == 0 || !target.is_multiple_of(8) {
        return None;
    }
    // SAFETY: a reference is the address of a header, or of the words that a moved object leaves.
    unsafe {
        match *(target as *const i64) {
            FORWARDED => Some(*(target as *const usize).add(1)),
            _ => Some(target),
        }
    }
}

fn is_text(address: usize, expected: &[u8], read: impl Fn(usize) -> Option<usize>) -> bool {
    if !address.is_multiple_of(8) || read(address.wrapping_add(16)) != Some(expected.len()) {
        return false;
    }
    expected.chunks(8).enumerate().all(|(index, chunk)| {
        read(address.wrapping_add(24 + 8 * index))
            .is_some_and(|word| word.to_ne_bytes().starts_with(chunk))
    })
}

#[allow(clippy::cast_possible_truncation)] // the type is the low half
const fn type_number(header: usize) -> u32 {
    header as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small heap: objects are lists of words; addresses are the addresses of the words.
    #[test]
    fn the_path_is_found_and_followed() {
        let names = [*b"Outer.A\0", *b"Outer.B\0"];
        let texts: Vec<Vec<usize>> = names
            .iter()
            .map(|name| vec![9, 0, 7, usize::from_ne_bytes(*name)])
            .collect();
        let at = |object: &Vec<usize>| object.as_ptr() as usize;
        let classes: Vec<_> = texts.iter().map(|text| vec![1, 0, 0, at(text)]).collect();
        let ends: Vec<_> = classes
            .iter()
            .map(|class| vec![2, 0, 0, at(class)])
            .collect();
        let maps: Vec<_> = ends.iter().map(|end| vec![3, 0, at(end), 0]).collect();
        let instances: Vec<_> = maps.iter().map(|map| vec![64, 0, 0, 0, at(map)]).collect();
        let all: Vec<_> = [&texts, &classes, &ends, &maps, &instances]
            .into_iter()
            .flatten()
            .collect();
        let read = |address: usize| {
            all.iter().find_map(|object| {
                let word = address.checked_sub(at(object))? / 8;
                object.get(word).copied()
            })
        };
        let known: Vec<_> = (0..2)
            .map(|one| KnownClass {
                instance: at(&instances[one]),
                class: at(&classes[one]),
                qualified_name: &names[one][..7],
            })
            .collect();
        let mut found = Classes::probe(&known, read).expect("the path exists");
        let mut recent = Recent::default();
        let [a, b] = [(&instances[0], "Outer.A"), (&instances[1], "Outer.B")];
        for (instance, name) in [a, b, b, a] {
            // SAFETY: the instance has the layout that the probe has found.
            let index = unsafe { found.of(64, at(instance), &mut recent) }.expect("a known type");
            assert_eq!(found.name(index), name);
            // SAFETY: the type is not known, so nothing is read.
            assert_eq!(unsafe { found.of(65, at(instance), &mut recent) }, None);
        }
    }
}
