//! Finds the sites of a block's allocations in the tables, each once.

use super::Loader;
use crate::event::{Allocation, LabelSetId, NodeId, TypeId};
use crate::model::{ShapeId, Site, SiteId};

/// A site of a block that has no sample yet.
pub(super) const NO_SITE: (SiteId, ShapeId) = (SiteId(u32::MAX), ShapeId(u32::MAX));

impl Loader {
    /// The site of an allocation in the tables. The block remembers it under its number there, unless what it refers to may
    /// still be defined.
    #[cold]
    pub(super) fn site(&mut self, allocation: &Allocation, number: usize) -> SiteId {
        let type_id = self.type_numbers.get(allocation.type_id.0);
        let is_defined = self.thread_numbers.get(allocation.thread.0).is_some()
            && (allocation.stack == NodeId::ROOT
                || self.node_numbers.get(allocation.stack.0).is_some())
            && (allocation.labels == LabelSetId::NONE
                || self.label_set_numbers.get(allocation.labels.0).is_some())
            && (allocation.type_id == TypeId::UNKNOWN || type_id.is_some());
        let site = Site {
            thread: self.thread(allocation.thread),
            stack: self.stack(allocation.stack),
            labels: self.labels(allocation.labels),
            type_id: TypeId(type_id.unwrap_or(0)),
        };
        let site = self.profile.samples.intern_site(site);
        if is_defined {
            let len = self.block_sites.len().max(number + 1);
            self.block_sites.resize(len, NO_SITE);
            self.block_sites[number].0 = site;
        }
        site
    }
}
