//! The search in a made library.

use super::*;
use crate::binary::agreement::FEWEST_SITES;

const TEXT: usize = 0x40_0000;
const DATA: Range<usize> = 0x80_0000..0x80_4000;
const GC: usize = 0x80_1200;
const FREE: usize = 0x198;
const TOP: usize = 0x1b8;
const STATE: usize = 0xd0;

/// Machine code, mapped at `TEXT`.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn here(&self) -> usize {
        TEXT + self.0.len()
    }

    fn word(&mut self, word: usize) -> &mut Self {
        self.0.extend((word as u32).to_le_bytes());
        self
    }

    /// `adrp` and `add`.
    fn address(&mut self, register: usize, address: usize) -> &mut Self {
        let pages = (address >> 12).wrapping_sub(self.here() >> 12);
        self.word(0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5 | register);
        self.word(0x9100_0000 | (address & 0xfff) << 10 | register << 5 | register)
    }

    fn load(&mut self, to: usize, base: usize, offset: usize) -> &mut Self {
        self.word(0xf940_0000 | offset / 8 << 10 | base << 5 | to)
    }

    fn store(&mut self, from: usize, base: usize, offset: usize) -> &mut Self {
        self.word(0xf900_0000 | offset / 8 << 10 | base << 5 | from)
    }

    fn set(&mut self, register: usize, number: usize) -> &mut Self {
        self.word(0xd280_0000 | number << 5 | register)
    }

    fn call(&mut self, target: usize) -> &mut Self {
        let distance = target.wrapping_sub(self.here()) >> 2 & 0x3ff_ffff;
        self.word(0x9400_0000 | distance)
    }

    fn end(&mut self) -> &mut Self {
        self.word(0xd65f_03c0)
    }

    /// An allocation; `late`: the store comes after the comparison.
    fn allocation(&mut self, gc: usize, size: usize, target: usize, late: bool) -> &mut Self {
        self.address(8, gc).load(0, 8, FREE).load(2, 8, TOP);
        // add x1, x0, #size
        self.word(0x9100_0001 | size << 10);
        if !late {
            self.store(1, 8, FREE);
        }
        // cmp x1, x2; b.ls over the slow path
        self.word(0xeb02_003f).word(0x5400_0009 | 5 << 5);
        if late {
            self.store(1, 8, FREE);
        }
        // mov x0, x8
        self.word(0xaa08_03e0).set(1, size).call(target)
    }
}

/// A library with a collector and so many allocations. Returns it with the collector to be found.
fn library(allocations: usize, of_other: usize, states: usize) -> (Vec<u8>, Collector) {
    let mut code = Code::default();
    let minor = code.here();
    code.store(31, 0, FREE).store(1, 0, TOP).end();
    let step = code.here();
    for state in 0..states {
        code.set(3, state).store(3, 19, STATE);
    }
    code.end();
    let progress = code.here();
    code.call(minor).call(step).end();
    let reserve = code.here();
    code.call(minor)
        .call(progress)
        .store(1, 19, FREE)
        .store(2, 19, TOP)
        .end();
    for number in 0..allocations {
        code.allocation(GC, 16 + 8 * (number % 8), reserve, number % 3 == 0);
    }
    for _ in 0..of_other {
        code.set(1, 8).call(progress);
    }
    let collector = Collector {
        gc: GC,
        reserve,
        minor,
        nursery_free: FREE,
        nursery_top: TOP,
        major: (states == 4).then_some(crate::binary::incminimark::Major { step, state: STATE }),
        sites: FEWEST_SITES,
        runner_up: 0,
    };
    (code.0, collector)
}

#[test]
fn the_collector_is_found_by_its_allocations() {
    let (code, collector) = library(600, 20, 4);
    assert_eq!(search(&code, TEXT, &DATA), Ok(collector));
    // The code has no function that sets each state.
    let (code, collector) = library(600, 20, 3);
    assert_eq!(search(&code, TEXT, &DATA), Ok(collector));
}

#[test]
fn what_does_not_agree_is_refused() {
    let refusal = |allocations, of_other| {
        let (code, _) = library(allocations, of_other, 4);
        search(&code, TEXT, &DATA).unwrap_err()
    };
    assert!(refusal(499, 0).contains("do not agree on one collector (499 against 0)"));
    assert!(refusal(499, 499).contains("do not agree"));
    assert_eq!(
        search(&[], TEXT, &DATA).unwrap_err(),
        "no allocation site was found"
    );
    let (code, _) = library(600, 0, 4);
    let elsewhere = 0x90_0000..0x90_1000;
    assert_eq!(
        search(&code, TEXT, &elsewhere).unwrap_err(),
        "the collector's struct is not clear"
    );
}

/// Instructions as `objdump` lists them in Debian's PyPy 8.0.1.
#[test]
fn instructions_of_pypy() {
    let at = 0x10_3078;
    for (word, instruction) in [
        (0x9400_0002, Instruction::Call(at + 8)),
        (0x97ff_ffff, Instruction::Call(at - 4)),
        (0x17ff_fffe, Instruction::Jump(at - 8)),
        (0x5400_0049, Instruction::Branch(at + 8)),
        (0xb400_0040, Instruction::Branch(at + 8)),
        (0x3707_fffe, Instruction::Branch(at - 4)),
        (0xd65f_03c0, Instruction::End),
        (0xd61f_0220, Instruction::End),
        (0xd63f_0000, Instruction::CallRegister),
        (0x9000_0010, Instruction::Set(16, 0x10_3000)),
        (0xd280_0701, Instruction::Set(1, 0x38)),
        (0x5280_0020, Instruction::Set(0, 1)),
        (0x9127_2128, Instruction::Add(8, 9, 0x9c8)),
        (0xaa08_03e0, Instruction::Move(0, 8)),
        (0xeb0a_003f, Instruction::Compare(1, 10)),
        (0xf940_cd07, Instruction::Load(7, 8, 408)),
        (0xf900_cc01, Instruction::Store(1, 0, 408)),
        (0xa900_7ce1, Instruction::StorePair([1, 31], 7, 0)),
        // ldr x30, [sp], #16; ldp x20, x21, [sp, #16]; ldr q31, [x1]; strb w0, [x1], #1
        (0xf841_07fe, Instruction::Other([30, 31])),
        (0xa941_57f4, Instruction::Other([20, 21])),
        (0x3dc0_003f, Instruction::Other([31, 31])),
        (0x3800_1420, Instruction::Other([0, 1])),
        // movk x1, #1, lsl #16; paciasp
        (0xf2a0_0021, Instruction::Other([1, 31])),
        (0xd503_233f, Instruction::Other([31, 31])),
    ] {
        assert_eq!(Instruction::decode(word, at), instruction, "{word:x}");
    }
}
