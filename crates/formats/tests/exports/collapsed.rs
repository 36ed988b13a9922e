//! Collapsed stacks, read by inferno.

use nthbyte_formats::collapsed;
use nthbyte_profile::Profile;

use super::{close, profile, total};

fn export(profile: &Profile) -> String {
    let mut out = Vec::new();
    collapsed::write(profile, &mut out, &mut |_, _| ()).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_line_is_a_stack_a_space_and_a_whole_number() {
    for hostile in [false, true] {
        let profile = profile(3_000, hostile);
        let text = export(&profile);
        let mut sum = 0.0;
        for line in text.lines() {
            let (stack, bytes) = line.rsplit_once(' ').unwrap();
            assert!(!stack.is_empty() && stack.split(';').all(|frame| !frame.is_empty()));
            assert!(!stack.contains(|character: char| character.is_control()));
            sum += bytes.parse::<u64>().unwrap() as f64;
        }
        let lines = text.lines().count() as f64;
        assert!((sum - total(&profile)).abs() <= lines / 2.0 + 1.0);
    }
}

#[test]
fn depths_and_names_are_those_of_the_profile() {
    let profile = profile(500, false);
    let text = export(&profile);
    for id in profile.samples.ids() {
        let mut frames: Vec<String> = profile
            .stack(profile.samples.stack(id))
            .map(|frame| {
                let function = &profile.functions[frame.function as usize];
                let line = match frame.line {
                    0 => function.first_line,
                    line => line,
                };
                format!("{} ({}:{line})", function.name, function.file)
            })
            .collect();
        frames.reverse();
        let start = format!("{} ", frames.join(";"));
        assert!(text.lines().any(|line| line.starts_with(&start)), "{start}");
    }
}

#[test]
fn inferno_draws_all_of_it() {
    for hostile in [false, true] {
        let profile = profile(3_000, hostile);
        let text = export(&profile);
        let mut options = inferno::flamegraph::Options::default();
        options.count_name = "bytes".to_owned();
        let mut svg = Vec::new();
        inferno::flamegraph::from_reader(&mut options, text.as_bytes(), &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let whole = svg.split("<title>all (").nth(1).unwrap();
        let digits: String = whole
            .chars()
            .take_while(|character| *character != ' ')
            .filter(char::is_ascii_digit)
            .collect();
        assert!(close(digits.parse().unwrap(), total(&profile)));
    }
}

#[test]
fn time_samples_count_where_nothing_else_is() {
    let mut profile = profile(2_000, false);
    profile.samples = nthbyte_profile::model::Samples::default();
    assert!(!profile.cpu.is_empty());
    let text = export(&profile);
    let numbers = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    let sum: usize = numbers.map(|number| number.parse::<usize>().unwrap()).sum();
    assert_eq!(sum, profile.cpu.len());
}
