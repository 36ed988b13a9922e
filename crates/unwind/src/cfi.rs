//! Whether a module's tables for unwinding are read in bounded time.
//!
//! A rule of `.eh_frame` may be an expression: a program for a stack machine, which can branch. `framehop` 0.16 evaluates it
//! with `gimli` and sets no limit ([`gimli::Evaluation::set_max_iterations`]), so that a branch backwards to itself
//! would hold the thread that takes a sample for ever. No compiler and no linker writes branches into these
//! expressions. A module with one is taken for one without tables. A branch forwards is refused too: it may lead
//! into an operand that reads as a branch backwards.
//!
//! Looked at is every entry that a search in `.eh_frame_hdr` can find, as `framehop` finds it. This is for the thread
//! that looks at modules, before any walk uses them.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CommonInformationEntry, EhFrame,
    EhFrameHdr, Encoding, EndianSlice, LittleEndian, Operation, UnwindExpression, UnwindSection,
};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Cie<'a> = CommonInformationEntry<Bytes<'a>>;
type Instruction = CallFrameInstruction<usize>;

/// A walk reads the whole entry of an address that is new to it. The largest functions of real programs have some ten
/// thousand bytes.
const LONGEST_ENTRY: usize = 1 << 20;
/// Entries may overlap in a damaged table. More bytes than this many times the tables' are not read.
const MOST_TIMES: usize = 16;

/// Whether any walk reads these tables in bounded time. They are `.eh_frame_hdr` and `.eh_frame`, and their addresses in
/// the file.
pub(crate) fn is_bounded(header: &[u8], header_at: u64, frames: &[u8], frames_at: u64) -> bool {
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(header_at)
        .set_eh_frame(frames_at);
    let Ok(parsed) = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8) else {
        // Nothing is found in it.
        return true;
    };
    let Some(table) = parsed.table() else {
        return true;
    };
    let mut section = EhFrame::new(frames, LittleEndian);
    section.set_address_size(8);
    let mut left = MOST_TIMES * (header.len() + frames.len());
    // Consecutive entries mostly share the entry that they have in common.
    let mut last: Option<(usize, Cie<'_>)> = None;
    let mut rows = table.iter(&bases);
    while let Ok(Some((_, place))) = rows.next() {
        let Ok(offset) = table.pointer_to_offset(place) else {
            continue;
        };
        let found = section.fde_from_offset(&bases, offset, |section, bases, offset| {
            if let Some((known, cie)) = &last
                && *known == offset.0
            {
                return Ok(cie.clone());
            }
            section.cie_from_offset(bases, offset)
        });
        // What cannot be parsed here, a walk cannot use either.
        let Ok(fde) = found else { continue };
        let cie = fde.cie();
        let is_new = last
            .as_ref()
            .is_none_or(|(known, _)| *known != cie.offset());
        let mut size = fde.entry_len();
        if is_new {
            size = size.saturating_add(cie.entry_len());
        }
        if size > LONGEST_ENTRY || left < size {
            return false;
        }
        left -= size;
        if is_new {
            if has_branches(&section, cie.encoding(), cie.instructions(&section, &bases)) {
                return false;
            }
            last = Some((cie.offset(), cie.clone()));
        }
        if has_branches(&section, cie.encoding(), fde.instructions(&section, &bases)) {
            return false;
        }
    }
    true
}

/// Whether the rules of one entry have a branch.
fn has_branches(
    section: &EhFrame<Bytes<'_>>,
    encoding: Encoding,
    mut instructions: CallFrameInstructionIter<'_, Bytes<'_>>,
) -> bool {
    while let Ok(Some(instruction)) = instructions.next() {
        if has_branch(section, encoding, &instruction) {
            return true;
        }
    }
    false
}

fn has_branch(section: &EhFrame<Bytes<'_>>, encoding: Encoding, instruction: &Instruction) -> bool {
    let expression: &UnwindExpression<usize> = match instruction {
        CallFrameInstruction::DefCfaExpression { expression }
        | CallFrameInstruction::Expression { expression, .. }
        | CallFrameInstruction::ValExpression { expression, .. } => expression,
        _ => return false,
    };
    let Ok(expression) = expression.get(section) else {
        return false;
    };
    let mut operations = expression.operations(encoding);
    while let Ok(Some(operation)) = operations.next() {
        if matches!(operation, Operation::Bra { .. } | Operation::Skip { .. }) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES_AT: u64 = 0x2000;
    const HEADER_AT: u64 = 0x1000;

    fn entry(content: &[u8]) -> Vec<u8> {
        let mut padded = content.to_vec();
        padded.resize(content.len().next_multiple_of(4), 0);
        let mut entry = (padded.len() as u32).to_le_bytes().to_vec();
        entry.extend(padded);
        entry
    }

    /// Tables of one function, with these instructions in the entry that functions have in common, and in its own; and a
    /// header with so many rows for it.
    fn tables(common: &[u8], own: &[u8], rows: u32) -> (Vec<u8>, Vec<u8>) {
        // Version 1, augmentation "", code and data alignment, the column of the return address.
        let cie = entry(&[&[0, 0, 0, 0, 1, 0, 1, 0x78, 16], common].concat());
        let back = cie.len() as u32 + 4;
        let range = [0x10_0000_u64.to_le_bytes(), 0x100_u64.to_le_bytes()].concat();
        let fde = entry(&[&back.to_le_bytes()[..], &range, own].concat());
        // As linkers write it: a signed distance from here, a count, rows of distances from the header.
        let mut header = vec![1, 0x1b, 0x03, 0x3b];
        header.extend(((FRAMES_AT - HEADER_AT - 4) as i32).to_le_bytes());
        header.extend(rows.to_le_bytes());
        for _ in 0..rows {
            header.extend((0x10_0000 - HEADER_AT as i32).to_le_bytes());
            header.extend(((FRAMES_AT - HEADER_AT) as i32 + cie.len() as i32).to_le_bytes());
        }
        let frames = [cie, fde, vec![0; 4]].concat();
        (header, frames)
    }

    fn bounded(common: &[u8], own: &[u8], rows: u32) -> bool {
        let (header, frames) = tables(common, own, rows);
        is_bounded(&header, HEADER_AT, &frames, FRAMES_AT)
    }

    #[test]
    fn expressions_with_branches_are_refused() {
        // A usual rule, and the expression of a procedure linkage table.
        let usual = [0x0c, 7, 8, 0x90, 1];
        let table = [
            0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
        ];
        assert!(bounded(&usual, &table, 1));
        assert!(bounded(&[], &[], 1));
        // `skip` and `bra` to themselves and forwards; for the frame, for a register, and for its value.
        for branch in [
            &[0x2f, 0xfd, 0xff][..],
            &[0x31, 0x28, 0xfc, 0xff],
            &[0x2f, 0x00, 0x00],
            &[0x77, 8, 0x2f, 0x01, 0x00, 0x0b, 0x2f, 0xfd, 0xff],
        ] {
            let length = branch.len() as u8;
            let rules: [&[u8]; 3] = [&[0x0f, length], &[0x10, 6, length], &[0x16, 6, length]];
            for rule in rules {
                let instructions = [rule, branch].concat();
                assert!(!bounded(&usual, &instructions, 1), "{instructions:x?}");
                assert!(!bounded(&instructions, &[], 1), "{instructions:x?}");
                // After another rule, and after an unknown instruction, where a walk ends too.
                assert!(!bounded(&[], &[&usual[..], &instructions].concat(), 1));
                assert!(bounded(&[], &[&[0x3e], &instructions[..]].concat(), 1));
                // No row leads to it.
                assert!(bounded(&usual, &instructions, 0));
            }
        }
    }

    #[test]
    fn what_takes_long_to_read_is_refused() {
        assert!(bounded(&[], &[0; 1000], 10));
        assert!(!bounded(&[], &[0; 1000], 10_000));
        assert!(bounded(&[], &[0; LONGEST_ENTRY / 2], 2));
        assert!(!bounded(&[], &[0; LONGEST_ENTRY + 1], 1));
    }

    /// Whatever is in the tables, this ends, and does not panic but where `gimli` does.
    #[test]
    fn damage_does_no_harm() {
        let table = [
            0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
        ];
        let (header, frames) = tables(&[0x0c, 7, 8], &table, 3);
        for at in 0..header.len() + frames.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let (mut header, mut frames) = (header.clone(), frames.clone());
                match header.get_mut(at) {
                    Some(byte) => *byte = value,
                    None => frames[at - header.len()] = value,
                }
                let check = || is_bounded(&header, HEADER_AT, &frames, FRAMES_AT);
                let _ = std::panic::catch_unwind(check);
            }
        }
    }
}
