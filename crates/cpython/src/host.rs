//! CPython as the host of a session: what the session asks, and who answers.

use std::ops::Range;

use nthbyte_profile::Composition;
use nthbyte_profile::event::LabelSetId;
use nthbyte_session::native::{Placed, Request};
use nthbyte_session::{Host, Recording};

use crate::api::FREE_THREADED;
use crate::heap::accounts;
use crate::patches::forks;
use crate::pending;
use crate::sampling::native;
use crate::ticks;

/// The interpreter of this process.
pub struct CPython;

/// See [`CPython`].
pub static HOST: CPython = CPython;

impl Host for CPython {
    fn prepare(&self) {
        nthbyte_unwind::keep_up();
        pending::ask_from_writer();
    }

    fn record_ticks(&self, recording: &mut Recording<'_>) -> usize {
        ticks::record_some(recording, None)
    }

    fn begin_in_child(&self) {
        ticks::begin_in_child();
    }

    fn counts_threads(&self) -> bool {
        forks::will_count()
    }

    fn arenas(&self, visit: &mut dyn FnMut(Range<usize>)) {
        accounts::arenas(visit);
    }

    fn restore_huge_pages(&self, from: u32) -> Option<u32> {
        accounts::collapse_again(from)
    }

    fn own_memory(&self, visit: &mut dyn FnMut(Range<usize>)) {
        accounts::own(visit);
    }

    fn account(&self, composition: &mut Composition, is_thorough: bool) {
        accounts::add(composition, is_thorough);
    }

    fn place(&self, recording: &mut Recording<'_>, _: &Request) -> Option<Placed> {
        native::place(recording, ticks::own_threads::place)
    }

    fn is_own(&self, request: &Request) -> bool {
        // What mimalloc maps is Python's heap, in a build without the GIL.
        FREE_THREADED && request.kind.is_mapping() && nthbyte_mimalloc::is_asking()
    }

    fn labels(&self, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        native::labels(recording)
    }
}
