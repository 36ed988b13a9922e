//! Other people's profile formats: written, and VMProf's read.
//!
//! | module | format | direction |
//! |---|---|---|
//! | [`firefox`] | processed profile of the Firefox Profiler | written |
//! | [`pprof`] | `profile.proto` of Google's pprof | written |
//! | [`speedscope`] | speedscope's own JSON | written |
//! | [`collapsed`] | collapsed stacks, one a line, for flame graph tools | written |
//! | [`vmprof`] | VMProf's binary profile | read, into a `.nthb` file |
//!
//! Every writer streams: what it holds in memory beyond the [`Profile`](nthbyte_profile::Profile)
//! is a few bytes a sample. `docs/formats.md` says, for each, what becomes of what.
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

/// Told now and then how far a conversion is: steps done, and steps in all.
///
/// The unit differs from format to format; the last call has both equal.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);
