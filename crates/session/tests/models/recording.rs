//! Stands for a recording: it notes the samples that it is given.

use std::marker::PhantomData;

use nthbyte_profile::event::{CpuSample, FrameKind, LostKind, Nanos, NodeId, ThreadId};

#[derive(Default)]
pub(crate) struct Recording<'session> {
    pub(crate) samples: Vec<CpuSample>,
    pub(crate) lost: std::cell::Cell<u64>,
    session: PhantomData<&'session ()>,
}

impl Recording<'_> {
    pub(crate) const fn at(&self, monotonic_nanos: u64) -> Nanos {
        Nanos(monotonic_nanos)
    }

    pub(crate) fn thread(&mut self, _os_id: u64) -> Option<ThreadId> {
        Some(ThreadId(0))
    }

    pub(crate) fn named_node(
        &mut self,
        parent: NodeId,
        _name: &'static str,
        _kind: FrameKind,
    ) -> Option<NodeId> {
        Some(parent)
    }

    pub(crate) fn cpu(&mut self, sample: CpuSample) {
        self.samples.push(sample);
    }

    pub(crate) fn lost(&self, _kind: LostKind, events: u64) {
        self.lost.set(self.lost.get() + events);
    }
}
