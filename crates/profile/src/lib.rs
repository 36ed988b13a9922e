//! The data of a session: the events, the stack tree, and the file (`.nthb`) that contains them.
//!
//! A session makes [`event::Event`]s and passes them to a [`Writer`]; reports and converters use a
//! [`model::Profile`] that a [`Reader`] has read. This crate contains nothing specific to Python.

pub mod activity;
pub mod checkpoint;
mod checksums;
pub mod claim;
pub mod compilation;
pub mod composition;
mod domain;
pub mod event;
pub mod family;
pub mod folder;
pub mod follow;
mod format;
mod groups;
mod halves;
pub mod holders;
mod images;
mod join;
mod knowledge;
mod labels;
mod lines;
mod load;
mod merge;
pub mod meta;
mod missing;
pub mod model;
pub mod names;
mod native_fates;
mod part;
pub mod pressure;
mod processes;
mod reader;
mod samples;
pub mod segment;
mod select;
pub mod shown;
mod sources;
#[cfg(any(test, feature = "synthetic"))]
pub mod synthetic;
pub mod time_order;
mod times;
mod varint;
mod window;
mod writer;

pub use activity::Activity;
pub use compilation::Compilation;
pub use composition::{Composition, Part};
pub use domain::Domain;
pub use format::{Firsts, MAGIC};
pub use groups::{GroupKey, Groups};
pub use halves::{Halves, Halving};
pub use knowledge::{Knowledge, Lifetimes};
pub use labels::{AWAITED_BY, HOST, LabelValues, NO_LABEL, TASK, THREAD};
pub use lines::LineTable;
pub use load::UNKNOWN;
pub use meta::{Distances, Meta, Method, Source, SourceKind, Unit};
pub use missing::{MISSING, Missing};
pub use model::Profile;
pub use pressure::Pressure;
pub use processes::extension;
pub use reader::{Block, Gap, ReadError, Reader};
pub use writer::{Writer, create, create_new};
