//! The tests of questions asked of profiles, in one program: each program more would link all of it once more.

mod coverage;
mod difference;
mod difference_limits;
mod explain;
mod fold;
mod halves;
mod held;
mod holders;
mod killed;
mod knowledge;
mod leaks;
mod memory;
mod memory_before;
mod peak;
mod processes;
mod rounds;
mod selection;
mod service;
mod sides;
mod suite;
mod summary;
mod time;
