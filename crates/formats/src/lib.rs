//! Profile formats of other programs: writes four, and reads VMProf's.
//!
//! | module | format | direction |
//! |---|---|---|
//! | [`firefox`] | processed profile of the Firefox Profiler | written |
//! | [`pprof`] | `profile.proto` of Google's pprof | written |
//! | [`otlp`] | OTLP profiles, for an OpenTelemetry Collector | written, in windows |
//! | [`speedscope`] | speedscope's own JSON | written |
//! | [`collapsed`] | collapsed stacks, one per line, for flame graph tools | written |
//! | [`torch`] | PyTorch's snapshots of device memory, a pickle or JSON | read, into a `.nthb` file |
//! | [`vmprof`] | VMProf's binary profile | read, into a `.nthb` file |
//!
//! Every writer streams: besides the [`Profile`](nthbyte_profile::Profile) it keeps only a few bytes
//! for each sample in memory. `docs/formats.md` says how each format represents a profile.
//!
//! Vocabulary of this crate:
//!
//! - *row*: a line of a sample table: one sample, or several merged ones.
//! - *key*: a small number for a property of rows (a stack, or a [leaf](leaves)).
//! - *track*: the rows of one thread, ordered by time.

pub mod collapsed;
mod depth;
pub mod firefox;
mod leaves;
mod meter;
mod names;
mod objects;
pub mod otlp;
pub mod pprof;
mod rounding;
pub mod speedscope;
mod strings;
mod timeline;
pub mod torch;
pub mod vmprof;
mod window;

pub use window::Window;

/// Called repeatedly with the progress of a conversion: the steps done, and the steps in total.
///
/// The unit depends on the format. In the last call both are equal.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);
