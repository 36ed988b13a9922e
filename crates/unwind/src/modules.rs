//! The modules of this process: executables and shared libraries, with their tables for unwinding.

use std::ops::Range;
use std::sync::Arc;

use framehop::{Module, MustNotAllocateDuringUnwind, Unwinder as _};
use nthbyte_host::process::Probe;

use crate::image::{Bytes, Image};
use crate::maps::{self, CodeMapping};
use crate::processor;

/// The number of a file in [`Modules::files`].
type FileNumber = u32;

/// A file that code was mapped from.
pub(crate) struct Named {
    /// As the kernel writes it.
    file: String,
    pub(crate) path: String,
    pub(crate) build_id: String,
}

/// Code of a module.
#[derive(Clone)]
pub(crate) struct Loaded {
    range: Range<usize>,
    mapping: Arc<CodeMapping>,
    /// What was added to the addresses in the file.
    bias: u64,
    file: FileNumber,
    /// Whether it is nthbyte's own.
    pub(crate) is_own: bool,
}

/// The loaded modules, in the order of addresses.
#[derive(Clone)]
pub(crate) struct Modules {
    loaded: Vec<Loaded>,
    /// All files that code was mapped from since the start. A file keeps its number.
    files: Vec<Arc<Named>>,
    pub(crate) unwinder: processor::Rules<Bytes, MustNotAllocateDuringUnwind>,
}

impl Modules {
    pub(crate) fn new() -> Self {
        Self {
            loaded: Vec::new(),
            files: Vec::new(),
            unwinder: processor::Rules::new(),
        }
    }

    /// Looks at the modules that are loaded now. `own` are addresses in nthbyte's own code. Returns whether anything
    /// has changed.
    ///
    /// Cost: about 0.1 ms, and 50 µs for each new module. Numbers in [`Modules::at`] change.
    #[cold]
    pub(crate) fn refresh(&mut self, memory: Probe, own: &[usize]) -> bool {
        let mappings = maps::read();
        let is_known = |known: &Loaded| mappings.contains(&*known.mapping);
        let gone = |known: &Loaded| (!is_known(known)).then_some(known.range.start);
        let gone: Vec<usize> = self.loaded.iter().filter_map(gone).collect();
        for &start in &gone {
            self.unwinder.remove_module(start as u64);
        }
        self.loaded
            .retain(|known| !gone.contains(&known.range.start));
        let mut has_changed = !gone.is_empty();
        for mapping in mappings {
            let start = mapping.range.start;
            let at = self
                .loaded
                .partition_point(|known| known.range.start < start);
            if self.loaded.get(at).map(|known| known.range.start) != Some(start) {
                has_changed = true;
                let loaded = self.load(mapping, memory, own);
                self.loaded.insert(at, loaded);
            }
        }
        has_changed
    }

    fn load(&mut self, mapping: CodeMapping, memory: Probe, own: &[usize]) -> Loaded {
        let (mut image, mut bias) = (Image::default(), None);
        let opened = match &*mapping.path {
            maps::VDSO => Image::of_memory(&mapping.range, memory),
            path => Image::open(path),
        };
        if let Some((opened, file)) = opened {
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
            range: mapping.range.clone(),
            bias,
            file: self.number(&mapping, image.build_id),
            is_own: own.iter().any(|own| mapping.range.contains(own)),
            mapping: Arc::new(mapping),
        }
    }

    fn number(&mut self, mapping: &CodeMapping, build_id: String) -> FileNumber {
        let same = |known: &Arc<Named>| {
            known.file == mapping.file && known.path == mapping.path && known.build_id == build_id
        };
        let at = self.files.iter().position(same).unwrap_or_else(|| {
            self.files.push(Arc::new(Named {
                file: mapping.file.clone(),
                path: mapping.path.clone(),
                build_id,
            }));
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
        let (image, file) = Image::open(&mapping.path).unwrap();
        let tables = image.tables_of(&file, *bias, Probe::new().unwrap());
        let range = mapping.range.start as u64..mapping.range.end as u64;
        let tables = tables.unwrap().changed(damage);
        self.unwinder.remove_module(range.start);
        self.unwinder
            .add_module(Module::new(String::new(), range, *bias, tables));
    }

    /// The number of the code that has this address. `near` is a number to try first.
    #[inline]
    pub(crate) fn find(&self, address: usize, near: usize) -> Option<usize> {
        if let Some(loaded) = self.loaded.get(near)
            && loaded.range.contains(&address)
        {
            return Some(near);
        }
        let after = self
            .loaded
            .partition_point(|loaded| loaded.range.end <= address);
        let loaded = self.loaded.get(after)?;
        loaded.range.contains(&address).then_some(after)
    }

    /// The code with a number of [`Modules::find`].
    pub(crate) fn at(&self, number: usize) -> &Loaded {
        &self.loaded[number]
    }

    /// The number and the name of the file that has this address, and the address in it.
    pub(crate) fn place(&self, address: usize) -> Option<(usize, &Named, u32)> {
        let loaded = &self.loaded[self.find(address, 0)?];
        let position = u32::try_from((address as u64).wrapping_sub(loaded.bias)).unwrap_or(0);
        let file = loaded.file as usize;
        Some((file, &self.files[file], position))
    }

    /// Forgets the code that has this address, as if it was loaded after the last look.
    #[cfg(test)]
    pub(crate) fn forget(&mut self, address: usize) {
        let at = self.find(address, 0).unwrap();
        let forgotten = self.loaded.remove(at);
        self.unwinder.remove_module(forgotten.range.start as u64);
    }
}
