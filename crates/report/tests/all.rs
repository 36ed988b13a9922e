//! The tests of questions asked of profiles, in one program: each program more would link all of it once more.

mod coverage;
mod difference;
mod explain;
mod fold;
mod halves;
mod leaks;
mod memory;
mod memory_before;
mod peak;
mod processes;
mod selection;
mod sides;
mod summary;
mod time;
