#![no_main]

#[path = "../entry.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::file(data));
