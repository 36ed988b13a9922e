//! The instructions that a function runs when no conditional jump is taken: its fast path.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, NasmFormatter};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

/// The functions, and how many instructions their fast paths may have.
pub const LIMITS: [(&str, usize); 4] = [
    ("nthbyte_heap_obj_malloc", 12),
    ("nthbyte_heap_obj_free", 14),
    ("nthbyte_heap_mem_malloc", 12),
    ("nthbyte_heap_mem_free", 14),
];

/// A path with more instructions is no fast path.
const LONGEST: usize = 100;

/// The fast path of a function in a shared library for x86-64: from its symbol to the first `ret`,
/// past conditional jumps and along unconditional ones. An error says why there is none.
pub fn fast_path(library: &[u8], symbol: &str) -> Result<Vec<Instruction>, String> {
    let file = object::File::parse(library).map_err(|error| error.to_string())?;
    let address = file
        .symbols()
        .chain(file.dynamic_symbols())
        .find(|found| found.name() == Ok(symbol) && found.is_definition())
        .ok_or_else(|| format!("{symbol}: no such symbol"))?
        .address();
    // The agent's library may have several sections of code.
    let text = file
        .sections()
        .find(|section| {
            let end = section.address() + section.size();
            section.kind() == SectionKind::Text && (section.address()..end).contains(&address)
        })
        .ok_or_else(|| format!("{symbol}: in no section of code"))?;
    let code = text.data().map_err(|error| error.to_string())?;
    let mut decoder = Decoder::with_ip(64, code, text.address(), DecoderOptions::NONE);
    let seek = |decoder: &mut Decoder, address: u64| {
        let offset = address.checked_sub(text.address()).unwrap_or(u64::MAX);
        decoder.set_ip(address);
        let offset = usize::try_from(offset).map_err(|error| error.to_string())?;
        decoder
            .set_position(offset)
            .map_err(|_| format!("{symbol}: leaves the text section"))
    };
    seek(&mut decoder, address)?;
    let mut path = Vec::new();
    while path.len() < LONGEST && decoder.can_decode() {
        let instruction = decoder.decode();
        path.push(instruction);
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            FlowControl::UnconditionalBranch => {
                seek(&mut decoder, instruction.near_branch_target())?
            }
            FlowControl::Return => return Ok(path),
            other => return Err(format!("{symbol}: {other:?} on the fast path")),
        }
    }
    Err(format!(
        "{symbol}: no end after {} instructions",
        path.len()
    ))
}

/// One line for each instruction, without addresses, which differ from build to build.
pub fn listing(path: &[Instruction]) -> String {
    let mut formatter = NasmFormatter::new();
    formatter
        .options_mut()
        .set_space_after_operand_separator(true);
    let mut text = String::new();
    for instruction in path {
        let mut line = String::new();
        formatter.format(instruction, &mut line);
        if instruction.flow_control() == FlowControl::ConditionalBranch {
            line.truncate(line.find(' ').unwrap_or(line.len()));
            line += " slow path";
        }
        text += &format!("    {line}\n");
    }
    text
}
