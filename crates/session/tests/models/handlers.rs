//! Ticks, from signal handlers to the recording that reads them; the files are the kernel's. Frees that wait for a
//! recording.

use loom::sync::Arc;
use nthbyte_profile::event::NodeId;

use crate::native::postponed::Postponed;
use crate::preload::NOT_INTERESTED;
use crate::process::{Identity, number_of};
use crate::recording::Recording;
use crate::sync::AtomicU64;
use crate::ticks::{TickSamples, Ticks};
use crate::{model, spawn};

/// A model whose first thread has a large stack too.
fn deep_model(check: fn()) {
    model(4, move || spawn(1, check).join().unwrap());
}

fn begin() -> Arc<Ticks> {
    let ticks = Arc::new(Ticks::new());
    ticks.begin(true).unwrap();
    ticks
}

/// Stores a tick whose stack depends on its word.
fn store(ticks: &Ticks, word: u8) {
    ticks.store(word.into(), &vec![word; word.into()]);
}

/// Records what there is. Each tick must be whole.
fn record(ticks: &Ticks, recording: &mut Recording<'_>) {
    ticks.record(recording, 10, |_, tick| {
        let word = tick.word as u8;
        assert!(word > 0, "nobody has stored this tick");
        assert_eq!(tick.stack, vec![word; word.into()]);
        Some(TickSamples::of(NodeId(word.into())))
    });
}

/// The words of the recorded ticks.
fn words(recording: &Recording<'_>) -> Vec<u32> {
    recording
        .samples
        .iter()
        .map(|sample| sample.stack.0)
        .collect()
}

#[test]
fn each_tick_is_recorded_once_or_counted() {
    deep_model(|| {
        let ticks = begin();
        let threads = [1, 2].map(|word| {
            let ticks = Arc::clone(&ticks);
            spawn(usize::from(word) + 1, move || store(&ticks, word))
        });
        let mut recording = Recording::default();
        record(&ticks, &mut recording);
        for thread in threads {
            thread.join().unwrap();
        }
        record(&ticks, &mut recording);
        let mut recorded = words(&recording);
        let count = recorded.len();
        recorded.sort_unstable();
        recorded.dedup();
        assert_eq!(recorded.len(), count);
        assert_eq!(count as u64 + recording.lost.get(), 2);
        ticks.end();
    });
}

/// The program closes the descriptor of the file, and opens its own under the same number.
#[test]
fn a_stolen_file_gives_no_tick_that_nobody_stored() {
    deep_model(|| {
        let ticks = begin();
        store(&ticks, 1);
        let number = number_of(&ticks.file);
        let handler = {
            let ticks = Arc::clone(&ticks);
            spawn(2, move || {
                // SAFETY: the number stays in use, by an empty file.
                unsafe {
                    let theirs = libc::memfd_create(c"theirs".as_ptr(), libc::MFD_CLOEXEC);
                    libc::dup2(theirs, number);
                    libc::close(theirs);
                }
                store(&ticks, 2);
                store(&ticks, 3);
            })
        };
        let mut recording = Recording::default();
        record(&ticks, &mut recording);
        handler.join().unwrap();
        record(&ticks, &mut recording);
        let recorded = words(&recording);
        assert!(recorded.ends_with(&[2, 3]) && recorded.len() <= 3);
        ticks.end();
        // SAFETY: the number is ours since `dup2`.
        unsafe { libc::close(number) };
    });
}

/// Once the ticks have ended, no handler writes to the file whose descriptor the program may use now.
#[test]
fn an_end_waits_for_the_handler_that_stores() {
    deep_model(|| {
        let ticks = begin();
        let number = number_of(&ticks.file);
        let file = Identity::of(number).unwrap();
        let handler = {
            let ticks = Arc::clone(&ticks);
            spawn(2, move || {
                ticks.store_walked(1, |_| {
                    assert!(file.is_of(number));
                    loom::thread::yield_now();
                    assert!(file.is_of(number));
                    None
                });
            })
        };
        ticks.end();
        // Another model may have opened a file under the number since.
        assert!(!file.is_of(number));
        handler.join().unwrap();
        store(&ticks, 1);
        assert!(!ticks.are_waiting());
    });
}

#[test]
fn a_free_that_waits_is_recorded_once() {
    deep_model(|| {
        let places = std::array::from_fn(|_| AtomicU64::new(NOT_INTERESTED));
        let postponed = Arc::new(Postponed::<2>::new(places));
        let tokens = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        assert!(postponed.add(1));
        let other = |number: u64| {
            let (postponed, tokens) = (Arc::clone(&postponed), tokens.clone());
            spawn(number as usize, move || {
                if !postponed.add(number) {
                    // It is counted as lost.
                    tokens.lock().unwrap().push(number);
                }
                postponed.take_all(|token| tokens.lock().unwrap().push(token));
            })
        };
        for thread in [other(2), other(3)] {
            thread.join().unwrap();
        }
        let mut tokens = std::mem::take(&mut *tokens.lock().unwrap());
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2, 3]);
    });
}
