//! A host as those below the session see it: [`Keeper`], for each [`Host`].

use std::ops::Range;
use std::time::Duration;

use nthbyte_profile::Composition;
use nthbyte_profile::event::Nanos;

use crate::begin::decide_if_idle;
use crate::contract::Host;
use crate::keeper::Keeper;
use crate::native::{is_recorded, touched};
use crate::ticks::backlog;

impl<H: Host> Keeper for H {
    fn prepare(&self) {
        Host::prepare(self);
    }

    fn keep(&self) -> Option<Duration> {
        decide_if_idle();
        backlog::keep(self)
    }

    fn record_waiting(&self) -> bool {
        backlog::record_with_room(self)
    }

    fn look(&self, now: Nanos, all: bool) -> bool {
        touched::look(now, all)
    }

    fn begin_in_child(&self) {
        Host::begin_in_child(self);
    }

    fn set_native_period(&self, period: u64) {
        if is_recorded() {
            Host::set_native_period(self, period);
        }
    }

    fn arenas(&self, visit: &mut dyn FnMut(Range<usize>)) {
        Host::arenas(self, visit);
    }

    fn restore_huge_pages(&self, from: u32) -> Option<u32> {
        Host::restore_huge_pages(self, from)
    }

    fn own_memory(&self, visit: &mut dyn FnMut(Range<usize>)) {
        Host::own_memory(self, visit);
    }

    fn account(&self, composition: &mut Composition, is_thorough: bool) {
        Host::account(self, composition, is_thorough);
    }
}
