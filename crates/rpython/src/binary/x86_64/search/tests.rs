//! The search in made libraries, and in bytes that are none.

use super::super::few_sites;
use super::super::nursery_setters::nursery_setters;
use super::*;
use crate::binary::agreement::{FEWEST_SITES, LEAD, major_collection, minor_collection};
use crate::binary::function_table::FunctionTable;
use crate::binary::incminimark::{MAJOR_STATES, Major};

const TEXT: usize = 0x40_0000;
const DATA: Range<usize> = 0x80_0000..0x80_4000;

/// Machine code, mapped at `TEXT`.
struct Code(Vec<u8>);

impl Code {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// The distance to an address from the end of an instruction, of which only the distance is missing.
    fn relative(&mut self, to: usize) -> &mut Self {
        let next = TEXT + self.0.len() + 4;
        let distance = i32::try_from(to.wrapping_sub(next).cast_signed()).unwrap();
        self.bytes(&distance.to_le_bytes())
    }

    /// `opcode %register, address(%rip)`.
    fn access(&mut self, opcode: u8, register: u8, address: usize) -> &mut Self {
        let rex = 0x48 | (register & 8) >> 1;
        self.bytes(&[rex, opcode, 0x05 | (register & 7) << 3])
            .relative(address)
    }

    /// `mov $size, %esi; lea gc(%rip), %rdi; call target`. Returns the index of `lea`.
    fn slow_path(&mut self, size: i32, gc: usize, target: usize) -> usize {
        self.bytes(&[0xbe]).bytes(&size.to_le_bytes());
        let at = self.0.len();
        self.bytes(&[0x48, 0x8d, 0x3d]).relative(gc).call(target);
        at
    }

    fn call(&mut self, target: usize) -> &mut Self {
        self.bytes(&[0xe8]).relative(target)
    }

    /// `mov %rax, offset(%rdi)`.
    fn store(&mut self, offset: usize) -> &mut Self {
        let offset = u32::try_from(offset).unwrap().to_le_bytes();
        self.bytes(&[0x48, 0x89, 0x87]).bytes(&offset)
    }

    /// `movq $value, offset(%rdi)` for each state of a major collection.
    fn states(&mut self, offset: usize) -> &mut Self {
        let offset = u32::try_from(offset).unwrap().to_le_bytes();
        for state in 0..MAJOR_STATES as u32 {
            self.bytes(&[0x48, 0xc7, 0x87]).bytes(&offset);
            self.bytes(&state.to_le_bytes());
        }
        self
    }

    /// Ends a function, and fills up to this index.
    fn end(&mut self, fill_to: usize) -> &mut Self {
        self.bytes(&[0xc3]);
        assert!(self.0.len() <= fill_to);
        self.0.resize(fill_to, 0xcc);
        self
    }
}

fn slow_paths_of(collectors: &[(usize, usize)]) -> Vec<u8> {
    let mut code = Code(vec![0x90; 1000]);
    for (number, &count) in collectors.iter().enumerate() {
        let gc = DATA.start + 0x1000 * number;
        for _ in 0..count.0 {
            code.slow_path(16, gc, TEXT + count.1);
        }
    }
    code.0
}

#[test]
fn collectors_that_do_not_agree_are_refused() {
    let refused = |code: &[u8]| search(code, TEXT, &DATA).unwrap_err();
    assert!(refused(&[]).contains("no allocation site"));
    assert!(refused(&slow_paths_of(&[(450, 0)])).contains("450 against 0"));
    assert!(refused(&slow_paths_of(&[(480, 16), (2100, 0)])).contains("2100 against 480"));
    // The slow paths agree, but no nursery code is around them.
    let refused = refused(&slow_paths_of(&[(200, 16), (1000, 0)]));
    assert!(!refused.contains("against"), "{refused}");
}

#[test]
fn any_bytes_are_refused() {
    let mut word = 1_u64;
    let mut byte = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word >> 32) as u8
    };
    let agreed = slow_paths_of(&[(2100, 0)]);
    for _ in 0..20 {
        // Random bytes in place of the functions and around the slow paths.
        let mut code = agreed.clone();
        code[..1000].iter_mut().for_each(|place| *place = byte());
        code.extend((0..1000).map(|_| byte()));
        assert!(search(&code, TEXT, &DATA).is_err());
        assert!(search(&code[code.len() - 1500..], TEXT, &DATA).is_err());
    }
}

const GC: usize = DATA.start;
const FREE: usize = 0x178;
const TOP: usize = 0x1a0;
const STATE: usize = 0x90;
/// The size of each function of a made library.
const ROOM: usize = 0x100;
const RESERVE: usize = TEXT;
const MINOR: usize = TEXT + ROOM;
const PROGRESS: usize = TEXT + 2 * ROOM;
const STEP: usize = TEXT + 3 * ROOM;
const SPARE: usize = TEXT + 4 * ROOM;

/// The functions of a collector: the slow path, the minor collection, its caller that makes progress, the step of a
/// major collection, and one more.
fn functions(spare: &dyn Fn(&mut Code)) -> Code {
    let mut code = Code(Vec::new());
    code.store(FREE).store(TOP).call(PROGRESS);
    code.call(MINOR).call(SPARE).end(ROOM);
    code.store(FREE).store(TOP).end(2 * ROOM);
    code.call(MINOR).call(STEP).end(3 * ROOM);
    code.store(8).states(STATE).end(4 * ROOM);
    spare(&mut code);
    code.end(5 * ROOM);
    code
}

/// An allocation as the compiler writes it; returns the index of the slow path. The register alternates.
fn allocation(code: &mut Code, number: u8, gc: usize, free: usize, top: usize) -> usize {
    let register = number % 16;
    code.access(0x8b, register, gc + 8);
    code.access(0x89, register, gc + free);
    code.access(0x39 + (number & 1) * 2, register, gc + top);
    code.slow_path(24, gc, RESERVE)
}

#[test]
fn a_made_library_is_searched() {
    let mut code = functions(&|_| {});
    // Another struct, with other fields, and no code of the first one close by.
    for number in 0..(FEWEST_SITES / LEAD) as u8 {
        allocation(&mut code, number, GC + 0x2000, FREE + 8, TOP + 8);
    }
    code.bytes(&[0x90; AROUND]);
    for number in 0..FEWEST_SITES {
        allocation(&mut code, number as u8, GC, FREE, TOP);
    }
    let found = search(&code.0, TEXT, &DATA).unwrap();
    let expected = Collector {
        gc: GC,
        reserve: RESERVE,
        minor: MINOR,
        nursery_free: FREE,
        nursery_top: TOP,
        major: Some(Major {
            step: STEP,
            state: STATE,
        }),
        sites: FEWEST_SITES,
        runner_up: FEWEST_SITES / LEAD,
    };
    assert_eq!(found, expected);
}

#[test]
fn a_slow_path_has_its_form_and_its_targets() {
    let most = LARGE_OBJECT as i32;
    let found = |size, gc, target, change: &dyn Fn(&mut [u8])| {
        let mut code = Code(vec![0x90; 3]);
        code.slow_path(size, gc, target);
        change(&mut code.0);
        let paths = slow_paths(&code.0, TEXT, &DATA);
        paths.collect::<Vec<(usize, (usize, usize))>>()
    };
    let end = TEXT + 3 + 17;
    for size in [8, most] {
        let last = DATA.end - 1;
        assert_eq!(found(size, last, end - 1, &|_| {}), [(8, (last, end - 1))]);
    }
    for size in [0, -8, 12, most + 8, i32::MIN] {
        assert_eq!(found(size, GC, TEXT, &|_| {}), []);
    }
    assert_eq!(found(8, DATA.start - 1, TEXT, &|_| {}), []);
    assert_eq!(found(8, DATA.end, TEXT, &|_| {}), []);
    assert_eq!(found(8, GC, TEXT - 1, &|_| {}), []);
    assert_eq!(found(8, GC, end, &|_| {}), []);
    // Another register than %esi, and a jump.
    assert_eq!(found(8, GC, TEXT, &|code| code[3] = 0xbf), []);
    assert_eq!(found(8, GC, TEXT, &|code| code[15] = 0xe9), []);
}

#[test]
fn an_access_is_decoded() {
    for register in 0..16 {
        let mut code = Code(vec![0xcc; 3]);
        code.access(0x89, register, GC + 5);
        let access = field_access(&code.0, TEXT, 3).unwrap();
        assert_eq!((access.opcode, access.register), (0x89, register));
        assert_eq!(access.address, GC + 5);
        assert!(field_access(&code.0[..9], TEXT, 3).is_none());
        for (at, byte) in [(3, 0x40), (3, 0x66), (5, 0x04), (5, 0x45), (5, 0xc5)] {
            let mut other = code.0.clone();
            other[at] = byte;
            assert!(field_access(&other, TEXT, 3).is_none());
        }
    }
}

/// The fields that 200 allocations of this form agree on.
fn fields_of(write: impl Fn(&mut Code, u8) -> usize) -> Result<(usize, usize), String> {
    let mut code = Code(Vec::new());
    let sites = (0..200).map(|number| write(&mut code, number));
    let sites: Vec<usize> = sites.collect();
    fields(&code.0, TEXT, GC, sites.into_iter())
}

#[test]
fn fields_are_found_in_the_code_before_slow_paths() {
    let plain = |free, top| fields_of(|code, number| allocation(code, number, GC, free, top));
    assert_eq!(plain(FREE, TOP), Ok((FREE, TOP)));
    assert_eq!(
        plain(0, COLLECTOR_STRUCT - 8),
        Ok((0, COLLECTOR_STRUCT - 8))
    );
    for (free, top) in [(TOP, TOP), (FREE + 4, TOP), (FREE, TOP + 4)] {
        assert!(plain(free, top).unwrap_err().contains("implausible"));
    }
    for top in [COLLECTOR_STRUCT, COLLECTOR_STRUCT + 8] {
        assert!(plain(FREE, top).unwrap_err().contains("not clear"));
    }
}

#[test]
fn accesses_outside_the_struct_do_not_count() {
    for outside in [GC - 8, GC + COLLECTOR_STRUCT, GC + 0x3000] {
        let found = fields_of(|code, number| {
            code.access(0x89, 1, outside).access(0x39, 1, outside);
            code.bytes(&[0x90; 30]);
            allocation(code, number, GC, FREE, TOP)
        });
        assert_eq!(found, Ok((FREE, TOP)), "{outside:#x}");
    }
}

#[test]
fn the_store_is_of_the_same_register_and_close_by() {
    let found = |write: &dyn Fn(&mut Code)| {
        fields_of(|code, _| {
            write(code);
            code.bytes(&[0x90; 40]);
            code.slow_path(24, GC, RESERVE)
        })
    };
    let (free, top) = (GC + FREE, GC + TOP);
    // After the comparison, too.
    let after = found(&|code| {
        code.access(0x39, 2, top).access(0x89, 2, free);
    });
    assert_eq!(after, Ok((FREE, TOP)));
    // A load of the same register and a store of another one are no store of it.
    let others = found(&|code| {
        code.access(0x8b, 2, GC + 8).access(0x89, 3, GC + 16);
        code.access(0x89, 2, free).access(0x39, 2, top);
    });
    assert_eq!(others, Ok((FREE, TOP)));
    let far = |code: &mut Code| {
        code.access(0x39, 2, top).bytes(&[0x90; CLOSE_BY]);
        code.access(0x89, 2, free);
    };
    assert!(
        found(&|code| far(code))
            .unwrap_err()
            .contains("free is not clear")
    );
}

#[test]
fn a_winner_has_a_hundred_votes_and_twice_those_of_all_others() {
    let winner = |votes: &[(usize, u32)]| clear_winner(&votes.iter().copied().collect());
    assert_eq!(winner(&[]), None);
    assert_eq!(winner(&[(7, 101)]), Some(7));
    assert_eq!(winner(&[(7, 100)]), None);
    assert_eq!(winner(&[(7, 50)]), None);
    assert_eq!(winner(&[(7, 200), (9, 50), (8, 49)]), Some(7));
    assert_eq!(winner(&[(7, 200), (9, 50), (8, 50)]), None);
    assert_eq!(winner(&[(7, 200), (9, 150)]), None);
}

fn minor_of(code: &Code) -> Result<usize, String> {
    let slow_path = Function::decode(&code.0, TEXT, RESERVE);
    minor_collection(&code.0, TEXT, GC, RESERVE, &slow_path, FREE, TOP)
}

#[test]
fn one_function_sets_both_fields() {
    assert_eq!(minor_of(&functions(&|_| {})), Ok(MINOR));
    // Only one of the fields, or others.
    for offset in [FREE, TOP, FREE + 8] {
        assert_eq!(
            minor_of(&functions(&|code| {
                code.store(offset);
            })),
            Ok(MINOR)
        );
    }
    // By address, in one or both.
    let both = functions(&|code| {
        code.access(0x89, 0, GC + FREE).store(TOP);
    });
    assert!(minor_of(&both).unwrap_err().starts_with("2 functions"));
    let elsewhere = functions(&|code| {
        code.access(0x89, 0, GC - FREE).store(TOP);
    });
    assert_eq!(minor_of(&elsewhere), Ok(MINOR));
    // The slow path may call itself. What a callee calls is looked at only if no callee sets both.
    let mut code = Code(Vec::new());
    code.store(FREE)
        .store(TOP)
        .call(RESERVE)
        .call(MINOR)
        .call(PROGRESS)
        .end(ROOM);
    code.store(FREE).store(TOP).end(2 * ROOM);
    code.call(STEP).end(3 * ROOM);
    code.store(FREE).store(TOP).end(4 * ROOM);
    assert_eq!(minor_of(&code), Ok(MINOR));
    code.0[ROOM..2 * ROOM].fill(0xc3);
    assert_eq!(minor_of(&code), Ok(STEP));
    code.0[3 * ROOM..].fill(0xc3);
    assert!(
        minor_of(&code)
            .unwrap_err()
            .starts_with("no function called")
    );
    code.0[..2].fill(0xc3);
    assert!(
        minor_of(&code)
            .unwrap_err()
            .starts_with("the slow path does not")
    );
}

fn major_of(code: &Code) -> Option<Major> {
    let slow_path = Function::decode(&code.0, TEXT, RESERVE);
    major_collection(&code.0, TEXT, &slow_path, MINOR)
}

#[test]
fn one_function_sets_the_states() {
    let expected = Some(Major {
        step: STEP,
        state: STATE,
    });
    assert_eq!(major_of(&functions(&|_| {})), expected);
    // One that the slow path calls itself does not count, unless it makes progress; then two are one too many.
    assert_eq!(
        major_of(&functions(&|code| {
            code.states(8);
        })),
        expected
    );
    let two = functions(&|code| {
        code.call(MINOR).call(STEP).call(TEXT + 5 * ROOM);
    });
    assert_eq!(major_of(&two), expected);
    let mut two = two;
    two.states(8).end(6 * ROOM);
    assert_eq!(major_of(&two), None);
    for offset in [
        COLLECTOR_STRUCT - 8,
        COLLECTOR_STRUCT,
        COLLECTOR_STRUCT + 8,
        STATE + 4,
    ] {
        let mut code = functions(&|_| {});
        let mut step = Code(code.0[..3 * ROOM].to_vec());
        step.states(offset).end(4 * ROOM);
        code.0[..4 * ROOM].copy_from_slice(&step.0);
        let state = offset == COLLECTOR_STRUCT - 8;
        assert_eq!(major_of(&code).is_some(), state, "{offset:#x}");
    }
}

/// A program with so many allocations, and behind them a function that sets the nursery. Returns the code, and the index of that
/// function.
fn small_program(allocations: u8, gc: usize) -> (Vec<u8>, usize) {
    let mut code = functions(&|_| {});
    for number in 0..allocations {
        allocation(&mut code, number, gc, FREE + GC - gc, TOP + GC - gc);
    }
    let end = code.0.len() + 1;
    code.end(end);
    let setter = code.0.len();
    code.store(FREE).store(TOP);
    code.end(setter + ROOM);
    // Sets only one of the two.
    code.store(TOP).end(setter + 2 * ROOM);
    (code.0, setter)
}

fn starts(setter: usize) -> FunctionTable {
    let mut starts: Vec<usize> = (0..5).map(|number| TEXT + number * ROOM).collect();
    starts.extend([5 * ROOM, setter, setter + ROOM].map(|at| TEXT + at));
    FunctionTable::of_starts(&starts)
}

#[test]
fn a_program_with_few_allocations_is_searched() {
    let (code, setter) = small_program(12, GC);
    let found = few_sites::search(&code, TEXT, &DATA).unwrap();
    assert_eq!(
        (found.gc, found.reserve, found.minor, found.sites),
        (GC, RESERVE, MINOR, 12)
    );
    assert_eq!((found.nursery_free, found.nursery_top), (FREE, TOP));
    assert_eq!(found.major.map(|major| major.step), Some(STEP));
    let setters = nursery_setters(&code, TEXT, &found, &starts(setter));
    assert_eq!(setters, [TEXT + setter]);

    let refused = |code: &[u8]| few_sites::search(code, TEXT, &DATA).unwrap_err();
    assert!(refused(&[]).contains("no allocation site"));
    assert!(refused(&small_program(11, GC).0).contains("11 against 0"));
    // The struct that is passed has the fields elsewhere.
    let other = small_program(20, GC + 8).0;
    assert!(refused(&other).contains("no function that reserves"));
    // The function that is called does not set the fields.
    let mut other = code;
    other[..ROOM].fill(0xc3);
    assert!(refused(&other).contains("no function that reserves"));
}

#[test]
fn nurseries_that_do_not_agree_are_refused() {
    let mut code = functions(&|_| {});
    for number in 0..40 {
        allocation(&mut code, number, GC, FREE, TOP);
        if number % 4 == 0 {
            code.bytes(&[0x90; 64]);
            allocation(&mut code, number, GC, FREE + 8, TOP + 8);
            code.bytes(&[0x90; 64]);
        }
    }
    let refused = few_sites::search(&code.0, TEXT, &DATA).unwrap_err();
    assert!(refused.contains("do not agree on one nursery"), "{refused}");
}
