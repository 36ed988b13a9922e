//! The hook in PyPy's collector, on x86-64 Linux.
//!
//! ```text
//! search   finds the collector in the library's code            (flow: follows a function's branches)
//! patch    puts hooks in, and takes them out
//! nursery  the arithmetic: where nursery_top stands
//! engine   what is done at a sample and at a collection         (hooks: the hooked functions; large: those of malloc;
//!                                                                backlog: finished events)
//! trap     gets the interpreter's lock
//! vmprof   stacks, through PyPy's own profiler                  (handler: called and listened to; names: of code)
//! chain    stacks, from PyPy's own list                         (list: its elements)
//! stacks   stacks as nodes of the profile                       (nodes: the last ones)
//! young    sampled objects until the next minor collection      (types, python_names, classes: their names)
//! majors   the steps of major collections
//! statistics  memory totals                                   (totals: where the collector keeps them)
//! running  all of it, started and stopped                     (exports: what Python calls before and after)
//! ```

mod backlog;
mod chain;
mod classes;
mod engine;
mod exports;
mod flow;
mod handler;
mod large;
mod library;
mod list;
mod majors;
mod names;
mod nodes;
mod nursery;
mod patch;
mod python_names;
mod running;
mod search;
mod stacks;
mod statistics;
mod totals;
mod trap;
mod types;
mod vmprof;
mod young;

pub use running::{start, stop};
