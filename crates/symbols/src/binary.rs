//! A binary or a debug file: its symbol table, its debug information, and where its functions begin.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::Context;
use gimli::{
    BaseAddresses, CieOrFde, Dwarf, EhFrame, EndianArcSlice, EndianSlice, RunTimeEndian, SectionId,
    UnwindSection,
};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

use crate::names::demangle;

/// The largest debug information that is read, in bytes, all sections together and without compression. Of a larger one,
/// only the symbol table is.
pub const MAX_DEBUG: u64 = 1 << 30;
/// The largest symbol table, in symbols.
const MAX_SYMBOLS: usize = 4 << 20;
/// The largest number of functions that are inlined into each other.
const MAX_INLINED: usize = 64;
/// `O_NONBLOCK`: the file may be a pipe, which nobody writes to.
const NONBLOCK: i32 = 0o4000;

/// Where distributions put debug files.
const DEBUG: &str = "/usr/lib/debug";

type Reader = EndianArcSlice<RunTimeEndian>;
type ElfFile<'a> = object::File<'a, &'a ReadCache<File>>;

/// The files with the build id of an image, those with more information first. Empty if the image has none: then it cannot
/// be said whether a file is the one that was loaded.
pub(crate) fn find(path: &str, build_id: &str) -> Vec<Binary> {
    if build_id.len() < 4 || !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Vec::new();
    }
    let mut paths = debug_files(build_id);
    if path.starts_with('/') {
        paths.push(PathBuf::from(path));
    }
    let found = paths.iter();
    let mut found: Vec<Binary> = found
        .filter_map(|path| Binary::open(path, build_id))
        .collect();
    found.sort_by_key(|binary| !binary.has_debug());
    found
}

/// The debug file of the distribution, and what debuginfod's client has downloaded.
fn debug_files(build_id: &str) -> Vec<PathBuf> {
    let (first, rest) = build_id.split_at(2);
    let mut paths = vec![PathBuf::from(format!(
        "{DEBUG}/.build-id/{first}/{rest}.debug"
    ))];
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let caches = [
        variable("DEBUGINFOD_CACHE_PATH").map(PathBuf::from),
        variable("XDG_CACHE_HOME").map(|home| PathBuf::from(home).join("debuginfod_client")),
        variable("HOME").map(|home| PathBuf::from(home).join(".cache/debuginfod_client")),
    ];
    for cache in caches.into_iter().flatten() {
        for kind in ["debuginfo", "executable"] {
            paths.push(cache.join(build_id).join(kind));
        }
    }
    paths
}

/// What a file tells of an image.
pub(crate) struct Binary {
    /// Start, size and name of each function, by start.
    symbols: Vec<(u64, u64, Box<str>)>,
    /// Start and size of each function of a file without a symbol table, by start: of the tables for unwinding.
    unnamed: Vec<(u64, u64)>,
    debug: Option<Context<Reader>>,
}

impl Binary {
    /// Reads a file. `None` if it has another build id.
    pub(crate) fn open(path: &Path, build_id: &str) -> Option<Self> {
        with_file(path, build_id, |file| Self {
            symbols: symbols(file),
            unnamed: unnamed(file),
            debug: debug(file),
        })
    }

    pub(crate) fn has_debug(&self) -> bool {
        self.debug.is_some()
    }

    /// The function of the symbol table that has this address, as the linker names it.
    pub(crate) fn symbol(&self, address: u32) -> Option<&str> {
        let address = u64::from(address);
        let after = self.symbols.partition_point(|one| one.0 <= address);
        let (start, size, name) = self.symbols.get(after.checked_sub(1)?)?;
        // Assembly may leave out the size.
        let is_inside = *size == 0 || address - start < *size;
        is_inside.then_some(&**name)
    }

    /// Where the function begins that has this address, if only that is known of it.
    pub(crate) fn start(&self, address: u32) -> Option<u64> {
        let address = u64::from(address);
        let after = self.unnamed.partition_point(|one| one.0 <= address);
        let (start, size) = self.unnamed[after.checked_sub(1)?];
        (address - start < size).then_some(start)
    }

    /// The functions in the debug information that have this address, innermost first. Empty if it names none.
    pub(crate) fn inlined(&self, address: u32) -> Vec<String> {
        let mut names = Vec::new();
        let Some(context) = &self.debug else {
            return names;
        };
        let Ok(mut frames) = context.find_frames(address.into()).skip_all_loads() else {
            return names;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref();
            names.extend(name.and_then(|name| Some(demangle(&name.raw_name().ok()?))));
            if names.len() == MAX_INLINED {
                break;
            }
        }
        names
    }
}

/// Opens an ordinary file, if it has this build id.
fn with_file<T>(path: &Path, build_id: &str, read: impl FnOnce(&ElfFile<'_>) -> T) -> Option<T> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(NONBLOCK).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache).ok()?;
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let found: String = file.build_id().ok().flatten().map(digits)?;
    (found == build_id).then(|| read(&file))
}

fn symbols(file: &ElfFile<'_>) -> Vec<(u64, u64, Box<str>)> {
    // What the linker needs is in the symbol table too, if that is there.
    let all = file.symbols().chain(file.dynamic_symbols());
    let functions =
        all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let mut symbols: Vec<(u64, u64, Box<str>)> = functions
        .filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            Some((symbol.address(), symbol.size(), name.into()))
        })
        .take(MAX_SYMBOLS)
        .collect();
    // Of several names at one place, the first of the longest function.
    symbols.sort_by(|a, b| (a.0, u64::MAX - a.1, &a.2).cmp(&(b.0, u64::MAX - b.1, &b.2)));
    symbols.dedup_by_key(|symbol| symbol.0);
    symbols
}

fn unnamed(file: &ElfFile<'_>) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    if file.symbol_table().is_some() {
        return all;
    }
    let Some(section) = file.section_by_name(".eh_frame") else {
        return all;
    };
    let Ok(data) = section.data() else {
        return all;
    };
    let endian = if file.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let mut table = EhFrame::from(EndianSlice::new(data, endian));
    table.set_address_size(if file.is_64() { 8 } else { 4 });
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = table.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if all.len() == MAX_SYMBOLS {
            break;
        }
        if let CieOrFde::Fde(entry) = entry
            && let Ok(entry) = entry.parse(EhFrame::cie_from_offset)
        {
            all.push((entry.initial_address(), entry.len()));
        }
    }
    all.sort_unstable();
    all
}

fn debug(file: &ElfFile<'_>) -> Option<Context<Reader>> {
    file.section_by_name(".debug_info")?;
    let mut dwarf = dwarf(file)?;
    if let Ok(Some((name, build_id))) = file.gnu_debugaltlink() {
        let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(supplement) = supplement(name, &build_id) {
            dwarf.set_sup(supplement);
        }
    }
    Context::from_dwarf(dwarf).ok()
}

/// What several debug files of a package share (`dwz`).
fn supplement(name: &[u8], build_id: &str) -> Option<Dwarf<Reader>> {
    if build_id.len() < 4 {
        return None;
    }
    let mut paths = debug_files(build_id);
    let name = std::str::from_utf8(name).ok()?;
    // A name relative to the debug file begins with steps up, to the folder of all of them.
    let name = name.trim_start_matches("../");
    paths.push(Path::new(DEBUG).join(name));
    let mut found = paths.iter().map(PathBuf::as_path);
    found.find_map(|path| with_file(path, build_id, dwarf)?)
}

fn dwarf(file: &ElfFile<'_>) -> Option<Dwarf<Reader>> {
    let is_debug = |section: &object::Section<'_, '_, &ReadCache<File>>| {
        section
            .name()
            .is_ok_and(|name| name.starts_with(".debug") || name.starts_with(".zdebug"))
    };
    let size = |section: object::Section<'_, '_, &ReadCache<File>>| {
        section
            .compressed_file_range()
            .map_or(u64::MAX, |range| range.uncompressed_size)
    };
    let sizes = file.sections().filter(is_debug).map(size);
    if sizes.fold(0, u64::saturating_add) > MAX_DEBUG {
        return None;
    }
    let endian = if file.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let load = |id: SectionId| {
        let section = file.section_by_name(id.name());
        let data = section.and_then(|section| section.uncompressed_data().ok());
        let data: Arc<[u8]> = Arc::from(&*data.unwrap_or_default());
        Ok::<_, ()>(EndianArcSlice::new(data, endian))
    };
    Dwarf::load(load).ok()
}

#[cfg(test)]
impl Binary {
    /// A stripped file with these functions.
    pub(crate) const fn of_unnamed(unnamed: Vec<(u64, u64)>) -> Self {
        Self {
            symbols: Vec::new(),
            unnamed,
            debug: None,
        }
    }

    /// A file with any build id.
    pub(crate) fn any(path: &Path) -> Self {
        let cache = ReadCache::new(File::open(path).unwrap());
        let file = object::File::parse(&cache).unwrap();
        Self {
            symbols: symbols(&file),
            unnamed: unnamed(&file),
            debug: None,
        }
    }

    /// Start and size of the functions whose names have this text.
    pub(crate) fn named(&self, text: &str) -> Vec<(u64, u64)> {
        let named = self.symbols.iter().filter(|one| one.2.contains(text));
        named.map(|one| (one.0, one.1)).collect()
    }
}
