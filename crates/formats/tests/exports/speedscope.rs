//! speedscope's JSON, as its schema says it must be.

use nthbyte_formats::speedscope;
use nthbyte_profile::Profile;
use serde_json::Value;

use super::{close, profile, total};

fn export(profile: &Profile) -> Value {
    let mut out = Vec::new();
    speedscope::write(profile, &mut out, &mut |_, _| ()).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn sum(profile: &Value) -> f64 {
    let weights = profile["weights"].as_array().unwrap();
    weights.iter().map(|weight| weight.as_f64().unwrap()).sum()
}

#[test]
fn profiles_are_well_formed_and_add_up() {
    for hostile in [false, true] {
        let profile = profile(3_000, hostile);
        let file = export(&profile);
        let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
        let mut allocated = 0.0;
        let mut time = 0;
        for one in file["profiles"].as_array().unwrap() {
            assert_eq!(one["type"], "sampled");
            let samples = one["samples"].as_array().unwrap();
            assert_eq!(samples.len(), one["weights"].as_array().unwrap().len());
            for frame in samples.iter().flat_map(|stack| stack.as_array().unwrap()) {
                assert!(frame.as_u64().unwrap() < frames);
            }
            let span = one["endValue"].as_f64().unwrap() - one["startValue"].as_f64().unwrap();
            assert_eq!(span, sum(one));
            let name = one["name"].as_str().unwrap();
            if name.ends_with(": allocated") {
                allocated += sum(one);
            } else if name.ends_with(": time") {
                time += samples.len();
            }
        }
        assert!(close(allocated, total(&profile)));
        assert_eq!(time, profile.cpu.len());
    }
}

#[test]
fn names_are_unchanged() {
    let profile = profile(2_000, true);
    let file = export(&profile);
    let frames = file["shared"]["frames"].as_array().unwrap();
    for (frame, exported) in profile.frames.iter().zip(frames) {
        let name = &profile.functions[frame.function as usize].name;
        assert_eq!(exported["name"], **name);
    }
}

#[test]
fn an_empty_profile_is_a_file_too() {
    let file = export(&profile(0, false));
    assert_eq!(file["profiles"].as_array().unwrap().len(), 1);
}
