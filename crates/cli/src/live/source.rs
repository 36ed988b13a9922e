//! The profile, which is read on when it has grown.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nthbyte_profile::follow::Follower;
use nthbyte_profile::{Profile, Reader};
use nthbyte_report::watch;

/// The shortest time between two readings; and a reading takes at most a tenth of the time.
const SHORTEST: Duration = Duration::from_secs(1);
const SHARE: u32 = 10;
/// The time between two looks for a profile that is not there yet.
const LOOK: Duration = Duration::from_millis(100);

/// The newest profile of a family, from a thread that reads it.
pub struct Source {
    news: Mutex<Receiver<Result<Arc<Profile>>>>,
}

impl Source {
    /// Follows a profile, with the profiles of the processes that its program starts. `writer`: the process that is about to
    /// write it. `by_host`: whether samples get a label of their machine.
    ///
    /// # Errors
    /// If there is none, and no process to write it.
    pub fn follow(path: &Path, writer: Option<u32>, by_host: bool) -> Result<Self> {
        if writer.is_none() {
            Reader::describe(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        let (sender, news) = channel();
        let path = path.to_owned();
        std::thread::spawn(move || {
            while Reader::describe(&path).is_err() {
                if writer.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                    let ended = anyhow::anyhow!(
                        "the program has ended, and there is no profile {}",
                        path.display()
                    );
                    let _ = sender.send(Err(ended));
                    return;
                }
                std::thread::sleep(LOOK);
            }
            let mut follower = Follower::new(&path, watch::NEEDED);
            loop {
                let began = Instant::now();
                // A file that has just been made may be unreadable for a moment.
                if let Ok(Some(mut profile)) = follower.look() {
                    if by_host {
                        profile.label_by_host();
                    }
                    if sender.send(Ok(Arc::new(profile))).is_err() {
                        return;
                    }
                }
                std::thread::sleep(SHORTEST.max(began.elapsed() * SHARE));
            }
        });
        Ok(Self {
            news: Mutex::new(news),
        })
    }

    /// The newest profile, if there is one that was not returned before.
    pub fn news(&self) -> Option<Result<Arc<Profile>>> {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.try_iter().last()
    }
}

/// The profile that a process writes: one of its open files. `None` if it writes none.
///
/// # Errors
/// If there is no such process, or it may not be looked at.
pub fn of_process(pid: &str) -> Result<Option<PathBuf>> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    if !Path::new(&format!("/proc/{pid}")).exists() {
        bail!("there is no process {pid}, and no profile of this name");
    }
    let entries = folder
        .read_dir()
        .with_context(|| format!("process {pid} belongs to another user: ask as that one"))?;
    let links = entries
        .flatten()
        .filter_map(|entry| entry.path().read_link().ok());
    // A terminal or a pipe would be waited for.
    let mut files = links.filter(|path| path.is_file());
    Ok(files.find(|path| Reader::describe(path).is_ok_and(|of| of.pid.to_string() == pid)))
}
