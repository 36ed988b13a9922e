//! Categories: the kind of a frame, shown by a colour.
//!
//! Kinds of code have the colours of footnote 14 of "Low Overhead Allocation Sampling in a Garbage
//! Collected Virtual Machine" (interpreted yellow, JIT orange, native blue), and lifetimes those of
//! its Figure 1 (died young green, survived red); the two lifetimes it does not have get colours of
//! their own.

use nthbyte_profile::event::FrameKind;
use nthbyte_profile::model::Lifetime;
use serde::Serialize;

/// A category: its place in [`ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Category(pub u32);

/// The category of the garbage collector, for frames and markers.
pub(super) const GC: Category = Category(4);

#[derive(Serialize)]
pub(super) struct Description {
    name: &'static str,
    color: &'static str,
    /// The format requires a category called "Other".
    subcategories: [&'static str; 1],
}

const fn describe(name: &'static str, color: &'static str) -> Description {
    Description {
        name,
        color,
        subcategories: ["Other"],
    }
}

/// In the order of their numbers. The page takes the first grey one as the default.
pub(super) const ALL: [Description; 9] = [
    describe("Other", "grey"),
    describe("Interpreted", "yellow"),
    describe("JIT", "orange"),
    describe("Native", "blue"),
    describe("Garbage collector", "purple"),
    describe("Died young", "green"),
    describe("Freed later", "brown"),
    describe("Survived", "red"),
    describe("Still live", "magenta"),
];

/// The category of a frame.
pub(super) const fn of_kind(kind: FrameKind) -> Category {
    match kind {
        FrameKind::Note => Category(0),
        FrameKind::Interpreted => Category(1),
        FrameKind::Jit => Category(2),
        FrameKind::Native => Category(3),
        FrameKind::Gc => GC,
    }
}

/// The category of an object on top of a stack.
pub(super) const fn of_lifetime(lifetime: Lifetime) -> Category {
    match lifetime {
        Lifetime::DiedYoung => Category(5),
        Lifetime::Freed => Category(6),
        Lifetime::Survived => Category(7),
        Lifetime::StillLive => Category(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_categorys_number_is_its_index_in_the_list() {
        let name = |category: Category| ALL[category.0 as usize].name;
        assert_eq!(name(of_kind(FrameKind::Interpreted)), "Interpreted");
        assert_eq!(name(of_kind(FrameKind::Jit)), "JIT");
        assert_eq!(name(of_kind(FrameKind::Native)), "Native");
        assert_eq!(name(of_kind(FrameKind::Gc)), "Garbage collector");
        for lifetime in Lifetime::ALL {
            let spelled = name(of_lifetime(lifetime)).to_lowercase();
            assert_eq!(spelled, crate::names::lifetime(lifetime));
        }
    }
}
