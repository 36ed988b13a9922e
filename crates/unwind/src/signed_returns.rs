//! Tables of code with pointer authentication, as Debian and Ubuntu build all of theirs for AArch64.
//!
//! Such a function signs its return address, and its entry in `.eh_frame` says from which instruction on
//! (`DW_CFA_AARCH64_negate_ra_state`; DWARF for the Arm 64-bit Architecture, 4.4.2). framehop 0.16 knows no such rule: it would
//! follow the frame pointer instead, which leads to the right caller, but not to where the stack pointer was there. A walk takes every
//! signature off, and does not need the rule. So this replaces it by one that says nothing (`DW_CFA_nop`) in the tables of this crate, which are
//! a private mapping: the pages with such rules are copied, of CPython's and the C library's tables about half a megabyte.

/// The rule, and its newer form for functions that also sign the place of the instruction.
const NEGATE_STATE: [u8; 2] = [0x2d, 0x2c];
const NOP: u8 = 0;

/// Replaces the rule wherever it stands in `.eh_frame`. Returns how often it did.
///
/// An entry of a form that is not known stays as it is from there on. Time: linear.
pub(crate) fn blank(frames: &mut [u8]) -> usize {
    let mut found = 0;
    let mut at = 0;
    let mut common = None;
    while let Some(entry) = Entry::at(frames, at) {
        let begun = if entry.common == entry.id_at {
            common = Common::of(frames, &entry).map(|known| (entry.start, known));
            common.map(|(_, known)| known.rules)
        } else {
            // An entry mostly follows the one that it has in common with its neighbours.
            if common.is_none_or(|(start, _)| start != entry.common) {
                common = Entry::at(frames, entry.common)
                    .and_then(|other| Common::of(frames, &other))
                    .map(|known| (entry.common, known));
            }
            common.and_then(|(_, known)| known.rules_of(frames, &entry))
        };
        if let (Some(begun), Some((_, known))) = (begun, common) {
            found += blank_in(frames, begun, entry.end, known.pointer);
        }
        at = entry.end;
    }
    found
}

/// An entry of the table, by its places in it.
struct Entry {
    start: usize,
    /// Where its number is that tells the kinds of entries apart.
    id_at: usize,
    end: usize,
    /// The start of the entry that it shares with others; its own `id_at` if it is one of those.
    common: usize,
}

impl Entry {
    /// `None` at the end of the table, and of an entry of more than 4 GiB.
    fn at(frames: &[u8], start: usize) -> Option<Self> {
        let length = word(frames, start)?;
        if length == 0 || length == u32::MAX as usize {
            return None;
        }
        let id_at = start + 4;
        let end = id_at.checked_add(length)?;
        if end > frames.len() {
            return None;
        }
        Some(Self {
            start,
            id_at,
            end,
            common: id_at.checked_sub(word(frames, id_at)?)?,
        })
    }
}

/// What entries share.
#[derive(Clone, Copy)]
struct Common {
    /// Where its own rules begin.
    rules: usize,
    /// The size of an address in the others.
    pointer: usize,
    /// Whether the others have further data before their rules, with their length.
    has_data: bool,
}

impl Common {
    fn of(frames: &[u8], entry: &Entry) -> Option<Self> {
        let mut bytes = Bytes {
            frames: frames.get(..entry.end)?,
            at: entry.id_at + 4,
        };
        let version = bytes.byte()?;
        let names = bytes.at;
        while bytes.byte()? != 0 {}
        let names = frames.get(names..bytes.at - 1)?;
        // The units of code and of data, and the register of the return address.
        bytes.number()?;
        bytes.number()?;
        if version == 1 {
            bytes.byte()?;
        } else {
            bytes.number()?;
        }
        let mut known = Self {
            rules: bytes.at,
            pointer: 8,
            has_data: names.first() == Some(&b'z'),
        };
        if known.has_data {
            let length = bytes.number()?;
            known.rules = bytes.at.checked_add(length)?;
            for name in &names[1..] {
                match name {
                    b'R' => known.pointer = size_of_pointer(bytes.byte()?)?,
                    b'L' => _ = bytes.byte()?,
                    b'P' => {
                        let size = size_of_pointer(bytes.byte()?)?;
                        bytes.skip(size)?;
                    }
                    b'S' | b'B' | b'G' => (),
                    _ => return None,
                }
            }
        } else if !names.is_empty() {
            return None;
        }
        Some(known)
    }

    /// Where the rules of an entry begin.
    fn rules_of(&self, frames: &[u8], entry: &Entry) -> Option<usize> {
        let mut bytes = Bytes {
            frames: frames.get(..entry.end)?,
            at: entry.id_at + 4,
        };
        bytes.skip(2 * self.pointer)?;
        if self.has_data {
            let length = bytes.number()?;
            bytes.skip(length)?;
        }
        Some(bytes.at)
    }
}

/// The size of an address with this encoding. `None` if it varies.
const fn size_of_pointer(encoding: u8) -> Option<usize> {
    match encoding & 0xf {
        0x0 | 0x4 | 0xc => Some(8),
        0x2 | 0xa => Some(2),
        0x3 | 0xb => Some(4),
        _ => None,
    }
}

/// Replaces the rule in one entry.
fn blank_in(frames: &mut [u8], start: usize, end: usize, pointer: usize) -> usize {
    let mut found = 0;
    let mut at = start;
    while at < end {
        if NEGATE_STATE.contains(&frames[at]) {
            frames[at] = NOP;
            found += 1;
            at += 1;
            continue;
        }
        let mut bytes = Bytes {
            frames: &frames[..end],
            at,
        };
        if bytes.skip_rule(pointer).is_none() {
            break;
        }
        at = bytes.at;
    }
    found
}

fn word(frames: &[u8], at: usize) -> Option<usize> {
    let bytes = frames.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

struct Bytes<'a> {
    frames: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.frames.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.at = self.at.checked_add(length)?;
        (self.at <= self.frames.len()).then_some(())
    }

    /// A number in the form LEB128, whose sign makes no difference to its length.
    fn number(&mut self) -> Option<usize> {
        let (mut value, mut shift) = (0_usize, 0);
        loop {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn block(&mut self) -> Option<()> {
        let length = self.number()?;
        self.skip(length)
    }

    /// Skips a rule with its operands (DWARF 5, 7.24). `None` if it is not known.
    fn skip_rule(&mut self, pointer: usize) -> Option<()> {
        let rule = self.byte()?;
        match rule {
            0x40..0x80 | 0xc0.. | 0x00 | 0x0a | 0x0b => Some(()),
            0x80..0xc0 | 0x06..=0x08 | 0x0d | 0x0e | 0x13 | 0x2e => self.number().map(|_| ()),
            0x01 => self.skip(pointer),
            0x02 => self.skip(1),
            0x03 => self.skip(2),
            0x04 => self.skip(4),
            0x05 | 0x09 | 0x0c | 0x11 | 0x12 | 0x14 | 0x15 | 0x2f => {
                self.number()?;
                self.number().map(|_| ())
            }
            0x0f => self.block(),
            0x10 | 0x16 => {
                self.number()?;
                self.block()
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry with its length before it, filled up with `DW_CFA_nop`.
    fn entry(content: &[u8]) -> Vec<u8> {
        let mut content = content.to_vec();
        content.resize(content.len().next_multiple_of(4), NOP);
        [&(content.len() as u32).to_le_bytes(), &*content].concat()
    }

    /// A table as GCC writes it for functions that sign their return address, with these rules of one function.
    fn table(names: &[u8], data: &[u8], rules: &[u8]) -> Vec<u8> {
        let units = [0, 4, 0x78, 30, data.len() as u8];
        let common = [&[0; 4], &[1][..], names, &units, data, &[0x0c, 31, 0]].concat();
        let common = entry(&common);
        let back = (common.len() + 4) as u32;
        // Begins at 0x2d2d2d2d: an address is no rule.
        let place = [0x2d; 8];
        let function = [&back.to_le_bytes(), &place[..], &[2, 0x2d, 0x2d], rules].concat();
        [&*common, &entry(&function), &[0; 4]].concat()
    }

    #[test]
    fn the_rule_is_replaced_and_operands_stay() {
        // advance; the rule; CFA at sp + 0x2d; x29 saved; an expression; a location of two bytes; the rule; x30 as it was.
        let rules = [
            0x41, 0x2d, 0x0e, 0x2d, 0x9d, 4, 0x10, 30, 2, 0x2d, 0x2d, 0x03, 0x2d, 0x2d, 0x2d, 0xde,
        ];
        for (names, data) in [
            (&b"zR"[..], &[0x1b][..]),
            (b"zPLR", &[0x9b, 0x2d, 0x2d, 0x2d, 0x2d, 0x1b, 0x1b]),
            (b"zRS", &[0x1b]),
        ] {
            let mut frames = table(names, data, &rules);
            let before = frames.clone();
            assert_eq!(blank(&mut frames), 2);
            let changed: Vec<u8> = before
                .iter()
                .zip(&frames)
                .filter(|(old, new)| old != new)
                .map(|(old, _)| *old)
                .collect();
            assert_eq!(changed, [0x2d, 0x2d]);
            let at = before
                .windows(rules.len())
                .position(|part| part == rules)
                .unwrap();
            assert_eq!((frames[at + 1], frames[at + 14]), (NOP, NOP));
            assert_eq!(blank(&mut frames), 0);
        }
    }

    /// Other bytes than a table are left alone, or changed in some way, but are read in their bounds.
    #[test]
    fn damage_has_an_end() {
        let good = table(b"zR", &[0x1b], &[0x41, 0x2d, 0x0e, 0x20, 0x2d]);
        for length in 0..good.len() {
            blank(&mut good[..length].to_vec());
            for value in [0, 1, 0x2d, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[length] = value;
                blank(&mut bad);
            }
        }
    }
}
