//! Location tables of real code objects, against what CPython itself says of them.

use std::process::Command;

use nthbyte_profile::LineTable;

/// Prints, for every code object of some modules: first line, location table, and the stretches
/// that `co_lines` gives.
const SCRIPT: &str = r#"
import argparse, ast, asyncio.tasks, dataclasses, inspect, json.decoder, sys, types, typing, pickletools
def walk(code):
    stretches = ",".join(f"{a}:{b}:{line or 0}" for a, b, line in code.co_lines())
    print(code.co_firstlineno, code.co_linetable.hex() or "-", stretches or "-")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            walk(constant)
assert sys.version_info >= (3, 11), "python3 must be 3.11 or later for this test"
for module in argparse, ast, asyncio.tasks, dataclasses, inspect, json.decoder, typing, pickletools:
    with open(module.__file__, encoding="utf-8") as file:
        walk(compile(file.read(), module.__file__, "exec"))
# Lines that go back and far, and code without lines.
source = "x = [\n" + "f(" * 50 + "\n" * 3000 + "1" + ")" * 50 + "\n]\ndel x\ntry: pass\nfinally: pass\n"
walk(compile(source, "made up", "exec"))
"#;

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[test]
fn lines_are_those_that_cpython_gives() {
    let arguments = ["-W", "ignore", "-c", SCRIPT];
    let output = Command::new("python3").args(arguments).output();
    let output = output.expect("python3 is needed for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut checked = 0;
    for code in printed.lines() {
        let mut words = code.split(' ');
        let first_line = words.next().unwrap().parse().unwrap();
        let table = LineTable::decode(&hex(words.next().unwrap()), first_line);
        for stretch in words.next().unwrap().split(',').filter(|&word| word != "-") {
            let mut numbers = stretch
                .split(':')
                .map(|number| number.parse::<u32>().unwrap());
            let (start, end, line) = (numbers.next(), numbers.next(), numbers.next());
            for offset in (start.unwrap()..end.unwrap()).step_by(2) {
                assert_eq!(Some(table.line(offset)), line, "at {offset} of {code}");
                checked += 1;
            }
        }
    }
    assert!(checked > 50_000, "only {checked} instructions");
}
