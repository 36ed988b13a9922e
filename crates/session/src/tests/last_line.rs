//! The line on stderr when SIGTERM ends the process.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use super::{Child, alone, in_child, one_at_a_time, record, start_with};
use crate::Session;

const LINE: &str = "nthbyte: ended by SIGTERM\n";

/// Begins a session with the line, in a process whose stderr is this.
fn begin(path: &Path, stderr: RawFd) -> Session {
    // SAFETY: the process is a child of the test's own, whose stderr nobody uses. Rust ignores SIGPIPE, programs do not.
    unsafe {
        libc::dup2(stderr, libc::STDERR_FILENO);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    let session = start_with(serde_json::json!({
        "output": path, "period": 512, "distances": "exponential", "line_at_signal": LINE
    }));
    record(&session, 1);
    session
}

fn terminate() {
    // SAFETY: sends the signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}

/// Runs the work in a child, which SIGTERM has to end, and returns what the pipe has got by then.
fn said(mut reader: PipeReader, work: impl FnOnce()) -> String {
    let status = Child::running(work).status();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_process_of_the_session_says_it_once() {
    let (_alone, path) = alone("out.nthb");
    let (reader, stderr) = std::io::pipe().unwrap();
    let text = said(reader, move || {
        let _session = begin(&path, stderr.as_raw_fd());
        // A child ends by the signal, too, without a word.
        assert!(!in_child(terminate));
        terminate();
    });
    assert_eq!(text, LINE);
}

#[test]
fn nothing_is_said_when_the_session_has_ended() {
    let (_alone, path) = alone("out.nthb");
    let (reader, stderr) = std::io::pipe().unwrap();
    let text = said(reader, move || {
        begin(&path, stderr.as_raw_fd()).finish(None);
        terminate();
    });
    assert_eq!(text, "");
}

/// The program may have closed stderr, and the number may be another file's now.
#[test]
fn no_other_file_gets_it() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let (path, theirs) = (folder.path().join("out.nthb"), folder.path().join("theirs"));
    let (reader, stderr) = std::io::pipe().unwrap();
    let other = File::create(&theirs).unwrap();
    let text = said(reader, move || {
        let _session = begin(&path, stderr.as_raw_fd());
        // SAFETY: puts another file in the place of stderr.
        unsafe { libc::dup2(other.as_raw_fd(), libc::STDERR_FILENO) };
        terminate();
    });
    assert_eq!(
        (text.as_str(), std::fs::read(&theirs).unwrap().len()),
        ("", 0)
    );
}

/// The process ends by SIGTERM then, too: it does not wait for room, and no SIGPIPE ends it.
#[test]
fn nobody_needs_to_read_it() {
    let (_alone, path) = alone("out.nthb");
    let (reader, mut stderr) = std::io::pipe().unwrap();
    // SAFETY: only changes the size of the pipe.
    let size = unsafe { libc::fcntl(stderr.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    stderr
        .write_all(&vec![b'.'; size.try_into().unwrap()])
        .unwrap();
    let text = said(reader, {
        let path = path.clone();
        move || {
            let _session = begin(&path, stderr.as_raw_fd());
            terminate();
        }
    });
    assert_eq!(text, ".".repeat(4096));
    let (closed, stderr) = std::io::pipe().unwrap();
    let (reader, unused) = std::io::pipe().unwrap();
    drop((closed, unused));
    said(reader, move || {
        let _session = begin(&path, stderr.as_raw_fd());
        terminate();
    });
}
