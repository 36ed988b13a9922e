//! Two answers at once: of a large profile, each takes a second, and no answer depends on another.

use std::sync::Mutex;
use std::thread;

/// Both results. Another thread makes the first one, if there may be another thread; else one is made after the other.
pub(crate) fn both<A: Send, B>(
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B,
) -> (A, B) {
    // What the system refuses to run in a thread is still here.
    let one = Mutex::new(Some(one));
    let run = || {
        let mut waiting = one.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let one = waiting.take();
        drop(waiting);
        one.map(|one| one())
    };
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, run);
        let second = other();
        let first = match spawned {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => run(),
        };
        (first.expect("it runs once"), second)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_made() {
        let (word, number) = ("word".to_owned(), 7);
        assert_eq!(both(|| word.len(), || number + 1), (4, 8));
    }
}
