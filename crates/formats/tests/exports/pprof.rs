//! pprof's format. That `go tool pprof` reads it is tested from Python, in `tests/formats`.

use std::io::Read as _;

use nthbyte_formats::pprof;
use nthbyte_profile::Profile;

use super::profile;

#[test]
fn the_message_is_compressed_and_the_same_every_time() {
    let profile = profile(2_000, true);
    let export = || {
        let mut out = Vec::new();
        pprof::write(&profile, &mut out, &mut |_, _| ()).unwrap();
        out
    };
    let (one, other) = (export(), export());
    assert_eq!(one, other);
    let mut message = Vec::new();
    flate2::read::GzDecoder::new(one.as_slice())
        .read_to_end(&mut message)
        .unwrap();
    // Every name is there as it is, in the string table.
    for function in profile.functions.iter().filter(|of| !of.name.is_empty()) {
        let name = function.name.as_bytes();
        assert!(message.windows(name.len()).any(|window| window == name));
    }
}

/// The values of all samples, in the order of the file, and the texts.
fn values(profile: &Profile) -> (Vec<i64>, Vec<String>) {
    let mut out = Vec::new();
    pprof::write(profile, &mut out, &mut |_, _| ()).unwrap();
    let mut message = Vec::new();
    flate2::read::GzDecoder::new(out.as_slice())
        .read_to_end(&mut message)
        .unwrap();
    let (mut values, mut texts) = (Vec::new(), Vec::new());
    for (field, bytes) in fields(&message) {
        match field {
            2 => {
                let of_sample = fields(&bytes).into_iter().find(|(field, _)| *field == 2);
                let mut packed = &of_sample.expect("values").1[..];
                while !packed.is_empty() {
                    values.push(number(&mut packed) as i64);
                }
            }
            6 => texts.push(String::from_utf8(bytes).unwrap()),
            _ => {}
        }
    }
    (values, texts)
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first < &0x80 {
            break;
        }
    }
    value
}

/// The fields of a message that have a length; numbers are left out.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = number(&mut message);
        let length = number(&mut message);
        if key & 7 == 2 {
            let (content, rest) = message.split_at(length as usize);
            fields.push((key >> 3, content.to_vec()));
            message = rest;
        }
    }
    fields
}

#[test]
fn sums_that_pprof_cannot_hold_are_divided() {
    let mut profile = profile(300, false);
    profile.cpu.clear();
    let (before, texts) = values(&profile);
    assert!(!texts.iter().any(|text| text.contains("is divided by")));
    let samples: Vec<_> = profile.samples.iter().collect();
    profile.retain_samples(|_| false);
    for mut sample in samples {
        (sample.shape.size, sample.shape.block) = (u64::MAX / 2, u64::MAX / 2);
        profile.samples.push(sample);
    }
    let (after, texts) = values(&profile);
    assert_eq!(before.len(), after.len());
    let space = || after.chunks(4).map(|values| values[1]);
    let sum = space().try_fold(0_i64, i64::checked_add);
    assert!(sum.is_some_and(|sum| sum > 1 << 61), "{sum:?}");
    assert!(space().all(|value| value > 0));
    let said = texts.iter().filter(|text| text.contains("is divided by"));
    assert!(
        said.clone()
            .any(|text| text.starts_with("alloc_space is divided by 600")),
        "{:?}",
        said.collect::<Vec<_>>()
    );
}
