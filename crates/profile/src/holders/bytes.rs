//! A snapshot as the bytes of an event.
//!
//! The process that is profiled knows the first numbers, and the child that looks at the objects the rest. So the bytes
//! have two parts: [`head`], and [`Snapshot::body`].

use super::{Held, Holder, Kind, Link, Reason, Snapshot, SnapshotNode, SnapshotOutcome, Texts};
use crate::event::{Nanos, SampleId};
use crate::varint::{put, take};

/// Bits of a sample's first number.
mod of_sample {
    /// What holds it: a node, garbage, or nothing that was found.
    pub const HOLDER: u64 = 3;
    pub const GARBAGE: u64 = 1;
    pub const NOT_FOUND: u64 = 2;
    pub const IS_DRAWN: u64 = 4;
    pub const COUNTS: u64 = 8;
    pub const IS_RECORDED: u64 = 16;
}

/// The bit of a node's first number for what C code holds.
const HELD_BY_C: u64 = 1;

/// The bytes that come before [`Snapshot::body`].
#[must_use]
pub fn head(process: u32, time: Nanos, reason: Reason, pause: Nanos) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [u64::from(process), time.0, reason as u64, pause.0] {
        put(&mut bytes, number);
    }
    bytes
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(text)
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(take(bytes)?).ok()
}

/// A number below `end`.
fn take_below(bytes: &mut &[u8], end: u32) -> Option<u32> {
    take_u32(bytes).filter(|&number| number < end)
}

impl Snapshot {
    /// The content of an event [`HOLDERS`](super::HOLDERS).
    #[must_use]
    pub fn encode(&self, process: u32) -> Vec<u8> {
        let mut bytes = head(process, self.time, self.reason, self.pause);
        bytes.extend(self.body());
        bytes
    }

    /// The content after the [`head`].
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        let outcome = match &self.outcome {
            SnapshotOutcome::Complete => 0,
            SnapshotOutcome::PathsOnly(_) => 1,
            SnapshotOutcome::NotTaken(_) => 2,
        };
        put(out, outcome);
        put_text(out, self.outcome.reason().unwrap_or_default());
        if outcome == 2 {
            return bytes;
        }
        put(out, self.objects);
        put(out, self.cpu.0);
        put(out, self.period);
        put(out, self.texts.iter().len() as u64);
        for text in self.texts.iter() {
            put_text(out, text);
        }
        put(out, self.nodes.len() as u64);
        for (number, node) in (1..).zip(&self.nodes) {
            put(out, 2 * (node.kind as u64) + u64::from(node.held_by_c));
            put(out, number - u64::from(node.parent));
            put(out, number - u64::from(node.dominator));
            put(out, node.name.into());
            put(out, node.link as u64);
            put(out, node.reference.into());
            put(out, node.len.map_or(0, |len| u64::from(len) + 1));
            put(out, u64::from(node.chain) - 1);
        }
        put(out, self.others.len() as u64);
        let mut last = 0;
        for &(of, other) in &self.others {
            put(out, u64::from(of - last));
            put(out, other.into());
            last = of;
        }
        put(out, self.samples.len() as u64);
        for of in &self.samples {
            put_sample(out, of);
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode), with the number of the process; `None` if the bytes are not valid. So many
    /// bytes make at most some times as many in memory.
    #[must_use]
    pub fn parse(mut bytes: &[u8]) -> Option<(u32, Self)> {
        let from = &mut bytes;
        let process = take_u32(from)?;
        let time = Nanos(take(from)?);
        let mut read = Self::empty(time, Reason::of_number(take(from)?)?);
        read.pause = Nanos(take(from)?);
        let outcome = take(from)?;
        let mut why = Texts::default();
        let why_number = why.push(&String::from_utf8_lossy(take_bytes(from)?));
        let why = why.get(why_number).to_owned();
        read.outcome = match outcome {
            0 => SnapshotOutcome::Complete,
            1 => SnapshotOutcome::PathsOnly(why),
            2 => {
                read.outcome = SnapshotOutcome::NotTaken(why);
                return Some((process, read));
            }
            _ => return None,
        };
        read.objects = take(from)?;
        read.cpu = Nanos(take(from)?);
        read.period = take(from)?;
        for _ in 0..take(from)? {
            let text = take_bytes(from)?;
            read.texts.push(&String::from_utf8_lossy(text));
        }
        let texts = read.texts.len();
        for number in 1..=take_u32(from)? {
            read.nodes.push(take_node(from, number, texts)?);
        }
        let nodes = read.nodes.len() as u32 + 1;
        let mut last = 0_u32;
        for _ in 0..take(from)? {
            last = last.checked_add(take_u32(from)?)?;
            let other = take_below(from, nodes)?;
            if !(1..nodes).contains(&last) || other == 0 {
                return None;
            }
            read.others.push((last, other));
        }
        for _ in 0..take(from)? {
            read.samples.push(take_sample(from, nodes, texts)?);
        }
        Some((process, read))
    }
}

/// Kinds and links of later versions are objects, and links that are not known.
fn take_node(from: &mut &[u8], number: u32, texts: u32) -> Option<SnapshotNode> {
    let kind = take(from)?;
    let parent = number.checked_sub(take_u32(from)?)?;
    let dominator = number.checked_sub(take_u32(from)?)?;
    (parent < number && dominator < number).then_some(())?;
    Some(SnapshotNode {
        dominator,
        parent,
        kind: Kind::of_number(kind >> 1).unwrap_or(Kind::Object),
        held_by_c: kind & HELD_BY_C != 0,
        name: take_below(from, texts)?,
        link: Link::of_number(take(from)?).unwrap_or(Link::Unknown),
        reference: take_below(from, texts)?,
        len: take_u32(from)?.checked_sub(1),
        chain: take_u32(from)?.checked_add(1)?,
    })
}

fn put_sample(out: &mut Vec<u8>, of: &Held) {
    let (holder, node) = match of.by {
        Holder::Node(node) => (0, Some(node)),
        Holder::Garbage => (of_sample::GARBAGE, None),
        Holder::NotFound => (of_sample::NOT_FOUND, None),
    };
    let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    let bits = holder
        + bit(of.is_drawn, of_sample::IS_DRAWN)
        + bit(of.counts, of_sample::COUNTS)
        + bit(of.recorded.is_some(), of_sample::IS_RECORDED);
    put(out, bits);
    if let Some(node) = node {
        put(out, node.into());
    }
    put(out, of.what.into());
    put(out, of.size);
    if let Some(sample) = of.recorded {
        put(out, sample.0.into());
    }
}

fn take_sample(from: &mut &[u8], nodes: u32, texts: u32) -> Option<Held> {
    let bits = take(from)?;
    let by = match bits & of_sample::HOLDER {
        0 => Holder::Node(take_below(from, nodes).filter(|&node| node > 0)?),
        of_sample::GARBAGE => Holder::Garbage,
        _ => Holder::NotFound,
    };
    Some(Held {
        by,
        what: take_below(from, texts)?,
        size: take(from)?.max(1),
        is_drawn: bits & of_sample::IS_DRAWN != 0,
        counts: bits & of_sample::COUNTS != 0,
        recorded: match bits & of_sample::IS_RECORDED {
            0 => None,
            _ => Some(SampleId(take_u32(from)?)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::{HOLDERS, Interner};
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn node(number: u32, texts: u32) -> impl Strategy<Value = SnapshotNode> {
        let trees = (0..number, 0..number, any::<bool>());
        let names = (select(Kind::ALL), 0..texts, select(Link::ALL), 0..texts);
        let len = proptest::option::of(0..u32::MAX);
        (trees, names, len, 1..=u32::MAX).prop_map(
            |((dominator, parent, held_by_c), (kind, name, link, reference), len, chain)| {
                SnapshotNode {
                    dominator,
                    parent,
                    kind,
                    held_by_c,
                    name,
                    link,
                    reference,
                    len,
                    chain,
                }
            },
        )
    }

    fn held(nodes: u32, texts: u32) -> impl Strategy<Value = Held> {
        let by = prop_oneof![
            Just(Holder::Garbage),
            Just(Holder::NotFound),
            (1..nodes).prop_map(Holder::Node),
        ];
        let recorded = proptest::option::of(any::<u32>().prop_map(SampleId));
        (
            by,
            0..texts,
            1_u64..,
            any::<bool>(),
            any::<bool>(),
            recorded,
        )
            .prop_map(|(by, what, size, is_drawn, counts, recorded)| Held {
                by,
                what,
                size,
                is_drawn,
                counts,
                recorded,
            })
    }

    fn outcome() -> impl Strategy<Value = SnapshotOutcome> {
        prop_oneof![
            Just(SnapshotOutcome::Complete),
            ".{0,20}".prop_map(|why| SnapshotOutcome::PathsOnly(plain(&why))),
        ]
    }

    fn plain(text: &str) -> String {
        text.replace(char::is_control, " ")
    }

    fn snapshot() -> impl Strategy<Value = Snapshot> {
        let texts = proptest::collection::vec(".{1,9}", 1..6).prop_map(|texts| {
            let mut names = Interner::default();
            for text in &texts {
                names.intern(&plain(text));
            }
            names.finish()
        });
        (texts, 2..9_u32).prop_flat_map(|(texts, nodes)| {
            let count = texts.len();
            let of_nodes: Vec<_> = (1..nodes).map(|number| node(number, count)).collect();
            let others = proptest::collection::vec((1..nodes, 1..nodes), 0..5);
            let samples = proptest::collection::vec(held(nodes, count), 0..9);
            let numbers = (any::<[u64; 5]>(), select(Reason::ALL), outcome());
            (of_nodes, others, samples, numbers).prop_map(
                move |(nodes, mut others, samples, (numbers, reason, outcome))| {
                    others.sort_unstable();
                    let [time, objects, cpu, pause, period] = numbers;
                    Snapshot {
                        time: Nanos(time),
                        reason,
                        outcome,
                        objects,
                        cpu: Nanos(cpu),
                        pause: Nanos(pause),
                        period,
                        texts: texts.clone(),
                        nodes,
                        others,
                        samples,
                    }
                },
            )
        })
    }

    proptest! {
        #[test]
        fn a_snapshot_is_read_as_it_was_written(of in snapshot(), process: u32) {
            let bytes = of.encode(process);
            prop_assert_eq!(Snapshot::parse(&bytes), Some((process, of)));
            // A cut snapshot is not read as another one.
            prop_assert_eq!(Snapshot::parse(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(of in snapshot(), at: usize, byte: u8) {
            let mut bytes = of.encode(0);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some((_, read)) = Snapshot::parse(&bytes) {
                for (number, node) in (1..).zip(&read.nodes) {
                    prop_assert!(node.parent < number && node.dominator < number);
                    let _ = (read.texts.get(node.name), read.texts.get(node.reference));
                }
                let nodes = read.nodes.len() as u32;
                for of in &read.samples {
                    let _ = read.texts.get(of.what);
                    prop_assert!(!matches!(of.by, Holder::Node(node) if node == 0 || node > nodes));
                }
                for &(of, other) in &read.others {
                    prop_assert!((1..=nodes).contains(&of) && (1..=nodes).contains(&other));
                }
            }
        }
    }

    #[test]
    fn what_was_not_taken_says_why() {
        let not = Snapshot::not_taken(Nanos(5), Reason::End, "there is no room");
        assert_eq!(Snapshot::parse(&not.encode(3)), Some((3, not)));
    }

    #[test]
    fn numbers_are_those_of_the_file() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::of_number(kind as u64), Some(kind));
        }
        for &link in Link::ALL {
            assert_eq!(Link::of_number(link as u64), Some(link));
        }
        for &reason in Reason::ALL {
            assert_eq!(Reason::of_number(reason as u64), Some(reason));
        }
        assert_eq!((HOLDERS, Kind::of_number(99)), (72, None));
    }
}
