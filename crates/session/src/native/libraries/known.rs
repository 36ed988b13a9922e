//! The libraries that were met, found by an address of their code.
//!
//! ```text
//! address ─ the dynamic linker, without a lock ─▶ image ─▶ by description ─ same addresses, same path? ─▶ Library
//!                                                                     │ no
//!                                                                     ▼
//!                                                           by path, else a new one
//! ```
//!
//! The linker is asked at each sample, in about a hundred instructions: only it knows whether a library was unloaded, and another
//! one loaded at its addresses. Such a library may get the memory of the other one's description too; so the path decides.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::ops::Range;

use foldhash::fast::FixedState;
use nthbyte_host::process::{LoadedImage, Probe};

use crate::native::libraries::Library;
use crate::recording::KeyMap;
use crate::recording::Recording;
use crate::recording::RecordingCell;

/// The largest number of libraries that have a name.
const MOST: usize = 256;
/// The largest number of descriptions that are remembered. With more, all are forgotten: they are found again by their paths.
const MOST_IMAGES: usize = 4 * MOST;
/// Longer paths are not read through the kernel.
const LONGEST_PATH: usize = 512;

/// An image whose library was looked up.
struct Image {
    addresses: Range<usize>,
    /// `None` if its path cannot be read, or if there are too many libraries.
    named: Option<Named>,
}

#[derive(Clone, Copy)]
struct Named {
    path: &'static CStr,
    library: &'static Library,
}

struct Known {
    /// By the address of the description.
    images: KeyMap<usize, Image>,
    all: Vec<Named>,
}

/// What was met until now.
static KNOWN: RecordingCell<Known> = RecordingCell::new(Known::new());

/// The library that calls this thread; `None` if it is not known.
///
/// # Safety
/// The address is the return address of a call of this thread that is in progress, so that its library is not unloaded; or it is of
/// no library.
pub unsafe fn of_caller(recording: &mut Recording<'_>, address: usize) -> Option<&'static Library> {
    let image = LoadedImage::at(address)?;
    // SAFETY: the caller's promise.
    let path = unsafe { image.path_in_place() };
    KNOWN.with(recording).with_path(image, path)
}

/// The library that has an address, which may be any number, and its addresses; `None` if there is none, or if it is not known.
pub fn at(
    recording: &mut Recording<'_>,
    probe: &Probe,
    address: usize,
) -> Option<(Range<usize>, &'static Library)> {
    let image = LoadedImage::at(address)?;
    let addresses = image.addresses.clone();
    let library = KNOWN.with(recording).with_readable_path(image, |image| {
        let mut path = [0; LONGEST_PATH];
        image.read_path(probe, &mut path).map(CStr::to_owned)
    });
    Some((addresses, library?))
}

impl Known {
    const fn new() -> Self {
        Self {
            images: HashMap::with_hasher(FixedState::with_seed(0)),
            all: Vec::new(),
        }
    }

    /// The library of an image whose path is known.
    fn with_path(&mut self, image: LoadedImage, path: &CStr) -> Option<&'static Library> {
        let met = self.images.get(&image.description);
        match met.filter(|met| met.addresses == image.addresses) {
            Some(Image {
                named: Some(named), ..
            }) if named.path == path => Some(named.library),
            // There was no room for it. (If there is, its path could not be read before.)
            Some(Image { named: None, .. }) if self.all.len() == MOST => None,
            _ => self.meet(image, Some(path)),
        }
    }

    /// The library of an image whose path is read only if it was not met. An image that replaces another one in the same memory, its
    /// description too, has the other's name until [`with_path`](Self::with_path) sees it.
    fn with_readable_path(
        &mut self,
        image: LoadedImage,
        read: impl FnOnce(&LoadedImage) -> Option<CString>,
    ) -> Option<&'static Library> {
        match self.images.get(&image.description) {
            Some(met) if met.addresses == image.addresses => met.named.map(|named| named.library),
            _ => {
                let path = read(&image);
                self.meet(image, path.as_deref())
            }
        }
    }

    /// Remembers the library of an image. A path that cannot be read is not asked for again.
    #[cold]
    fn meet(&mut self, image: LoadedImage, path: Option<&CStr>) -> Option<&'static Library> {
        let named = path.and_then(|path| self.of_path(path));
        if self.images.len() >= MOST_IMAGES {
            self.images.clear();
        }
        if self.images.try_reserve(1).is_ok() {
            let addresses = image.addresses;
            self.images
                .insert(image.description, Image { addresses, named });
        }
        named.map(|named| named.library)
    }

    fn of_path(&mut self, path: &CStr) -> Option<Named> {
        let mut all = self.all.iter();
        if let Some(&known) = all.find(|named| named.path == path) {
            return Some(known);
        }
        if self.all.len() == MOST || self.all.try_reserve(1).is_err() {
            return None;
        }
        let library = Library::new(&path.to_string_lossy());
        let named = Named {
            path: Box::leak(CString::into_boxed_c_str(path.to_owned())),
            library: Box::leak(Box::new(library)),
        };
        self.all.push(named);
        Some(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(description: usize) -> LoadedImage {
        LoadedImage {
            addresses: 4096..8192,
            description,
        }
    }

    fn path(package: &str) -> CString {
        CString::new(format!("/v/site-packages/{package}/impl.so")).unwrap()
    }

    #[test]
    fn another_library_in_the_same_memory_has_its_own_name() {
        let mut known = Known::new();
        let mut package = |image: LoadedImage, of: &str| {
            let library = known.with_path(image, &path(of)).unwrap();
            (std::ptr::from_ref(library), library.package.as_str())
        };
        let first = package(image(8), "first");
        assert_eq!(first.1, "first");
        assert_eq!(package(image(8), "second").1, "second");
        // A library that comes back, here or elsewhere, is not a new one.
        assert_eq!(package(image(8), "first"), first);
        assert_eq!(package(image(16), "first"), first);
        let elsewhere = LoadedImage {
            addresses: 0..1,
            description: 8,
        };
        assert_eq!(package(elsewhere, "first"), first);
        assert_eq!(known.all.len(), 2);
        // Moved meanwhile: the path is read.
        let found = known.with_readable_path(image(8), |_| Some(path("second")));
        assert_eq!(found.unwrap().package, "second");
    }

    #[test]
    fn a_path_that_cannot_be_read_is_asked_for_once() {
        let mut known = Known::new();
        for round in 0..3 {
            let found = known.with_readable_path(image(8), |_| {
                assert_eq!(round, 0);
                None
            });
            assert_eq!(found, None);
        }
        // A caller's path is there.
        let found = known.with_path(image(8), &path("first")).unwrap();
        assert_eq!(found.package, "first");
        let again = known.with_readable_path(image(8), |_| unreachable!());
        assert_eq!(again, Some(found));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Known::new();
        for round in 0..2 {
            for number in 0..2 * MOST_IMAGES {
                let found = known.with_path(image(8 * number), &path(&number.to_string()));
                assert_eq!(found.is_some(), number < MOST, "{round}");
                assert!(known.images.len() <= MOST_IMAGES);
            }
        }
        assert_eq!(known.all.len(), MOST);
    }
}
