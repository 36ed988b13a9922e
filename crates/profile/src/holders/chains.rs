//! The nodes of a snapshot that is made.

use super::{Kind, Link, SnapshotNode};

/// Nodes in their order. Objects that refer to the next one as the one before refers to them are one node: a linked list.
#[derive(Debug, Default)]
pub struct Chains(Vec<SnapshotNode>);

impl Chains {
    /// Adds a node after the nodes above it, and returns its number: its own, or its chain's.
    pub fn push(&mut self, node: SnapshotNode) -> u32 {
        if let Some(before) = (node.parent as usize).checked_sub(1)
            && node.parent == node.dominator
            && node.kind == Kind::Object
            && matches!(node.link, Link::Attribute | Link::Element)
            && let Some(before) = self.0.get_mut(before)
            && (before.kind, before.name) == (node.kind, node.name)
            && (before.link, before.reference) == (node.link, node.reference)
        {
            before.chain = before.chain.saturating_add(1);
            return node.parent;
        }
        self.0.push(node);
        self.0.len() as u32
    }

    /// The nodes.
    #[must_use]
    pub fn finish(self) -> Vec<SnapshotNode> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_list_is_one_node_and_what_branches_is_not() {
        let mut chains = Chains::default();
        let mut add = |parent, dominator, reference| {
            chains.push(SnapshotNode {
                dominator,
                parent,
                kind: Kind::Object,
                held_by_c: false,
                name: 1,
                link: Link::Attribute,
                reference,
                len: None,
                chain: 1,
            })
        };
        let root = add(0, 0, 2);
        let first = add(root, root, 3);
        assert_eq!([root, first], [1, 2]);
        assert_eq!(add(first, first, 3), first);
        assert_eq!(add(first, first, 3), first);
        // By another name, or also held by others.
        assert_eq!(add(first, first, 4), 3);
        assert_eq!(add(first, root, 3), 4);
        let chain: Vec<_> = chains.finish().iter().map(|node| node.chain).collect();
        assert_eq!(chain, [1, 3, 1, 1]);
    }
}
