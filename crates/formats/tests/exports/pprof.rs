//! pprof's format. That `go tool pprof` reads it is tested from Python, in `tests/formats`.

use std::io::Read as _;

use nthbyte_formats::pprof;

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
