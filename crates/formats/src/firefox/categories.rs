//! Categories: the kind of a frame, shown by a colour.
//!
//! Kinds of code have the colours of footnote 14 of "Low Overhead Allocation Sampling in a Garbage
//! Collected Virtual Machine" (interpreted yellow, native blue), and lifetimes of its Figure 1 (died young green,
//! survived red); the two lifetimes it does not have get colours of their own.
//!
//! A function of PyPy is run by the interpreter first, and later as machine code. The page draws a row with two categories
//! grey, and cannot focus on it: so Python is one category, and interpreted code and machine code of the JIT are its
//! subcategories. The price is footnote 14's orange.

use nthbyte_profile::event::FrameKind;
use nthbyte_profile::model::Lifetime;
use serde::Serialize;

/// A category with its subcategory: places in [`ALL`] and in its `subcategories`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Category {
    pub number: u32,
    pub subcategory: u32,
}

/// The category of the garbage collector, for frames and markers.
pub(super) const GC: Category = whole(3);

/// The category of the JIT compiler's work, for markers.
pub(super) const JIT: Category = python(2);

#[derive(Serialize)]
pub(super) struct Description {
    name: &'static str,
    color: &'static str,
    /// The format requires that the first one is called "Other".
    subcategories: &'static [&'static str],
}

const fn describe(name: &'static str, color: &'static str) -> Description {
    Description {
        name,
        color,
        subcategories: &["Other"],
    }
}

/// In the order of their numbers. The page takes the first grey one as the default.
pub(super) const ALL: [Description; 8] = [
    describe("Other", "grey"),
    Description {
        name: "Python",
        color: "yellow",
        subcategories: &["Other", "Interpreted", "JIT"],
    },
    describe("Native", "blue"),
    describe("Garbage collector", "purple"),
    describe("Died young", "green"),
    describe("Freed later", "brown"),
    describe("Survived", "red"),
    describe("Still live", "magenta"),
];

/// A category without subcategories.
const fn whole(number: u32) -> Category {
    Category {
        number,
        subcategory: 0,
    }
}

/// Python code, of one of the two kinds.
const fn python(subcategory: u32) -> Category {
    Category {
        number: 1,
        subcategory,
    }
}

pub(super) const fn of_kind(kind: FrameKind) -> Category {
    match kind {
        FrameKind::Note => whole(0),
        FrameKind::Interpreted => python(1),
        FrameKind::Jit => python(2),
        FrameKind::Native => whole(2),
        FrameKind::Gc => GC,
    }
}

/// The category of an object on top of a stack.
pub(super) const fn of_lifetime(lifetime: Lifetime) -> Category {
    whole(match lifetime {
        Lifetime::DiedYoung => 4,
        Lifetime::Freed => 5,
        Lifetime::Survived => 6,
        Lifetime::StillLive => 7,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_categorys_number_is_its_index_in_the_list() {
        let name = |category: Category| {
            let of = &ALL[category.number as usize];
            (of.name, of.subcategories[category.subcategory as usize])
        };
        let interpreted = of_kind(FrameKind::Interpreted);
        assert_eq!(name(interpreted), ("Python", "Interpreted"));
        assert_eq!(name(of_kind(FrameKind::Jit)), ("Python", "JIT"));
        assert_eq!(name(of_kind(FrameKind::Native)), ("Native", "Other"));
        assert_eq!(name(of_kind(FrameKind::Gc)), ("Garbage collector", "Other"));
        for lifetime in Lifetime::ALL {
            let spelled = name(of_lifetime(lifetime)).0.to_lowercase();
            assert_eq!(spelled, crate::names::lifetime(lifetime));
        }
    }
}
