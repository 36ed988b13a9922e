//! Sampling inside a stock PyPy.
//!
//! ```text
//! search   finds the collector in the library's code            (flow: follows a function's branches)
//! patch    puts hooks in, and takes them out
//! nursery  the arithmetic: where nursery_top stands
//! engine   the hooked functions
//! vmprof   stacks, through PyPy's own profiler                  (stacks: as nodes of the profile)
//! young    sampled objects until the next minor collection      (types, python_names, classes: their names)
//! statistics  collections and memory totals
//! running  all of it, started and stopped                     (exports: what Python calls before and after)
//! ```
//!
//! The hook works on x86-64 Linux. Elsewhere, and where it cannot be placed, `fallback` takes a sample at
//! every k-th minor collection from what `gc.hooks` tells.

mod classes;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod engine;
mod exports;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod flow;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod library;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod nursery;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod patch;
mod python_names;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod running;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod search;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod stacks;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod statistics;
mod types;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod vmprof;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod young;

pub use running::{is_here, start, stop};
