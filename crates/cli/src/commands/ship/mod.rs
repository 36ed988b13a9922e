//! `nthbyte ship`: a process of its own that sends profiles to other systems, in windows.
//!
//! ```text
//! windows  what of each profile was not sent yet, in windows of a minute
//!    │     one request each, in the receiver's format
//!    ▼
//! queue    files, so that nothing is lost while a receiver is away, or this process
//!    ▼
//! http     a receiver; or a folder
//! ```
//!
//! A window is in the queue before the state says so, and the state says so before it is sent. So a window is sent once, or, if this process is killed
//! between the answer and the removal of the file, once more: with the same identity.

mod http;
mod queue;
mod receiver;
mod s3;
mod tls;
mod windows;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::http::{HeaderName, HeaderValue};
use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::event::Nanos;
use nthbyte_sampling::parse_size;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::say;
use crate::question::selecting::time;
use http::Client;
use queue::Queue;
use receiver::Receiver;
use s3::Keys;
use tls::{Identity, Tls};
use windows::{Shipment, State};

/// What `ship` takes.
#[derive(Args)]
pub struct Arguments {
    /// The folder of the profiles; those that come later are sent, too.
    folder: PathBuf,
    /// Where to send: otlp=http://HOST:4318, otlp-grpc=http://HOST:4317, pyroscope=http://HOST:4040; or folder=DIR, put=https://HOST/BUCKET or s3=https://HOST/BUCKET, for pprof files. May be given several times.
    #[arg(long, required = true, value_name = "KIND=URL", value_parser = Receiver::parse)]
    to: Vec<Receiver>,
    /// The length of a window.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    every: Nanos,
    /// Send what there is, and end: with status 1 if something could not be sent.
    #[arg(long)]
    once: bool,
    /// Send nothing, and say in a line for each window what would be sent.
    #[arg(long)]
    dry_run: bool,
    /// The folder for messages that wait, and for notes on the sent ones (default: .nthbyte-ship in the folder of the profiles).
    #[arg(long, value_name = "DIR")]
    queue: Option<PathBuf>,
    /// So much waits for each receiver at most; then the oldest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    queue_size: u64,
    /// A file with a token, which is sent as `Authorization: Bearer`. It is read before each request.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with further headers, `Name: value` in each line. It is read before each request.
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
    /// A file with the root certificates for https (default: the system's, or SSL_CERT_FILE's and SSL_CERT_DIR's).
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A file with our own certificate for https, for receivers that ask for one. It is read at each connection.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The file with its key.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "write a size as 512KiB, 0.5MiB or 524288".to_owned())
}

/// The shortest window.
const SHORTEST: Nanos = Nanos(1_000_000_000);
/// After a failure, the next attempt comes after this, then after twice as long, up to the second.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// When a receiver is tried again.
#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    next: Duration,
}

impl Arguments {
    /// Sends until a signal ends it.
    ///
    /// # Errors
    /// If the folder or the queue cannot be used; with `--once`, if something could not be sent.
    pub fn run(self) -> Result<()> {
        if self.every < SHORTEST {
            bail!("--every is 1s at least");
        }
        if !self.folder.is_dir() {
            bail!("{} is no folder", self.folder.display());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.ship())
    }

    async fn ship(&self) -> Result<()> {
        if self.dry_run {
            let mut state = State::default();
            return self.look(&mut state, |shipment| {
                say!("nthbyte: {}", shipment.describe());
                Ok(())
            });
        }
        let place = self.queue.clone();
        let place = place.unwrap_or_else(|| self.folder.join(".nthbyte-ship"));
        let queue = Queue::open(&place, self.queue_size)
            .with_context(|| format!("cannot use the queue {}", place.display()))?;
        if self.to.iter().any(Receiver::is_signed) {
            Keys::find()?;
        }
        let client = Client::new(self.to.iter().filter_map(Receiver::url), || {
            let files = self.client_cert.clone().zip(self.client_key.clone());
            let identity = files.map(|(certificate, key)| Identity { certificate, key });
            Tls::new(self.ca_file.as_deref(), identity)
        })?;
        let mut state = queue.state();
        let mut pauses: HashMap<usize, Pause> = HashMap::new();
        let mut terminated = signal(SignalKind::terminate())?;
        loop {
            let now = Instant::now();
            let before = state.clone();
            self.look(&mut state, |shipment| {
                for receiver in &self.to {
                    queue.put(receiver, shipment)?;
                }
                Ok(())
            })?;
            if state != before {
                queue.save(&state)?;
            }
            let mut left = 0;
            for (number, receiver) in self.to.iter().enumerate() {
                if pauses.get(&number).is_some_and(|pause| pause.until > now) {
                    continue;
                }
                let sent = self.send_all(&client, receiver, &queue);
                let sent = tokio::select! {
                    sent = sent => sent?,
                    _ = terminated.recv() => return Ok(()),
                    _ = tokio::signal::ctrl_c() => return Ok(()),
                };
                match sent {
                    Ok(()) => drop(pauses.remove(&number)),
                    Err(error) => {
                        left += 1;
                        let last = pauses.get(&number).map(|pause| pause.next);
                        let next = last.unwrap_or(PAUSE[0]);
                        if last.is_none() {
                            let again = if self.once { "" } else { "; trying again" };
                            say!(
                                "nthbyte: {} takes nothing: {error:#}{again}",
                                receiver.name()
                            );
                        }
                        pauses.insert(
                            number,
                            Pause {
                                until: Instant::now() + next,
                                next: (next * 2).min(PAUSE[1]),
                            },
                        );
                    }
                }
            }
            if self.once {
                if left > 0 {
                    bail!(
                        "{left} of {} receivers took not all; it waits in {}",
                        self.to.len(),
                        place.display()
                    );
                }
                return Ok(());
            }
            let rest = Duration::from_nanos(self.every.0).min(Duration::from_secs(1));
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = terminated.recv() => return Ok(()),
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }

    /// Finds what was not sent yet. What cannot be read now is tried again later.
    fn look(
        &self,
        state: &mut State,
        mut found: impl FnMut(&Shipment<'_>) -> Result<()>,
    ) -> Result<()> {
        let profiles = windows::sessions_in(&self.folder)
            .with_context(|| format!("cannot look for profiles in {}", self.folder.display()))?;
        for profile in profiles {
            windows::each(
                &profile,
                state,
                self.every,
                self.once || self.dry_run,
                &mut found,
            )?;
        }
        Ok(())
    }

    /// Sends all that waits for a receiver, the oldest first. The inner error is the receiver's.
    async fn send_all(
        &self,
        client: &Client,
        receiver: &Receiver,
        queue: &Queue,
    ) -> Result<Result<()>> {
        for path in queue.waiting(receiver)? {
            let body = std::fs::read(&path)?;
            match receiver.send(client, &path, body, self.headers()?).await {
                Ok(None) => {}
                Ok(Some(refusal)) => {
                    say!("nthbyte: {} refuses a window: {refusal}", receiver.name())
                }
                Err(error) => return Ok(Err(error)),
            }
            std::fs::remove_file(&path)?;
        }
        Ok(Ok(()))
    }

    /// What the files of headers and of the token say now.
    fn headers(&self) -> Result<Vec<(String, String)>> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
        };
        let mut headers = Vec::new();
        if let Some(file) = &self.header_file {
            for line in read(file)?.lines().filter(|line| !line.trim().is_empty()) {
                let header = line.split_once(':');
                let header = header.map(|(name, value)| (name.trim(), value.trim()));
                match header {
                    Some((name, value))
                        if HeaderName::try_from(name).is_ok()
                            && HeaderValue::try_from(value).is_ok() =>
                    {
                        headers.push((name.to_owned(), value.to_owned()));
                    }
                    // Not the line: it may be a secret.
                    _ => bail!(
                        "{} has a line that is no header: write Name: value",
                        file.display()
                    ),
                }
            }
        }
        if let Some(file) = &self.token_file {
            let token = read(file)?;
            headers.push((
                "authorization".to_owned(),
                format!("Bearer {}", token.trim()),
            ));
        }
        Ok(headers)
    }
}
