//! The few instructions that the search looks at, and the known values of registers.
//!
//! An address of the library's data takes two instructions (`adrp`, and `add` or the offset of a load), which may be far from each other.
//! So the registers are followed from one instruction to the next.

/// The register that is zero, or the stack pointer.
const ZERO: usize = 31;
/// What a call leaves of no value: x0 to x18, and the link register.
const LOST_AT_CALLS: [std::ops::RangeInclusive<usize>; 2] = [0..=18, 30..=30];

/// What an instruction does, as far as the search is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Calls a function.
    Call(usize),
    /// Jumps.
    Jump(usize),
    /// Jumps under a condition.
    Branch(usize),
    /// Calls what a register has.
    CallRegister,
    /// Returns, or jumps to what a register has; or no instruction at all.
    End,
    /// Loads a word into a register, from a base register and an offset.
    Load(usize, usize, usize),
    /// Stores the word of a register.
    Store(usize, usize, usize),
    /// Stores two registers.
    StorePair([usize; 2], usize, usize),
    /// Compares two registers.
    Compare(usize, usize),
    /// Sets a register to an address, or another constant.
    Set(usize, usize),
    /// Adds a constant to a register.
    Add(usize, usize, usize),
    /// Copies a register.
    Move(usize, usize),
    /// What does not matter, and the registers that it may change.
    Other([usize; 2]),
}

/// The word at an offset in code.
pub fn word(code: &[u8], at: usize) -> Option<u32> {
    let bytes = code.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

const fn bits(word: u32, low: u32, count: u32) -> usize {
    (word >> low & ((1 << count) - 1)) as usize
}

/// A number of `count` bits with a sign, times `unit`.
const fn signed(word: u32, low: u32, count: u32, unit: isize) -> isize {
    ((word << (32 - low - count)).cast_signed() >> (32 - count)) as isize * unit
}

impl Instruction {
    /// The instruction `word` at the address `at`.
    pub const fn decode(word: u32, at: usize) -> Self {
        let [rd, rn, rt2, rm] = [
            bits(word, 0, 5),
            bits(word, 5, 5),
            bits(word, 10, 5),
            bits(word, 16, 5),
        ];
        if word & 0xfc00_0000 == 0x9400_0000 {
            return Self::Call(at.wrapping_add_signed(signed(word, 0, 26, 4)));
        }
        if word & 0xfc00_0000 == 0x1400_0000 {
            return Self::Jump(at.wrapping_add_signed(signed(word, 0, 26, 4)));
        }
        if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
            return Self::Branch(at.wrapping_add_signed(signed(word, 5, 19, 4)));
        }
        if word & 0x7e00_0000 == 0x3600_0000 {
            return Self::Branch(at.wrapping_add_signed(signed(word, 5, 14, 4)));
        }
        // Branches to registers: blr and its signed forms; br, ret and theirs.
        if word & 0xfe00_0000 == 0xd600_0000 {
            return if bits(word, 21, 2) == 1 {
                Self::CallRegister
            } else {
                Self::End
            };
        }
        if word >> 16 == 0 || word & 0xffe0_001f == 0xd420_0000 {
            return Self::End;
        }
        if word & 0x9f00_0000 == 0x9000_0000 {
            let pages = signed(word, 5, 19, 4) + bits(word, 29, 2) as isize;
            return Self::Set(rd, (at >> 12 << 12).wrapping_add_signed(pages << 12));
        }
        if word & 0x7fe0_0000 == 0x5280_0000 {
            return Self::Set(rd, bits(word, 5, 16));
        }
        if word & 0xff80_0000 == 0x9100_0000 {
            return Self::Add(rd, rn, bits(word, 10, 12) << (12 * bits(word, 22, 1)));
        }
        if word & 0xffe0_ffe0 == 0xaa00_03e0 {
            return Self::Move(rd, rm);
        }
        if word & 0xffe0_fc1f == 0xeb00_001f {
            return Self::Compare(rn, rm);
        }
        match word & 0xffc0_0000 {
            0xf940_0000 => return Self::Load(rd, rn, 8 * bits(word, 10, 12)),
            0xf900_0000 => return Self::Store(rd, rn, 8 * bits(word, 10, 12)),
            0xa900_0000 => {
                let offset = signed(word, 15, 7, 8).cast_unsigned();
                return Self::StorePair([rd, rt2], rn, offset);
            }
            _ => {}
        }
        Self::Other(changed(word))
    }
}

/// The registers that an instruction of another kind may change.
const fn changed(word: u32) -> [usize; 2] {
    let [rd, rn] = [bits(word, 0, 5), bits(word, 5, 5)];
    if bits(word, 25, 4) & 0b101 != 0b100 {
        return [rd, ZERO];
    }
    // A load or a store. The base register changes where the offset is added before or after.
    let is_pair = bits(word, 27, 3) == 0b101;
    let adds = match (bits(word, 27, 3), bits(word, 24, 2)) {
        (0b101, _) => bits(word, 23, 1) == 1,
        (0b111, 0) => bits(word, 21, 1) == 0 && bits(word, 10, 1) == 1,
        _ => false,
    };
    let is_vector = bits(word, 26, 1) == 1;
    let first = if is_vector { ZERO } else { rd };
    let second = if adds {
        rn
    } else if is_pair && !is_vector {
        bits(word, 10, 5)
    } else {
        ZERO
    };
    [first, second]
}

/// A register's value, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    #[default]
    Unknown,
    /// This number.
    Is(usize),
    /// What was loaded from this address.
    At(usize),
}

/// All registers' values.
#[derive(Clone, Debug)]
pub struct Registers([Value; 32]);

impl Registers {
    pub const fn new() -> Self {
        Self([Value::Unknown; 32])
    }

    /// A register's value. The register zero is 0.
    pub const fn value(&self, register: usize) -> Value {
        match register {
            ZERO => Value::Is(0),
            _ => self.0[register],
        }
    }

    /// The address of a register and an offset, if it is known; the stack's is not.
    pub fn address(&self, base: usize, offset: usize) -> Option<usize> {
        match self.0[base] {
            Value::Is(address) if base != ZERO => Some(address.wrapping_add(offset)),
            _ => None,
        }
    }

    /// Follows an instruction.
    pub fn step(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Set(register, value) => self.set(register, Value::Is(value)),
            Instruction::Add(to, from, number) => {
                let sum = self.address(from, number);
                self.set(to, sum.map_or(Value::Unknown, Value::Is));
            }
            Instruction::Move(to, from) => self.set(to, self.value(from)),
            Instruction::Load(to, base, offset) => {
                let from = self.address(base, offset);
                self.set(to, from.map_or(Value::Unknown, Value::At));
            }
            Instruction::Other(registers) => {
                for register in registers {
                    self.set(register, Value::Unknown);
                }
            }
            Instruction::Call(_) | Instruction::CallRegister => {
                for register in LOST_AT_CALLS.into_iter().flatten() {
                    self.0[register] = Value::Unknown;
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, register: usize, value: Value) {
        if register != ZERO {
            self.0[register] = value;
        }
    }
}
