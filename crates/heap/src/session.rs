//! Switches sampling on and off, and calls the observer.

use crate::heap::Heap;
use crate::observer::{HeapObserver, NOT_INTERESTED, SampledBlock};
use crate::os;
use crate::page::Tag;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use nthbyte_host::probes;
use nthbyte_sampling::{Countdown, Period, SamplePoints};

impl Heap {
    /// Begins a session: the next allocation is the first that may be sampled. If sampling was on, that session ends.
    ///
    /// The first distances are drawn for the classes in their order, then for the requests that the fallbacks serve.
    /// After that, each sampled allocation draws the distances that it needs.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now. The observer keeps its contract until sampling is switched off
    /// or a new session begins.
    pub unsafe fn start(heap: *mut Self, mut points: SamplePoints, observer: HeapObserver) {
        // SAFETY: by the caller.
        let this = unsafe { &mut *Self::state(heap) };
        this.settle_all();
        for class in &mut this.classes {
            class.allocations = 0;
            class.countdown = Countdown::new(&mut points);
        }
        *this.large_bytes.get_mut() = 0;
        *this.large_until_sample.get_mut() = Countdown::new(&mut points).bytes_until_sample();
        this.points = Some(points);
        this.observer = Some(observer);
        this.lost = 0;
        this.session = this.session.wrapping_add(1);
        this.trim_all();
    }

    /// Switches sampling off. The observer is not called for later frees.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    pub unsafe fn stop(heap: *mut Self) {
        // SAFETY: by the caller.
        let this = unsafe { &mut *Self::state(heap) };
        this.settle_all();
        for class in &mut this.classes {
            class.countdown = Countdown::NEVER;
        }
        *this.large_until_sample.get_mut() = u64::MAX;
        this.points = None;
        this.observer = None;
        this.session = this.session.wrapping_add(1);
        this.trim_all();
    }

    /// Changes the period of a session, if one is on: what remains of each distance is drawn anew, in the order of
    /// [`Heap::start`]. The blocks on the lists were cut for the old distances, so each list is counted first (D1) and cut
    /// again after (D2). This takes tens of microseconds. An observer may call it from `sampled`: the sample that it has
    /// received belongs to the old period.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn set_period(heap: *mut Self, period: Period) {
        let change = |points: &mut SamplePoints| {
            points.set_period(period);
            true
        };
        // SAFETY: by the caller.
        unsafe { Self::draw_anew(heap, change) };
    }

    /// Continues a session in the child of a fork, if one is on: its sample points differ from its parent's, and from
    /// children's with another number. Points with fixed distances stay. Takes as long as [`Heap::set_period`].
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    pub unsafe fn diverge(heap: *mut Self, number: u64) {
        // SAFETY: by the caller.
        unsafe { Self::draw_anew(heap, |points| points.diverge(number)) };
    }

    /// Draws what remains of each distance anew if sampling is on and `change` says so.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[inline(always)]
    unsafe fn draw_anew(heap: *mut Self, change: impl FnOnce(&mut SamplePoints) -> bool) {
        // SAFETY: by the caller.
        let this = unsafe { &mut *Self::state(heap) };
        let Some(mut points) = this.points.take() else {
            return;
        };
        if !change(&mut points) {
            this.points = Some(points);
            return;
        }
        this.settle_all();
        for class in &mut this.classes {
            class.countdown = Countdown::new(&mut points);
        }
        // A request without the lock may store what remained of the old distance at the same moment.
        let large = Countdown::new(&mut points).bytes_until_sample();
        this.large_until_sample.store(large, Relaxed);
        this.points = Some(points);
        this.trim_all();
    }

    #[unsafe(link_section = "nthbyte_hot")]
    fn settle_all(&mut self) {
        for class in 0..self.classes.len() {
            let on_list = self.count(class);
            self.settle(class, on_list);
        }
    }

    #[unsafe(link_section = "nthbyte_hot")]
    fn trim_all(&mut self) {
        let table = Self::table((&raw mut *self).cast());
        for class in 0..self.classes.len() {
            self.trim(class, table);
        }
    }

    /// Passes a sample to the observer and returns its token.
    ///
    /// # Safety
    /// `heap` is a consistent heap, and no reference to it exists: the observer may call it.
    pub(crate) unsafe fn report(heap: *mut Self, sample: &SampledBlock) -> u32 {
        // SAFETY: by the caller; by the contract of `start` the observer may be called.
        unsafe {
            let Some(observer) = (*heap).observer else {
                return NOT_INTERESTED;
            };
            (*heap).observing = true;
            let token = os::keep_errno(|| (observer.sampled)(observer.context, sample));
            (*heap).observing = false;
            token
        }
    }

    /// Reports the free of a sampled block to the observer, if the observer wants it and the session is
    /// the same.
    ///
    /// # Safety
    /// As for [`Heap::report`]; `contents` can be read.
    pub(crate) unsafe fn report_freed(
        heap: *mut Self,
        block: *const c_void,
        contents: *const c_void,
        tag: Tag,
    ) {
        // SAFETY: by the caller; by the contract of `start` the observer may be called.
        unsafe {
            let Some(observer) = (*heap).observer else {
                return;
            };
            if tag.session != (*heap).session || tag.token == NOT_INTERESTED || (*heap).observing {
                return;
            }
            (*heap).observing = true;
            probes::freed(block.addr());
            os::keep_errno(|| (observer.freed)(observer.context, contents, tag.token));
            (*heap).observing = false;
        }
    }
}
