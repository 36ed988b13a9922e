//! The Python objects: labels, and the sets that are entered.
//!
//! A label is what `nthbyte.label(...)` returns: keys with values. To enter it makes an [`Entered`] the value of the
//! context variable: the labels in force, this one, and the set that was in force before. To leave it takes the innermost one of this label out of those in force,
//! wherever it is. So a label has no state of its own: many tasks may be in one at a time, generators may
//! leave theirs in any order, and to leave one in a context that never entered it changes nothing.
//!
//! Labels with the same texts are one object, of the first [`MOST_LABELS`]. Such a label keeps the last sets that it has led to: to enter
//! it again makes no object but the interpreter's own.
//!
//! Without a GIL, what labels keep is used under a lock. Whoever has it runs no Python code, makes and frees no object, and waits for nothing. There, no
//! label remembers its last entry, which may be another thread's.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use super::hamt::Direct;
use super::reader::{LabelReader, reader};
use crate::api::{
    Api, FREE_THREADED, FastFunction, Function, Gil, METH_FASTCALL, METH_NOARGS, MethodDef,
    PyObject,
};
use nthbyte_host::lock::Lock;
use nthbyte_session::labels::{self as names, Name, Names, Set, SharedSet};

/// Labels that are kept forever.
const MOST_LABELS: usize = 1 << 12;
/// Sets that a label keeps, each for one set in force before.
const KEPT_SETS: usize = 4;
/// Labels inside of each other; others are not entered.
const DEEPEST: usize = 64;
/// Calls that are found again by their arguments alone, and the most arguments of one.
const CALLS: usize = 256;
const MOST_ARGUMENTS: usize = 4;

/// What has been entered, as the value of the context variable.
#[repr(C)]
pub struct Entered {
    head: PyObject,
    number: usize,
    /// All labels in force.
    pub set: *const Set,
    /// What was in force before; may be null.
    outer: *mut Entered,
    label: *mut Label,
    depth: usize,
}

impl Entered {
    /// The offset of the number of its set.
    pub const NUMBER: usize = offset_of!(Self, number);
}

/// Keys with values.
#[repr(C)]
struct Label {
    head: PyObject,
    names: *mut Vec<Name>,
    /// Of a label that is kept: what was in force, and what was entered. It owns the latter. Used with [`Locked`].
    sets: [[*mut Entered; 2]; KEPT_SETS],
    is_kept: bool,
    /// Without a GIL, it stays empty.
    last: Last,
}

/// The last time that a label was entered, if it was not left since. To reset the variable is cheaper than to set it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Last {
    /// The interpreter's token, which is owned; null for none.
    token: *mut PyObject,
    context: usize,
    entered: *mut Entered,
}

/// The arguments of a call, and the label that it returned. It owns all of them.
#[derive(Clone, Copy)]
struct Call {
    keys: *mut PyObject,
    values: [*mut PyObject; MOST_ARGUMENTS],
    label: *mut Label,
}

/// The objects of the process.
struct Objects {
    variable: *mut PyObject,
    label_type: *mut PyObject,
    entered_type: *mut PyObject,
    kept: UnsafeCell<Kept>,
}

static OBJECTS: AtomicPtr<Objects> = AtomicPtr::new(null_mut());

/// What is kept of all labels. Only the holder of the main interpreter's GIL uses it, or of the lock in its place.
struct Kept {
    names: Names,
    labels: HashMap<Vec<Name>, *mut Label>,
    calls: Vec<Call>,
}

/// See the module.
static LOCK: Lock = Lock::new(AtomicUsize::new(0));

/// The lock; nothing where there is a GIL.
struct Locked;

impl Locked {
    fn new() -> Self {
        // Whoever has it goes on in a moment.
        while FREE_THREADED && !LOCK.acquire() {}
        Self
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if FREE_THREADED {
            LOCK.release();
        }
    }
}

/// Sees to it that what is kept is whole when the process is copied.
fn watch_forks() {
    extern "C" fn before() {
        while !LOCK.is_held_by_caller() && !LOCK.acquire_for_fork() {}
    }
    extern "C" fn in_parent() {
        LOCK.release_in_parent();
    }
    extern "C" fn in_child() {
        LOCK.release_in_child();
    }
    static ONCE: Once = Once::new();
    // SAFETY: the functions are never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
}

/// What is kept, and the lock.
struct KeptRef {
    of: &'static Objects,
    _locked: Locked,
}

impl Deref for KeptRef {
    type Target = Kept;

    fn deref(&self) -> &Kept {
        // SAFETY: by the contract of `kept`, nobody else uses it.
        unsafe { &*self.of.kept.get() }
    }
}

impl DerefMut for KeptRef {
    fn deref_mut(&mut self) -> &mut Kept {
        // SAFETY: as above.
        unsafe { &mut *self.of.kept.get() }
    }
}

/// # Safety
/// The main interpreter's GIL is held, nobody else has such a reference, and while it is used, no Python code runs, and no object is made or
/// freed.
unsafe fn kept() -> Option<KeptRef> {
    Some(KeptRef {
        of: objects()?,
        _locked: Locked::new(),
    })
}

/// `PyType_Slot` and `PyType_Spec` of `Include/object.h`.
#[repr(C)]
struct Slot {
    slot: c_int,
    value: *mut c_void,
}

#[repr(C)]
struct Spec {
    name: *const c_char,
    basic_size: c_int,
    item_size: c_int,
    flags: std::ffi::c_uint,
    slots: *mut Slot,
}

/// `Include/typeslots.h`.
const TP_CALL: c_int = 50;
const TP_DEALLOC: c_int = 52;
const TP_METHODS: c_int = 64;
const TP_REPR: c_int = 66;
const TP_FREE: c_int = 74;
/// `Py_TPFLAGS_DISALLOW_INSTANTIATION`, `Py_TPFLAGS_IMMUTABLETYPE`, `Py_TPFLAGS_DEFAULT`.
const FLAGS: std::ffi::c_uint = 1 << 7 | 1 << 8 | 1 << 18;

/// Makes the types and the context variable, if they do not exist yet. Returns the variable; `None` outside of the main
/// interpreter, or without memory.
pub fn begin(gil: &Gil) -> Option<*mut PyObject> {
    if !is_main(gil) {
        return None;
    }
    if let Some(objects) = objects() {
        return Some(objects.variable);
    }
    // SAFETY: the specifications and the texts live forever; the functions fit their slots.
    let (label_type, entered_type, variable) = unsafe {
        let methods = Box::leak(Box::new([
            method(c"__enter__", enter, METH_NOARGS),
            method(
                c"__exit__",
                std::mem::transmute::<FastFunction, Function>(exit),
                METH_FASTCALL,
            ),
            MethodDef {
                name: std::ptr::null(),
                function: None,
                flags: 0,
                doc: std::ptr::null(),
            },
        ]));
        let label = new_type(
            gil,
            c"nthbyte.label",
            size_of::<Label>(),
            vec![
                slot(TP_DEALLOC, free_label as *mut c_void),
                slot(TP_REPR, repr as *mut c_void),
                slot(TP_CALL, call as *mut c_void),
                slot(TP_METHODS, methods.as_mut_ptr().cast()),
            ],
        )?;
        let entered = new_type(
            gil,
            c"nthbyte.labels",
            size_of::<Entered>(),
            vec![slot(TP_DEALLOC, free_entered as *mut c_void)],
        )?;
        (label, entered, gil.context_variable(c"nthbyte.labels")?)
    };
    let objects = Box::into_raw(Box::new(Objects {
        variable,
        label_type,
        entered_type,
        kept: UnsafeCell::new(Kept {
            names: Names::default(),
            labels: HashMap::new(),
            calls: vec![
                Call {
                    keys: null_mut(),
                    values: [null_mut(); MOST_ARGUMENTS],
                    label: null_mut(),
                };
                CALLS
            ],
        }),
    }));
    if FREE_THREADED {
        watch_forks();
    }
    // Another thread's first label may have been made meanwhile. Then these stay unused.
    match OBJECTS.compare_exchange(null_mut(), objects, AcqRel, Acquire) {
        Ok(_) => Some(variable),
        // SAFETY: never freed.
        Err(others) => Some(unsafe { (*others).variable }),
    }
}

/// The context variable, and the type of its values.
pub fn variable_and_type() -> Option<(usize, usize)> {
    objects().map(|of| (of.variable as usize, of.entered_type as usize))
}

/// Whether labels are possible where the caller runs: in the main interpreter.
fn is_main(gil: &Gil) -> bool {
    let api = gil.api();
    // SAFETY: the GIL is held, so that there is a thread state.
    unsafe {
        (api.PyThreadState_GetInterpreter)(gil.thread_state()) == (api.PyInterpreterState_Main)()
    }
}

fn objects() -> Option<&'static Objects> {
    // SAFETY: never freed.
    unsafe { OBJECTS.load(Acquire).as_ref() }
}

const fn slot(slot: c_int, value: *mut c_void) -> Slot {
    Slot { slot, value }
}

const fn method(name: &'static CStr, function: Function, flags: c_int) -> MethodDef {
    MethodDef {
        name: name.as_ptr(),
        function: Some(function),
        flags,
        doc: std::ptr::null(),
    }
}

/// # Safety
/// The slots have functions of their types.
unsafe fn new_type(
    gil: &Gil,
    name: &'static CStr,
    size: usize,
    mut slots: Vec<Slot>,
) -> Option<*mut PyObject> {
    slots.push(slot(0, null_mut()));
    let spec = Box::leak(Box::new(Spec {
        name: name.as_ptr(),
        basic_size: size as c_int,
        item_size: 0,
        flags: FLAGS,
        slots: slots.leak().as_mut_ptr(),
    }));
    // SAFETY: a `PyType_Spec` that is never freed; by the caller.
    unsafe { gil.new_type((&raw mut *spec).cast()) }
}

/// `label(**labels) -> label`: the label of these keys and values.
pub unsafe extern "C" fn label(
    _module: *mut PyObject,
    arguments: *const *mut PyObject,
    positional: isize,
    keys: *mut PyObject,
) -> *mut PyObject {
    let Ok(api) = Api::get() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held, and with live arguments: the positional ones, then a value for each key.
    unsafe {
        let gil = Gil::assume(api);
        if positional != 0 || keys.is_null() {
            gil.raise_type_error(
                c"nthbyte.label takes keys with values, such as nthbyte.label(endpoint=\"/checkout\")",
            );
            return null_mut();
        }
        let count = gil.object(keys).and_then(|keys| keys.tuple_length());
        let count = count.unwrap_or(0);
        let values = std::slice::from_raw_parts(arguments, count);
        let place = place_of_call(keys, values);
        if let Some(kept) = kept()
            && let Some(known) = kept.calls.get(place)
            && known.keys == keys
            && known.values.starts_with(values)
        {
            gil.increment(known.label.cast());
            return known.label.cast();
        }
        make_label(&gil, keys, values, place)
    }
}

/// Where a call is kept. Calls in one place of a program have the same tuple of keys, and often the same values.
fn place_of_call(keys: *mut PyObject, values: &[*mut PyObject]) -> usize {
    let mixed = values.iter().fold(keys as usize, |mixed, value| {
        (mixed ^ *value as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (mixed >> 48) % CALLS
}

/// # Safety
/// The GIL is held; the arguments are live.
#[cold]
#[inline(never)]
unsafe fn make_label(
    gil: &Gil,
    keys: *mut PyObject,
    values: &[*mut PyObject],
    place: usize,
) -> *mut PyObject {
    let api = gil.api();
    let mut texts = Vec::with_capacity(values.len());
    let mut are_texts = true;
    for (at, &value) in values.iter().enumerate() {
        // SAFETY: a tuple of `str`, and a live object, by the caller. The texts are copied.
        unsafe {
            let key = gil.object(keys).and_then(|keys| keys.element(at));
            let Some(key) = key else {
                return null_mut();
            };
            are_texts &= (*value).ob_type == api.PyUnicode_Type;
            let Some(value) = gil.text_of(value) else {
                return null_mut();
            };
            texts.push((key.text().unwrap_or_default(), names::value(&value)));
        }
    }
    let mut all: Vec<Name> = Vec::with_capacity(texts.len());
    let known = {
        // SAFETY: the GIL is held, and no Python code runs as long as it is used.
        let Some(mut kept) = (unsafe { kept() }) else {
            return gil.none().give();
        };
        for (key, value) in texts {
            if let Some(key) = kept.names.key(&key) {
                all.push((key, value));
            }
        }
        let known = kept.labels.get(&all).copied();
        // SAFETY: kept labels are alive.
        known.inspect(|known| unsafe { gil.increment(known.cast()) })
    };
    let label = match (known, objects()) {
        (Some(known), _) => known,
        (None, None) => return gil.none().give(),
        (None, Some(objects)) => {
            // SAFETY: the type is ours; an allocation runs no Python code but a collection's, which may come here: so what is
            // kept is looked up anew.
            let made: *mut Label = unsafe { gil.new_object(objects.label_type) }.cast();
            // SAFETY: as above.
            let Some(mut kept) = (unsafe { kept() }).filter(|_| !made.is_null()) else {
                return null_mut();
            };
            // SAFETY: a new object of this layout, zeroed.
            unsafe {
                (*made).names = Box::into_raw(Box::new(all.clone()));
                if kept.labels.len() < MOST_LABELS && !kept.labels.contains_key(&all) {
                    (*made).is_kept = true;
                    gil.increment(made.cast());
                    kept.labels.insert(all, made);
                }
            }
            made
        }
    };
    if are_texts && values.len() <= MOST_ARGUMENTS {
        // SAFETY: as above. The replaced call is released last.
        unsafe { remember_call(gil, keys, values, label, place) };
    }
    label.cast()
}

/// # Safety
/// The GIL is held; the arguments are live.
unsafe fn remember_call(
    gil: &Gil,
    keys: *mut PyObject,
    values: &[*mut PyObject],
    label: *mut Label,
    place: usize,
) {
    let mut new = Call {
        keys,
        values: [null_mut(); MOST_ARGUMENTS],
        label,
    };
    new.values[..values.len()].copy_from_slice(values);
    let all = |call: &Call| {
        let [first, second, third, fourth] = call.values;
        [call.keys, call.label.cast(), first, second, third, fourth]
    };
    // SAFETY: all are live, and `old` owned its own. Texts, tuples of texts and labels run no code when they are freed.
    unsafe {
        let old = {
            let Some(mut kept) = kept() else {
                return;
            };
            all(&new).iter().for_each(|&object| gil.increment(object));
            std::mem::replace(&mut kept.calls[place], new)
        };
        all(&old).iter().for_each(|&object| gil.decrement(object));
    }
}

/// The calling thread's context, and the set in force there; null if there is none.
///
/// # Safety
/// The GIL is held.
#[inline(always)]
unsafe fn in_force(api: &Api, reader: &LabelReader) -> (usize, *mut Entered) {
    // SAFETY: the thread's own state; the layout was checked.
    unsafe {
        let state = (api.PyThreadState_GetUnchecked)() as usize;
        let words = Direct::new();
        let context = reader.context(state, &words).unwrap_or(0);
        let entered = reader.entered_in(context, &words).unwrap_or(0);
        (context, entered as *mut Entered)
    }
}

/// `__enter__`.
unsafe extern "C" fn enter(this: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let Ok(api) = Api::get() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held, and with a label.
    unsafe {
        let gil = Gil::assume(api);
        gil.increment(this);
        if let (Some(objects), Some(reader)) = (objects(), reader()) {
            let label = this.cast::<Label>();
            let (context, outer) = in_force(api, reader);
            let entered = child(&gil, outer, label);
            if entered.is_null() {
                return this;
            }
            let token = gil.set_variable(objects.variable, entered.cast());
            // A thread without a context has one only now.
            let is_again = !FREE_THREADED && context != 0 && !token.is_null();
            if !is_again {
                gil.decrement(token);
            }
            if !FREE_THREADED {
                let last = Last {
                    token: if is_again { token } else { null_mut() },
                    context,
                    entered,
                };
                let before = std::mem::replace(&mut (*label).last, last);
                gil.decrement(before.token);
            }
            // The context owns it.
            gil.decrement(entered.cast());
        }
    }
    this
}

/// `__exit__(*error)`. It raises nothing.
unsafe extern "C" fn exit(this: *mut PyObject, _: *const *mut PyObject, _: isize) -> *mut PyObject {
    let Ok(api) = Api::get() else {
        return null_mut();
    };
    // SAFETY: as for `enter`.
    unsafe {
        let gil = Gil::assume(api);
        if let (Some(objects), Some(reader)) = (objects(), reader()) {
            leave(&gil, objects, reader, this.cast());
        }
        gil.none().give()
    }
}

/// # Safety
/// The GIL is held; the label is live.
#[inline(always)]
unsafe fn leave(gil: &Gil, objects: &Objects, reader: &LabelReader, label: *mut Label) {
    // SAFETY: by the caller. The set in force is alive as long as its context has it.
    unsafe {
        let (context, entered) = in_force(gil.api(), reader);
        let Last {
            token,
            context: of,
            entered: made,
        } = (*label).last;
        let is_last = !token.is_null() && of == context && made == entered;
        if is_last {
            (*label).last.token = null_mut();
            let is_left = gil.reset_variable(objects.variable, token);
            gil.decrement(token);
            if is_left {
                return;
            }
        }
        if !entered.is_null() && (*entered).label == label {
            let outer = or_none(gil.api(), (*entered).outer);
            let token = gil.set_variable(objects.variable, outer);
            gil.decrement(token);
        } else {
            leave_outer(gil, objects, entered, label);
        }
    }
}

fn or_none(api: &Api, entered: *mut Entered) -> *mut PyObject {
    if entered.is_null() {
        api._Py_NoneStruct
    } else {
        entered.cast()
    }
}

/// Leaves a label inside of which others are in force, which stay; does nothing if it is not in force.
///
/// # Safety
/// The GIL is held; both are live.
#[cold]
#[inline(never)]
unsafe fn leave_outer(gil: &Gil, objects: &Objects, entered: *mut Entered, label: *mut Label) {
    // SAFETY: by the caller; each set keeps its outer one and its label.
    unsafe {
        let mut inner = Vec::new();
        let mut at = entered;
        while !at.is_null() && (*at).label != label {
            inner.push((*at).label);
            at = (*at).outer;
        }
        if at.is_null() {
            if !FREE_THREADED {
                // A token keeps its context alive.
                gil.decrement(std::mem::replace(&mut (*label).last.token, null_mut()));
            }
            return;
        }
        let mut left = (*at).outer;
        gil.increment(left.cast());
        for &label in inner.iter().rev() {
            let next = child(gil, left, label);
            gil.decrement(left.cast());
            left = next;
        }
        let token = gil.set_variable(objects.variable, or_none(gil.api(), left));
        gil.decrement(token);
        gil.decrement(left.cast());
    }
}

/// A new reference to the set in force when this label is entered inside of `outer`; null if it cannot be entered.
///
/// # Safety
/// The GIL is held; both are live, and `outer` may be null.
#[inline]
unsafe fn child(gil: &Gil, outer: *mut Entered, label: *mut Label) -> *mut Entered {
    // SAFETY: by the caller.
    unsafe {
        let place = (outer as usize >> 6) % KEPT_SETS;
        {
            let _locked = Locked::new();
            let [known, entered] = (*label).sets[place];
            if known == outer && !entered.is_null() {
                gil.increment(entered.cast());
                return entered;
            }
        }
        make_child(gil, outer, label, place)
    }
}

/// # Safety
/// As for [`child`].
#[cold]
#[inline(never)]
unsafe fn make_child(
    gil: &Gil,
    outer: *mut Entered,
    label: *mut Label,
    place: usize,
) -> *mut Entered {
    // SAFETY: by the caller. No Python code runs while the objects are borrowed; a new object of this layout is zeroed.
    unsafe {
        let depth = if outer.is_null() {
            1
        } else {
            (*outer).depth + 1
        };
        let Some(entered_type) = objects().map(|of| of.entered_type) else {
            return null_mut();
        };
        if depth > DEEPEST || (*label).names.is_null() {
            return null_mut();
        }
        let made: *mut Entered = gil.new_object(entered_type).cast();
        if made.is_null() {
            gil.clear_error();
            return made;
        }
        let Some(mut kept) = kept() else {
            return null_mut();
        };
        let outer_set = (!outer.is_null()).then(|| &*(*outer).set);
        let set = kept.names.with(outer_set, &*(*label).names);
        (*made).number = set.number as usize;
        (*made).set = SharedSet::into_raw(set);
        (*made).outer = outer;
        (*made).label = label;
        (*made).depth = depth;
        gil.increment(outer.cast());
        gil.increment(label.cast());
        if (*label).is_kept {
            gil.increment(made.cast());
            let [_, before] = std::mem::replace(&mut (*label).sets[place], [outer, made]);
            drop(kept);
            gil.decrement(before.cast());
        }
        made
    }
}

/// `tp_dealloc` of entered sets.
unsafe extern "C" fn free_entered(this: *mut PyObject) {
    // SAFETY: CPython calls this with the GIL held, for an object without references.
    unsafe {
        let entered = this.cast::<Entered>();
        let (set, outer, label) = ((*entered).set, (*entered).outer, (*entered).label);
        free(this);
        if !set.is_null() {
            drop(SharedSet::from_raw(set));
        }
        if let Ok(api) = Api::get() {
            let gil = Gil::assume(api);
            gil.decrement(label.cast());
            gil.decrement(outer.cast());
        }
    }
}

/// `tp_dealloc` of labels: only of those that are not kept, so it has no sets.
unsafe extern "C" fn free_label(this: *mut PyObject) {
    // SAFETY: as above.
    unsafe {
        let Label { names, last, .. } = this.cast::<Label>().read();
        free(this);
        if let Ok(api) = Api::get() {
            Gil::assume(api).decrement(last.token);
        }
        if !names.is_null() {
            drop(Box::from_raw(names));
        }
    }
}

/// Frees an object's memory, and its reference to its type.
///
/// # Safety
/// The GIL is held; the object is one of ours without references.
unsafe fn free(this: *mut PyObject) {
    let Ok(api) = Api::get() else {
        return;
    };
    // SAFETY: by the caller; each type has the function, which has this signature.
    unsafe {
        let gil = Gil::assume(api);
        let class = (*this).ob_type;
        let function = (api.PyType_GetSlot)(class, TP_FREE);
        let function =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(function);
        function(this.cast());
        gil.decrement(class);
    }
}

/// `tp_repr` of labels.
unsafe extern "C" fn repr(this: *mut PyObject) -> *mut PyObject {
    let Ok(api) = Api::get() else {
        return null_mut();
    };
    // SAFETY: as for `enter`.
    unsafe {
        let gil = Gil::assume(api);
        let names = (*this.cast::<Label>()).names.as_ref();
        let names = names.into_iter().flatten();
        let names: Vec<String> = names
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        let text = format!("nthbyte.label({})", names.join(", "));
        let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
        gil.text(&text).map_or(null_mut(), |text| text.give())
    }
}

/// `tp_call` of labels, as a decorator: `nthbyte._labels.decorator(label)(function)`.
unsafe extern "C" fn call(
    this: *mut PyObject,
    arguments: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let Ok(api) = Api::get() else {
        return null_mut();
    };
    // SAFETY: as for `enter`, with live arguments.
    unsafe {
        let gil = Gil::assume(api);
        gil.call_with_label(this, arguments, keywords)
    }
}
