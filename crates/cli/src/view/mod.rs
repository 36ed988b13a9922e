//! `nthbyte view`: the profile in the Firefox Profiler.
//!
//! The Firefox Profiler is a web page. It fetches the profile from an address on this machine's
//! loopback interface: nothing is uploaded. [`gate`] decides which requests are answered, [`server`]
//! answers them, [`network`] tests whether the page can be reached.

mod gate;
mod network;
mod server;

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use nthbyte_formats::firefox;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::input::Profiles;
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::selecting::{Frames, Selecting};
use gate::Gate;
use server::Server;

/// The origin of the page that shows profiles, and the only one that may read them.
const PROFILER: &str = "https://profiler.firefox.com";

/// What `view` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// Print the address instead of opening a browser.
    #[arg(long)]
    no_browser: bool,
    /// Also serve the text of the program's Python files, as they are on this machine now.
    #[arg(long)]
    sources: bool,
    #[command(flatten)]
    frames: Frames,
    #[command(flatten)]
    selecting: Selecting,
}

impl Arguments {
    /// Serves the profile until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// If the profile cannot be read, or no port is free.
    pub fn run(self) -> Result<()> {
        let json = self.convert()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a server")?;
        runtime.block_on(async {
            let server = Server::bind(json)
                .await
                .context("cannot listen on the loopback interface")?;
            let address = page_address(server.gate());
            let end = EndSignal::listen().context("cannot wait for signals")?;
            let announced = async {
                if self.no_browser {
                    print(&address)?;
                } else {
                    show(&address, self.profiles.first()).await?;
                }
                say!(
                    "nthbyte: serving {}; press Ctrl-C to stop",
                    self.profiles.first().display()
                );
                std::future::pending::<Result<()>>().await
            };
            // The server answers while the network is tested: a browser may be faster.
            tokio::select! {
                served = server.run() => served,
                announced = announced => announced,
                () = end.wait() => Ok(()),
            }
        })
    }

    /// The profile as the Firefox Profiler reads it: JSON, gzipped.
    fn convert(&self) -> Result<Vec<u8>> {
        let mut profile = self.profiles.find()?.load()?;
        self.selecting.apply(&mut profile)?;
        self.frames.apply(&mut profile, false);
        let progress = Progress::steps("converting");
        let mut json = Vec::new();
        let options = firefox::Options {
            sources: self.sources,
            ..firefox::Options::default()
        };
        firefox::write_gzip_with(&profile, options, &mut json, &mut |done, total| {
            progress.at(done, total);
        })
        .context("cannot convert the profile")?;
        Ok(json)
    }
}

/// The page's address that makes it fetch the profile from this machine.
fn page_address(gate: &Gate) -> String {
    let profile = gate.address().replace(':', "%3A").replace('/', "%2F");
    format!("{PROFILER}/from-url/{profile}")
}

/// Opens the browser; if that cannot work, prints what to do instead.
async fn show(address: &str, profile: &Path) -> Result<()> {
    if let Err(reason) = network::reach(PROFILER).await {
        say!(
            "nthbyte: {PROFILER} cannot be reached ({reason}); \
             `nthbyte flamegraph {}` writes a page that works without a network",
            profile.display()
        );
        return print(address);
    }
    if let Err(error) = open::that_detached(address) {
        say!("nthbyte: no browser could be opened ({error}); this is the address:");
        return print(address);
    }
    Ok(())
}

fn print(address: &str) -> Result<()> {
    Output::Standard.write(|out| Ok(writeln!(out, "{address}")?))
}

/// The signals that end the server.
struct EndSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignal {
    /// Receives the signals from now on: they no longer kill the process.
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
