//! The sampled native memory that is in use, by its addresses.

use std::ffi::c_void;

use nthbyte_host::preload::{LAZY, NOT_INTERESTED, interface};
use nthbyte_profile::event::SampleId;

use super::sampled::is_recorded;
use super::{touched, unfinished};
use crate::begin::record_now;

/// The upper half of a token.
const fn half(token: u64) -> u32 {
    (token >> 32) as u32
}

/// The addresses of sampled blocks and mappings that are in use, each with its sample. A mapping that came into memory
/// in pieces has a sample for each. Empty if native memory is not recorded, or more than `most` blocks are in use.
/// `is_thorough`: looks first at what was touched of mappings since the last look.
#[must_use]
pub fn live(most: usize, is_thorough: bool) -> Vec<(usize, SampleId)> {
    let Some(interface) = interface().filter(|_| is_recorded()) else {
        return Vec::new();
    };
    let mut tokens: Vec<(usize, u64)> = Vec::new();
    // SAFETY: `keep` gets this list.
    unsafe { (interface.each_block)((&raw mut tokens).cast(), keep) };
    if tokens.len() > most {
        return Vec::new();
    }
    if is_thorough && let Some(now) = record_now().map(|recording| recording.now()) {
        touched::look(now, true);
    }
    let Some(mut recording) = record_now() else {
        return Vec::new();
    };
    let flags = unfinished::FLAG | touched::FLAG;
    let own = recording.epoch().number() & !flags;
    let mut found = Vec::with_capacity(tokens.len());
    for (address, token) in tokens {
        let number = token as u32;
        // In the child of a fork, the parent's blocks belong to the parent's profile.
        if token == NOT_INTERESTED || half(token) & !flags != own {
            continue;
        }
        if token & LAZY != 0 {
            let samples = touched::samples_of(&mut recording, number);
            found.extend(samples.into_iter().map(|sample| (address, sample)));
        } else if half(token) & unfinished::FLAG != 0 {
            let sample = unfinished::sample_at(&mut recording, number);
            found.extend(sample.map(|sample| (address, sample)));
        } else {
            found.push((address, SampleId(number)));
        }
    }
    found
}

unsafe extern "C" fn keep(tokens: *mut c_void, address: usize, token: u64) {
    // SAFETY: `live` passes its list.
    unsafe { (*tokens.cast::<Vec<(usize, u64)>>()).push((address, token)) };
}
