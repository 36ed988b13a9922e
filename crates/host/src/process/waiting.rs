//! Where a thread of this process waits.

use std::fs::File;
use std::io::{Read, Write};

/// The stack pointer of a thread that waits in a system call. `None` if it runs, or if that cannot be known. `thread` is the
/// system's number of it. It allocates nothing. The source is `/proc/self/task/THREAD/syscall`, see `proc(5)`.
#[must_use]
pub fn stack_pointer_of_waiting(thread: u64) -> Option<usize> {
    let mut path = [0_u8; 64];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/task/{thread}/syscall").ok()?;
    let unused = rest.len();
    let path = str::from_utf8(&path[..path.len() - unused]).ok()?;
    let mut text = [0_u8; 256];
    let read = File::open(path).ok()?.read(&mut text).ok()?;
    stack_pointer_in(str::from_utf8(&text[..read]).ok()?)
}

/// The last word but one: `202 0x7f… 0x80 0x0 0x0 0x0 0x0 STACK INSTRUCTION`. One that runs has only `running`.
fn stack_pointer_in(text: &str) -> Option<usize> {
    let word = text.split_ascii_whitespace().rev().nth(1)?;
    usize::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_waits_has_a_stack_pointer() {
        let (here, number) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let place = 0_usize;
            // SAFETY: no preconditions.
            here.send((unsafe { libc::gettid() }, (&raw const place).addr()))
                .unwrap();
            ended.recv().unwrap_err();
        });
        let (number, place) = number.recv().unwrap();
        let found = loop {
            // It may not wait yet.
            match stack_pointer_of_waiting(number as u64) {
                Some(found) => break found,
                None => std::thread::yield_now(),
            }
        };
        assert!(found < place && place - found < 64 << 10);
        drop(end);
        thread.join().unwrap();
        // SAFETY: no preconditions.
        let own = unsafe { libc::gettid() };
        assert_eq!(stack_pointer_in("running\n"), None);
        assert_eq!(stack_pointer_in("-1 0x7ffd10 0x55\n"), Some(0x7f_fd10));
        assert_eq!(stack_pointer_of_waiting(0), None);
        assert_ne!(stack_pointer_of_waiting(own as u64), Some(0));
    }
}
