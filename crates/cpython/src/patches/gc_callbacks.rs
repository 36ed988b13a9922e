//! An entry in `gc.callbacks`, which reports the runs of the cycle collector.
//!
//! - What: a C function at the end of the list. It first reads its arguments through Python, then calls the agent.
//!   Reading makes no object, because there may be thousands of small collections a second. But the program may have put
//!   objects of its own into the dictionary, whose code runs then.
//! - Installed: at a session's start.
//! - Removed: at the session's end. The program may have cleared the list or added other entries. So the entry is found
//!   by identity, and the agent keeps the function and the list alive until then.

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::api::{FastFunction, Function, Gil, Kept, METH_FASTCALL, MethodDef, Object, PyObject};

/// The name of the callback.
const NAME: &CStr = c"nthbyte";

/// The functions to call when a collection starts and when it ends. Both get the generation, the second one also the
/// number of freed objects. Must not panic.
#[derive(Clone, Copy)]
pub struct Handlers {
    /// A collection starts.
    pub start: fn(&mut Gil, u8),
    /// A collection has ended.
    pub stop: fn(&mut Gil, u8, Option<u64>),
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

/// An installed entry.
pub struct Entry {
    list: Kept,
    function: Kept,
}

/// A definition that CPython reads and never changes.
struct Method(MethodDef);
// SAFETY: the definition holds only addresses of constants.
unsafe impl Sync for Method {}

static METHOD: Method = Method(MethodDef {
    name: NAME.as_ptr(),
    // SAFETY: the flag says which function it is.
    function: Some(unsafe { std::mem::transmute::<FastFunction, Function>(on_collection) }),
    flags: METH_FASTCALL,
    doc: std::ptr::null(),
});

impl Entry {
    /// Adds the entry.
    ///
    /// # Errors
    /// One line that says what prevents it.
    pub fn install(gil: &Gil, handlers: Handlers) -> Result<Self, &'static str> {
        HANDLERS.get_or_init(|| handlers);
        let list = gil
            .import(c"gc")
            .and_then(|gc| gc.attribute(c"callbacks"))
            .ok_or("gc has no callbacks")?;
        // SAFETY: the definition fits the function and is static; it is not written to.
        let function = unsafe { gil.function((&raw const METHOD.0).cast_mut(), None) }
            .ok_or("cannot make a function")?;
        if !list.append(*function) {
            return Err("cannot add to gc.callbacks");
        }
        Ok(Self {
            list: list.keep(),
            function: function.keep(),
        })
    }

    /// Removes the entry, if it is still in the list.
    pub fn remove(self, gil: &Gil) {
        let function = self.function.take(gil);
        self.list.take(gil).remove_identical(*function);
    }
}

/// `callback(phase, info)`.
unsafe extern "C" fn on_collection(
    _module: *mut PyObject,
    arguments: *const *mut PyObject,
    count: isize,
) -> *mut PyObject {
    let (Ok(api), Some(handlers)) = (crate::api::Api::get(), HANDLERS.get()) else {
        return std::ptr::null_mut();
    };
    // SAFETY: CPython calls this with the GIL held, and with `count` live arguments.
    let (mut gil, collection) = unsafe {
        let gil = Gil::assume(api);
        let collection = match count {
            2 => Collection::read(gil.object(*arguments), gil.object(*arguments.add(1))),
            _ => None,
        };
        (gil, collection)
    };
    match collection {
        Some(Collection::Starts(generation)) => (handlers.start)(&mut gil, generation),
        Some(Collection::Ended(generation, freed)) => (handlers.stop)(&mut gil, generation, freed),
        None => {}
    }
    gil.none().give()
}

/// The content of a callback's arguments.
enum Collection {
    Starts(u8),
    Ended(u8, Option<u64>),
}

impl Collection {
    fn read(phase: Option<Object<'_>>, info: Option<Object<'_>>) -> Option<Self> {
        let phase = phase?;
        let [generation, collected] = info?
            .values(["generation", "collected"])
            .map(|value| value?.integer());
        let generation = generation.and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        if phase.is_text("start") {
            Some(Self::Starts(generation))
        } else if phase.is_text("stop") {
            let collected = collected.and_then(|n| u64::try_from(n).ok());
            Some(Self::Ended(generation, collected))
        } else {
            None
        }
    }
}
