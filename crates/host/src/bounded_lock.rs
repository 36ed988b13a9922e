//! A lock for which no thread waits for long.
//!
//! A thread that forks may copy the lock while another thread holds it, and in the child nobody releases it.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// The longest wait for another thread. It holds a lock for less than this, unless it does not run.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Data behind a lock.
#[derive(Debug)]
pub struct BoundedLock<T>(Mutex<T>);

impl<T> BoundedLock<T> {
    /// A free lock.
    pub const fn new(data: T) -> Self {
        Self(Mutex::new(data))
    }

    /// Takes the lock. `None` if another thread does not release it in time, or panicked while it held the lock.
    pub fn lock(&self) -> Option<MutexGuard<'_, T>> {
        self.lock_within(LONGEST_WAIT, std::thread::yield_now)
    }

    /// As [`BoundedLock::lock`], for a lock that another thread may hold for so long. `pause` lets others run.
    pub fn lock_within(&self, longest: Duration, pause: fn()) -> Option<MutexGuard<'_, T>> {
        let start = Instant::now();
        loop {
            match self.0.try_lock() {
                Ok(data) => return Some(data),
                Err(TryLockError::WouldBlock) if start.elapsed() < longest => pause(),
                Err(_) => return None,
            }
        }
    }

    /// Takes the lock, and does not wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_nobody_releases_is_not_waited_for() {
        let lock = BoundedLock::new(1);
        let held = lock.lock();
        assert_eq!(held.as_deref(), Some(&1));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.lock().is_none() && lock.try_lock().is_none());
            assert!(other.join().unwrap());
        });
        drop(held);
        assert!(lock.try_lock().is_some());
        assert!(lock.lock().is_some());
    }

    #[test]
    fn a_lock_that_is_released_is_taken() {
        let lock = BoundedLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        if let Some(mut data) = lock.lock() {
                            *data += 1;
                        }
                    }
                });
            }
        });
        assert!(*lock.lock().unwrap() > 0);
    }
}
