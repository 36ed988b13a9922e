//! Whether the program was translated with RPython, and where its collector is.

use nthbyte_rpython::HookedFunction;
use nthbyte_rpython::binary::{
    Collector, Detour, FunctionTable, MappedLibrary, MemoryMap, is_collectors, nursery_setters,
};
use nthbyte_sampling::Sampler;
use nthbyte_session::native::{Kind, Request};

use super::collecting::is_collecting_here;
use super::engine;
use super::hooks::{self, MOST_SETTERS};

/// A program whose collector can be hooked.
#[derive(Debug)]
pub struct HookableProgram {
    /// The collector.
    collector: Collector,
    /// The functions to hook.
    hooks: Vec<Detour>,
    /// Whether one of them is that which allocates the nursery.
    pub knows_setup: bool,
    code: &'static [u8],
}

/// Finds the collector. `None` if the program was not translated with RPython.
///
/// # Errors
/// One clause that says why the collector cannot be hooked. Nothing was changed then.
pub fn find() -> Result<Option<HookableProgram>, String> {
    let Some(program) = MappedLibrary::of_program().filter(MappedLibrary::is_translated) else {
        return Ok(None);
    };
    if program.walks_c_stack() {
        return Err(
            "its collector looks for roots on the C stack (--gcrootfinder=asmgcc)".to_owned(),
        );
    }
    let mut collector = Collector::find_in_program(&program)?;
    check(&collector)?;
    let functions = program.functions.as_ref();
    check_starts(&collector, functions)?;
    let map = MemoryMap::read()?;
    let detour = |function: HookedFunction, target| function.detour(&program, &map, target);
    let mut hooks = vec![
        detour(hooks::reserve(), collector.reserve)?,
        detour(hooks::minor(), collector.minor)?,
    ];
    if let Some(major) = collector.major {
        match detour(hooks::major_step(), major.step) {
            Ok(hook) => hooks.push(hook),
            Err(_) => collector.major = None,
        }
    }
    let setters = functions.map_or(Vec::new(), |functions| {
        nursery_setters(program.code(), program.text.start, &collector, functions)
    });
    let knows_setup = (1..=MOST_SETTERS).contains(&setters.len());
    if knows_setup {
        for (number, &setter) in setters.iter().enumerate() {
            hooks.push(detour(hooks::setter(number), setter)?);
        }
    }
    Ok(Some(HookableProgram {
        collector,
        hooks,
        knows_setup,
        code: program.code(),
    }))
}

/// Before `main`, the collector has no nursery yet: both pointers are null.
fn check(collector: &Collector) -> Result<(), String> {
    let fields = [collector.nursery_free, collector.nursery_top];
    // SAFETY: the search looked that the struct lies in the program's writable memory.
    let values = fields.map(|offset| unsafe { *((collector.gc + offset) as *const usize) });
    match values {
        [0, 0] => Ok(()),
        [free, top] => Err(format!(
            "its nursery is there before it begins: nursery_free {free:#x}, nursery_top {top:#x}"
        )),
    }
}

/// What was found is where the linker says that functions begin, if it does.
fn check_starts(collector: &Collector, functions: Option<&FunctionTable>) -> Result<(), String> {
    let major = collector.major.map(|major| major.step);
    let mut all = [collector.reserve, collector.minor]
        .into_iter()
        .chain(major);
    let is_start =
        |&address: &usize| functions.is_none_or(|table| table.start_of(address) == Some(address));
    match all.find(|address| !is_start(address)) {
        None => Ok(()),
        Some(address) => Err(format!("no function begins at {address:#x}")),
    }
}

impl HookableProgram {
    /// Places the hooks, and begins to sample.
    ///
    /// # Errors
    /// One clause, if the system does not let code be changed. Then nothing stays changed.
    ///
    /// # Safety
    /// No thread of the program is inside of the collector, or can be before this function returns.
    pub unsafe fn begin(&self, sampler: Sampler) -> Result<(), String> {
        for (at, hook) in self.hooks.iter().enumerate() {
            // SAFETY: by the contract.
            if let Err(why) = unsafe { hook.place() } {
                for placed in &self.hooks[..at] {
                    // SAFETY: by the contract. If it fails, the hook stays and only calls the original.
                    let _ = unsafe { placed.remove() };
                }
                return Err(why);
            }
        }
        // SAFETY: by the contract.
        unsafe { engine::begin(&self.collector, sampler) };
        Ok(())
    }

    /// Whether a request of the calling thread is the collector's: its arenas and lists, the nursery. Objects are sampled as
    /// such.
    pub fn is_collectors(&self, request: &Request) -> bool {
        is_collecting_here()
            || request.kind == Kind::Malloc
                && is_collectors(
                    self.code,
                    self.code.as_ptr() as usize,
                    request.size,
                    request.caller,
                    |_| {},
                )
    }
}
