//! PyPy as the host of a session: what the session asks, and who answers.

use nthbyte_profile::Composition;
use nthbyte_profile::event::LabelSetId;
use nthbyte_session::native::{Placed, Request};
use nthbyte_session::{Host, Recording};

use crate::collector;
use crate::holders::pending;
use crate::labels;
use crate::stacks::{native, ticks};

/// The interpreter of this process.
pub struct PyPy;

/// See [`PyPy`].
pub static HOST: PyPy = PyPy;

impl Host for PyPy {
    fn prepare(&self) {
        pending::ask();
    }

    fn record_ticks(&self, recording: &mut Recording<'_>) -> usize {
        ticks::record_some(recording)
    }

    fn account(&self, composition: &mut Composition, _is_thorough: bool) {
        collector::account(composition);
    }

    fn place(&self, recording: &mut Recording<'_>, request: &Request) -> Option<Placed> {
        native::place(recording, request)
    }

    fn labels(&self, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        labels::here(recording)
    }

    fn is_own(&self, request: &Request) -> bool {
        native::is_own(request)
    }
}
