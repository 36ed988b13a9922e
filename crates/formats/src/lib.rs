//! Profile formats of other programs: four that are written, and VMProf's, which is read.
//!
//! | module | format | direction |
//! |---|---|---|
//! | [`firefox`] | processed profile of the Firefox Profiler | written |
//! | [`pprof`] | `profile.proto` of Google's pprof | written |
//! | [`speedscope`] | speedscope's own JSON | written |
//! | [`collapsed`] | collapsed stacks, one a line, for flame graph tools | written |
//! | [`vmprof`] | VMProf's binary profile | read, into a `.nthb` file |
//!
//! Every writer streams: beyond the [`Profile`](nthbyte_profile::Profile) it keeps a few bytes for
//! each sample in memory. `docs/formats.md` says how each format represents a profile.
//!
//! Vocabulary of this crate:
//!
//! - *row*: a line of a sample table: one sample, or several that were merged.
//! - *key*: a small number for what rows have in common (a stack, or a [leaf](leaves)).
//! - *track*: the rows of one thread in the order of time.

pub mod collapsed;
pub mod firefox;
mod leaves;
mod meter;
mod names;
mod objects;
pub mod pprof;
mod rounding;
pub mod speedscope;
mod timeline;
pub mod vmprof;

/// Called from time to time with the progress of a conversion: steps done, and steps in total.
///
/// The unit differs from format to format; the last call has both equal.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);
