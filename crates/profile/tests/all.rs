//! The tests of the file and the tables, in one program: each program more would link all of it once more.

mod claim;
mod created;
mod damage;
mod extensions;
mod halves;
mod lines;
mod lost;
mod model;
#[path = "processes/main.rs"]
mod processes;
mod read_format;
mod round_trip;
mod selection;
mod sources;
