//! The modules of this process: executables and shared libraries, with their tables for unwinding.

use framehop::x86_64::UnwinderX86_64;
use framehop::{Module, MustNotAllocateDuringUnwind, Unwinder as _};
use nthbyte_profile::event::{Code, CodeId, Lines};
use nthbyte_session::process::Probe;
use nthbyte_session::{PerEpoch, Recording};

use crate::image::{Bytes, Image};
use crate::maps::{self, Mapping};

/// The number of a file in [`Modules::files`].
type FileNumber = u32;

/// A file that code was mapped from.
struct Named {
    /// As the kernel writes it.
    file: String,
    path: String,
    build_id: String,
}

/// Code of a module.
pub(crate) struct Loaded {
    mapping: Mapping,
    /// What was added to the addresses in the file.
    bias: u64,
    file: FileNumber,
    /// Whether it is nthbyte's own.
    pub(crate) is_own: bool,
}

/// What is loaded, in the order of addresses.
pub(crate) struct Modules {
    loaded: Vec<Loaded>,
    /// All files that code was mapped from since the start. A file keeps its number.
    files: Vec<Named>,
    codes: PerEpoch<Vec<Option<CodeId>>>,
    pub(crate) unwinder: UnwinderX86_64<Bytes, MustNotAllocateDuringUnwind>,
}

impl Modules {
    pub(crate) fn new() -> Self {
        Self {
            loaded: Vec::new(),
            files: Vec::new(),
            codes: PerEpoch::default(),
            unwinder: UnwinderX86_64::new(),
        }
    }

    /// Looks at what is loaded now. `own` are addresses in nthbyte's own code. Returns whether anything has changed.
    ///
    /// Cost: about 0.1 ms, and 50 µs for each new module. Numbers in [`Modules::at`] change.
    #[cold]
    pub(crate) fn refresh(&mut self, memory: Probe, own: &[usize]) -> bool {
        let mappings = maps::read();
        let is_known = |known: &Loaded| mappings.contains(&known.mapping);
        let gone = |known: &Loaded| (!is_known(known)).then_some(known.mapping.range.start);
        let gone: Vec<usize> = self.loaded.iter().filter_map(gone).collect();
        for &start in &gone {
            self.unwinder.remove_module(start as u64);
        }
        self.loaded
            .retain(|known| !gone.contains(&known.mapping.range.start));
        let mut has_changed = !gone.is_empty();
        for mapping in mappings {
            let start = mapping.range.start;
            let at = self
                .loaded
                .partition_point(|known| known.mapping.range.start < start);
            if self.loaded.get(at).map(|known| known.mapping.range.start) != Some(start) {
                has_changed = true;
                let loaded = self.load(mapping, memory, own);
                self.loaded.insert(at, loaded);
            }
        }
        has_changed
    }

    fn load(&mut self, mapping: Mapping, memory: Probe, own: &[usize]) -> Loaded {
        let (mut image, mut bias) = (Image::default(), None);
        if let Some((opened, file)) = Image::open(&mapping.path) {
            image = opened;
            bias = image.bias(mapping.range.start, mapping.offset);
            if let Some(bias) = bias {
                image.compare_and_map(&file, bias, memory);
            }
        }
        // Without the file's headers, an address says where the code is in the file.
        let bias = bias.unwrap_or((mapping.range.start as u64).wrapping_sub(mapping.offset));
        if let Some(tables) = image.tables() {
            let range = mapping.range.start as u64..mapping.range.end as u64;
            self.unwinder
                .add_module(Module::new(String::new(), range, bias, tables));
        }
        Loaded {
            bias,
            file: self.number(&mapping, image.build_id),
            is_own: own.iter().any(|own| mapping.range.contains(own)),
            mapping,
        }
    }

    fn number(&mut self, mapping: &Mapping, build_id: String) -> FileNumber {
        let same = |known: &Named| {
            known.file == mapping.file && known.path == mapping.path && known.build_id == build_id
        };
        let at = self.files.iter().position(same).unwrap_or_else(|| {
            self.files.push(Named {
                file: mapping.file.clone(),
                path: mapping.path.clone(),
                build_id,
            });
            self.files.len() - 1
        });
        at as FileNumber
    }

    /// Replaces the tables of this program by copies, which `damage` changes.
    #[cfg(test)]
    pub(crate) fn damage_own(&mut self, damage: impl FnMut(&mut [u8])) {
        let here = Self::new as fn() -> Self as usize;
        let number = self.find(here, 0).unwrap();
        let Loaded { mapping, bias, .. } = &self.loaded[number];
        let (mut image, file) = Image::open(&mapping.path).unwrap();
        image.compare_and_map(&file, *bias, Probe::new().unwrap());
        let range = mapping.range.start as u64..mapping.range.end as u64;
        let tables = image.tables().unwrap().changed(damage);
        self.unwinder.remove_module(range.start);
        self.unwinder
            .add_module(Module::new(String::new(), range, *bias, tables));
    }

    /// The number of the code that has this address. `near` is a number to try first.
    #[inline]
    pub(crate) fn find(&self, address: usize, near: usize) -> Option<usize> {
        if let Some(loaded) = self.loaded.get(near)
            && loaded.mapping.range.contains(&address)
        {
            return Some(near);
        }
        let after = self
            .loaded
            .partition_point(|loaded| loaded.mapping.range.end <= address);
        let loaded = self.loaded.get(after)?;
        loaded.mapping.range.contains(&address).then_some(after)
    }

    /// The code with a number of [`Modules::find`].
    pub(crate) fn at(&self, number: usize) -> &Loaded {
        &self.loaded[number]
    }

    /// The code object of a frame, and its position in it. A new file is defined first. `None` if there is no room.
    pub(crate) fn code(
        &mut self,
        recording: &mut Recording<'_>,
        address: usize,
    ) -> Option<(CodeId, u32)> {
        let loaded = &self.loaded[self.find(address, 0)?];
        let position = u32::try_from((address as u64).wrapping_sub(loaded.bias)).unwrap_or(0);
        let codes = self.codes.of(recording.epoch());
        let at = loaded.file as usize;
        if let Some(&Some(code)) = codes.get(at) {
            return Some((code, position));
        }
        let named = &self.files[at];
        let name = named.path.rsplit('/').next().unwrap_or_default();
        codes
            .try_reserve((at + 1).saturating_sub(codes.len()))
            .ok()?;
        let code = recording.code(&Code {
            name,
            file: &named.path,
            first_line: 0,
            lines: Lines::Image(&named.build_id),
        })?;
        if codes.len() <= at {
            codes.resize(at + 1, None);
        }
        codes[at] = Some(code);
        Some((code, position))
    }
}
