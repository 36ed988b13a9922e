//! `nthbyte view`: the profile in the Firefox Profiler.
//!
//! The Firefox Profiler is a web page. It fetches the profile from an address on this machine's
//! loopback interface: nothing is uploaded. [`place`] says where the page comes from, [`gate`] decides which requests are
//! answered, [`server`] answers them, [`connections`] keeps each client from being in another's way, [`copy`] serves a copy of the page, [`network`] tests whether the page can be reached.

mod connections;
mod copy;
mod gate;
mod network;
mod place;
mod server;

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use nthbyte_formats::firefox;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{Output, say};
use crate::progress::Progress;
use crate::question::by::{self, Apart};
use crate::question::inputs::Profiles;
use crate::question::selecting::{FrameOptions, Selecting};
use crate::question::{Frames, Question, tracks_by_label};
use copy::Copy;
use gate::Gate;
use place::PageSource;
use server::Server;

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
    /// A copy of the Firefox Profiler: a site's address, without a path, or the folder of a built copy, which is served from this
    /// machine (default: the one at profiler.firefox.com).
    #[arg(long, value_name = "SITE|FOLDER", value_parser = PageSource::parse)]
    profiler: Option<PageSource>,
    #[command(flatten)]
    tab: Tab,
    #[command(flatten)]
    frames: FrameOptions,
    /// Give each value of a label a track of its own, in place of the threads' tracks.
    #[arg(long, value_name = "process|thread|task|test|label:KEY", value_parser = by::apart)]
    by: Option<Apart>,
    #[command(flatten)]
    selecting: Selecting,
}

/// What the page shows first.
#[derive(Args)]
#[group(multiple = false)]
struct Tab {
    /// Show the call tree first, from the outermost functions on. Without this and the next options: the inverted call tree, from
    /// the allocated types on.
    #[arg(long)]
    call_tree: bool,
    /// Show the flame graph first.
    #[arg(long)]
    flame_graph: bool,
    /// Show the stack chart first: stacks over time.
    #[arg(long)]
    stack_chart: bool,
    /// Show the marker chart first: the collections over time.
    #[arg(long)]
    marker_chart: bool,
}

impl Tab {
    /// The end of the page's address.
    fn address(&self) -> &'static str {
        // The number is the version of the address's form: `CURRENT_URL_VERSION` of the first page that reads the
        // version of the format that is written. Later pages know it too.
        match self {
            Self {
                call_tree: true, ..
            } => "calltree/?v=17",
            Self {
                flame_graph: true, ..
            } => "flame-graph/?v=17",
            Self {
                stack_chart: true, ..
            } => "stack-chart/?v=17",
            Self {
                marker_chart: true, ..
            } => "marker-chart/?v=17",
            _ => "calltree/?invertCallstack&v=17",
        }
    }
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
        runtime.block_on(self.serve(json))
    }

    async fn serve(&self, json: Vec<u8>) -> Result<()> {
        let no_port = "cannot listen on the loopback interface";
        let (origin, copy) = match self.place().await {
            PageSource::Site(origin) => (origin, None),
            PageSource::Folder(folder) => {
                let copy = Copy::bind(&folder).await.context(no_port)?;
                (copy.origin()?, Some(copy))
            }
        };
        let server = Server::bind(json, &origin).await.context(no_port)?;
        let address = page_address(server.gate(), self.tab.address());
        let end = EndSignal::listen().context("cannot wait for signals")?;
        let announced = async {
            if self.no_browser {
                print(&address)?;
            } else {
                // A copy that is served from here can be reached.
                let site = copy.is_none().then_some(origin.as_str());
                show(&address, site, self.profiles.first()).await?;
            }
            say!(
                "nthbyte: serving {}; press Ctrl-C to stop",
                self.profiles.first().display()
            );
            std::future::pending::<Result<()>>().await
        };
        let copied = async {
            match &copy {
                Some(copy) => copy.run().await,
                None => std::future::pending().await,
            }
        };
        // The server answers while the network is tested: a browser may be faster.
        tokio::select! {
            served = server.run() => served,
            copied = copied => copied,
            announced = announced => announced,
            () = end.wait() => Ok(()),
        }
    }

    /// Where the page comes from: as the user says; else from its own site; else, if that cannot be reached, from the copy
    /// that is installed.
    async fn place(&self) -> PageSource {
        if let Some(place) = &self.profiler {
            return place.clone();
        }
        let Some(installed) = PageSource::installed().filter(|_| !self.no_browser) else {
            return PageSource::default();
        };
        match (network::reach(place::OFFICIAL).await, &installed) {
            (Err(reason), PageSource::Folder(folder)) => {
                say!(
                    "nthbyte: {} cannot be reached ({reason}); this is the copy in {}",
                    place::OFFICIAL,
                    folder.display()
                );
                installed
            }
            _ => PageSource::default(),
        }
    }

    /// The profile as the Firefox Profiler reads it: JSON, gzipped.
    fn convert(&self) -> Result<Vec<u8>> {
        let question = Question {
            selection: Some(self.selecting.selection()),
            frames: self.frames.or(Frames::WithoutLauncher),
            ..Question::about(self.profiles.find()?)
        };
        let mut profile = question.prepare()?.profile;
        // Processes have tracks of their own.
        if let Some(Apart::Label(key)) = &self.by {
            tracks_by_label(&mut profile, key)?;
        }
        let progress = Progress::steps("converting");
        let mut json = Vec::new();
        let options = firefox::FirefoxOptions {
            sources: self.sources,
            ..firefox::FirefoxOptions::default()
        };
        firefox::write_gzip_with(&profile, options, &mut json, &mut |done, total| {
            progress.at(done, total);
        })
        .context("cannot convert the profile")?;
        Ok(json)
    }
}

/// The page's address that makes it fetch the profile from this machine.
fn page_address(gate: &Gate, tab: &str) -> String {
    let profile = gate.address().replace(':', "%3A").replace('/', "%2F");
    format!("{}/from-url/{profile}/{tab}", gate.origin())
}

/// Opens the browser; if that cannot work, prints what to do instead. `site`: the origin of the page, if it is on another machine.
async fn show(address: &str, site: Option<&str>, profile: &Path) -> Result<()> {
    if let Some(site) = site
        && let Err(reason) = network::reach(site).await
    {
        say!(
            "nthbyte: {site} cannot be reached ({reason}); \
             `nthbyte flamegraph {}` writes a page that works without a network, and --profiler opens a copy of the Firefox Profiler",
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
