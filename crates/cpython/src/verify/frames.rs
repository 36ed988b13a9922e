//! Checks the current thread, its frames and their code objects.

use std::ffi::CStr;
use std::ptr::null_mut;

use super::{MODULE, Reader, Subject, check};
use crate::api::{Api, Gil, METH_NOARGS, MethodDef, OB_TYPE, Object, Owned, PyObject};
use crate::layout::{Entries, Layout, UNUSED};

/// The largest number of frames that are compared, from the innermost one.
const MOST: usize = 256;
/// `enum _frameowner`: the owners of a function's frame and of a generator's frame.
const OWNED_BY_THREAD: u8 = 0;
const OWNED_BY_GENERATOR: u8 = 1;

const THREADS: Subject = "thread states";
const FRAMES: Subject = "frames";
const CODE: Subject = "code objects";

/// Compares the state of the current thread.
pub fn verify_thread(gil: &Gil, layout: &Layout, reader: Reader) -> Result<(), Subject> {
    // SAFETY: no arguments.
    let native = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    check(
        reader.read::<u64>(thread(gil), layout.native_thread_id) == Some(native),
        THREADS,
    )
}

fn thread(gil: &Gil) -> usize {
    // SAFETY: the GIL is held.
    unsafe { (gil.api().PyThreadState_GetUnchecked)() as usize }
}

/// The input and the result of the callback's comparison.
struct Comparison {
    layout: Layout,
    reader: Reader,
    /// The address of the callback itself: the first variable of the two innermost frames.
    callback: usize,
    result: Result<(), Subject>,
}

/// Compares the frames of a generator, of the function that runs it, and of its callers. Returns the function's result.
pub fn verify<'gil>(
    gil: &'gil Gil,
    layout: &Layout,
    reader: Reader,
) -> Result<Owned<'gil>, Subject> {
    let mut comparison = Comparison {
        layout: *layout,
        reader,
        callback: 0,
        result: Err(FRAMES),
    };
    let address = (&raw mut comparison) as isize;
    let mut method = MethodDef {
        name: c"nthbyte".as_ptr(),
        function: Some(compare),
        flags: METH_NOARGS,
        doc: std::ptr::null(),
    };
    let instance = {
        let bound = gil.integer(address).ok_or(FRAMES)?;
        // SAFETY: the definition outlives the function, because no code keeps a reference to the function after
        // `verify`.
        let callback = unsafe { gil.function(&raw mut method, Some(*bound)) }.ok_or(FRAMES)?;
        comparison.callback = callback.address();
        let subjects = gil
            .import(MODULE)
            .and_then(|module| module.attribute(c"subjects"))
            .ok_or("modules")?;
        subjects.call_with(*callback).ok_or(FRAMES)?
    };
    comparison.result.map(|()| instance)
}

/// The generator calls this function. It is bound to the address of a [`Comparison`].
unsafe extern "C" fn compare(bound: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let Ok(api) = Api::get() else {
        return null_mut();
    };
    // SAFETY: Python calls this with the GIL held. The address is of a variable of `verify`, which has not returned.
    let gil = unsafe { Gil::assume(api) };
    // SAFETY: the object is live.
    let address = unsafe { gil.object(bound) }.and_then(|bound| bound.integer());
    if let Some(address) = address {
        // SAFETY: as above; `verify` does not touch it meanwhile.
        let comparison = unsafe { &mut *(address as *mut Comparison) };
        comparison.result = comparison.run(&gil);
    }
    gil.none().give()
}

impl Comparison {
    fn run(&self, gil: &Gil) -> Result<(), Subject> {
        check(self.chunk_is_consistent(gil) == Some(true), THREADS)?;
        let (seen, has_entry) = self.walk(gil).ok_or(FRAMES)?;
        // `verify` called Python from C, so such a frame exists in versions that have them.
        let entries = self.layout.features.entries;
        check(has_entry == (entries == Entries::Frames), FRAMES)?;
        check(self.calls_are_marked(gil, entries) == Some(true), FRAMES)?;
        let mut frame = gil.frame();
        let mut top = None;
        for walked in &seen {
            let public = frame.ok_or("the chain of frames")?;
            // SAFETY: it is a frame.
            let (back, code, lasti) = unsafe { public.of_frame() };
            let code = code.ok_or(FRAMES)?;
            if code.address() != walked.code && self.is_before_init(walked.code) {
                // The public chain leaves it out.
                frame = Some(public);
                continue;
            }
            let offset = walked
                .instruction
                .wrapping_sub(walked.code.wrapping_add(self.layout.code_instructions));
            check(
                code.address() == walked.code && i64::from(lasti) == offset as i64,
                FRAMES,
            )?;
            top.get_or_insert(code);
            frame = back;
        }
        check(frame.is_none() || seen.len() == MOST, "the chain of frames")?;
        let [generator, function, ..] = seen.as_slice() else {
            return Err(FRAMES);
        };
        check(
            generator.owner == OWNED_BY_GENERATOR
                && function.owner == OWNED_BY_THREAD
                && generator.local == Some(self.callback)
                && function.local == Some(self.callback),
            FRAMES,
        )?;
        self.verify_code(*top.ok_or("no frame")?)
    }

    /// Whether it is the code that CPython 3.13 and later run between a class and its `__init__` (`_Py_InitCleanup`), which has its name for a file.
    fn is_before_init(&self, code: usize) -> bool {
        let word = |offset| self.reader.read::<usize>(code, offset);
        let name = word(self.layout.code_qualname);
        name.is_some() && name == word(self.layout.code_filename)
    }

    /// The innermost frames with code, by the layout, and whether frames without code lie between them.
    fn walk(&self, gil: &Gil) -> Option<(Vec<Walked>, bool)> {
        let (layout, reader) = (&self.layout, self.reader);
        let tags = layout.features.reference_tags;
        let code_type = gil.api().PyCode_Type as usize;
        let holder = match layout.thread_cframe {
            UNUSED => thread(gil),
            offset => reader.read::<usize>(thread(gil), offset)?,
        };
        let mut frame = reader.read::<usize>(holder, layout.current_frame)?;
        let mut seen = Vec::new();
        let mut has_entry = false;
        // Frames without code lie between the others, one for each call from C.
        for _ in 0..2 * MOST {
            if frame == 0 || seen.len() == MOST {
                break;
            }
            let owner = reader.read::<u8>(frame, layout.frame_owner)?;
            has_entry |= owner >= layout.features.first_owner_without_code;
            let code = reader.read::<usize>(frame, layout.frame_code)? & !tags;
            if owner < layout.features.first_owner_without_code
                && code != 0
                && reader.read::<usize>(code, OB_TYPE)? == code_type
            {
                seen.push(Walked {
                    code,
                    instruction: reader.read::<usize>(frame, layout.frame_instruction)?,
                    owner,
                    local: reader
                        .read::<usize>(frame, layout.frame_locals)
                        .map(|local| local & !tags),
                });
            }
            frame = reader.read::<usize>(frame, layout.frame_previous)?;
        }
        Some((seen, has_entry))
    }

    /// Whether the end of the chunk of frames is where its size says, and the frames end inside of it.
    fn chunk_is_consistent(&self, gil: &Gil) -> Option<bool> {
        let word = |place: usize, at: usize| self.reader.read::<usize>(place, at);
        let (thread, at) = (thread(gil), self.layout.thread_chunk);
        let (chunk, top, limit) = (
            word(thread, at)?,
            word(thread, at.checked_add(8)?)?,
            word(thread, at.checked_add(16)?)?,
        );
        let size = word(chunk, 8)?;
        Some((chunk + 24..=limit).contains(&top) && chunk.checked_add(size) == Some(limit))
    }

    /// Whether the call that runs the innermost frames ends where the call before it goes on, if calls are marked by
    /// `_PyCFrame`.
    fn calls_are_marked(&self, gil: &Gil, entries: Entries) -> Option<bool> {
        let (layout, reader) = (&self.layout, self.reader);
        let Entries::CFrames {
            frame_is_entry,
            cframe_previous,
        } = entries
        else {
            return Some(true);
        };
        let call = reader.read::<usize>(thread(gil), layout.thread_cframe)?;
        let before = reader.read::<usize>(call, cframe_previous)?;
        let outside = reader.read::<usize>(before, layout.current_frame)?;
        let mut frame = reader.read::<usize>(call, layout.current_frame)?;
        for _ in 0..MOST {
            let previous = reader.read::<usize>(frame, layout.frame_previous)?;
            match reader.read::<u8>(frame, frame_is_entry)? {
                0 if previous != outside => frame = previous,
                flag => return Some(flag == 1 && previous == outside),
            }
        }
        None
    }

    fn verify_code(&self, code: Object<'_>) -> Result<(), Subject> {
        let (layout, reader) = (&self.layout, self.reader);
        let public = |name: &CStr| code.attribute(name).ok_or(CODE);
        for (name, offset) in [
            (c"co_qualname", layout.code_qualname),
            (c"co_filename", layout.code_filename),
            (c"co_linetable", layout.code_linetable),
        ] {
            check(reader.is(code, offset, public(name)?.address()), CODE)?;
        }
        let line = public(c"co_firstlineno")?.integer();
        let read = reader.read::<u32>(code.address(), layout.code_first_line);
        check(
            line.is_some() && line == read.map(i64::from),
            "line numbers",
        )?;
        let flags = public(c"co_flags")?.integer();
        let read = reader.read::<u32>(code.address(), layout.code_flags);
        check(flags.is_some() && flags == read.map(i64::from), CODE)?;
        let table = public(c"co_linetable")?;
        let (length, bytes) = (table.length(), table.bytes().ok_or(CODE)?);
        check(
            length.is_some()
                && reader.read::<usize>(table.address(), layout.var_size) == length
                && table.address().wrapping_add(layout.bytes_value) == bytes as usize,
            "bytes",
        )
    }
}

struct Walked {
    code: usize,
    instruction: usize,
    owner: u8,
    local: Option<usize>,
}
