//! A recording that the view begins, of a process that is not recorded: `nthbyte attach`, which ends with the view.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// `nthbyte attach`, which has begun to record.
pub struct Begun {
    attach: Child,
    says: BufReader<ChildStderr>,
}

impl Begun {
    /// Begins to record a process.
    ///
    /// # Errors
    /// What `nthbyte attach` says.
    pub fn begin(pid: &str) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find the command")?;
        let mut attach = Command::new(own)
            .args(["attach", pid])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot begin to record")?;
        let says = attach.stderr.take().context("cannot begin to record")?;
        let mut begun = Self {
            attach,
            says: BufReader::new(says),
        };
        let mut line = String::new();
        begun.says.read_line(&mut line)?;
        if line.starts_with("nthbyte: recording") {
            return Ok(begun);
        }
        begun.attach.wait()?;
        bail!("{}", line.trim_end().trim_start_matches("nthbyte: "))
    }

    /// Ends it, as Ctrl-C does, and returns what it says then.
    pub fn end(mut self) -> String {
        let number = i32::try_from(self.attach.id()).ok();
        if let Some(pid) = number.and_then(Pid::from_raw) {
            // It may have ended with the process.
            let _ = kill_process(pid, Signal::INT);
        }
        let mut said = String::new();
        let _ = self.says.read_to_string(&mut said);
        let _ = self.attach.wait();
        said.trim_end().to_owned()
    }
}
