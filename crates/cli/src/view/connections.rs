//! The connections of a server, none of which keeps the others from an answer.
//!
//! Any program of this machine can connect, and send nothing, or half a request. Each connection takes a descriptor, so there
//! are [`MOST`] at a time: where there is one more, the oldest one is closed. A client that was [`Admitted`] has what
//! only the user knows, and may take its time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::output::say;

/// Time for a client to send its headers. A browser sends them at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections at a time. A browser has six; a process has 256 descriptors at least on most systems.
const MOST: usize = 200;

/// The pause where no descriptor is free, and none is the server's.
const PAUSE: Duration = Duration::from_millis(100);

/// Goes with a response whose client was let in. Its connection does not give way to others.
#[derive(Clone, Copy)]
pub struct Admitted;

/// Answers requests of all connections; does not end.
///
/// # Errors
/// If no connections can be accepted any more.
pub async fn accept(
    listener: &TcpListener,
    answer: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
) -> Result<()> {
    let mut open = Open::default();
    let mut said = None;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.make_room();
                let is_admitted = Arc::new(AtomicBool::new(false));
                let task = connection(stream, Arc::clone(&is_admitted), answer.clone());
                open.connections.push_back(Connection {
                    task: tokio::spawn(task).abort_handle(),
                    is_admitted,
                });
            }
            // No descriptor is free, most likely; or the client has closed the connection already.
            Err(error) => {
                if said.replace(error.kind()) != Some(error.kind()) {
                    say!("nthbyte: a connection was not accepted: {error}");
                }
                if !open.close_oldest() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        // So each connection is looked at before many others come, and a closed one is gone.
        tokio::task::yield_now().await;
    }
}

/// The open connections, the oldest one first.
#[derive(Default)]
struct Open {
    connections: VecDeque<Connection>,
}

struct Connection {
    task: AbortHandle,
    is_admitted: Arc<AtomicBool>,
}

impl Open {
    /// Makes room for one more.
    fn make_room(&mut self) {
        if self.connections.len() >= MOST {
            self.connections.retain(|one| !one.task.is_finished());
        }
        if self.connections.len() >= MOST {
            self.close_oldest();
        }
    }

    /// Closes the oldest connection, of those whose clients were not admitted if there is one. Returns whether there was any.
    fn close_oldest(&mut self) -> bool {
        let mut connections = self.connections.iter();
        let other = connections.position(|one| !one.is_admitted.load(Relaxed));
        let oldest = self.connections.remove(other.unwrap_or(0));
        oldest.is_some_and(|one| {
            one.task.abort();
            true
        })
    }
}

async fn connection(
    stream: TcpStream,
    is_admitted: Arc<AtomicBool>,
    answer: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>>,
) {
    let answer = service_fn(|request| {
        let response = answer(&request);
        if response.extensions().get::<Admitted>().is_some() {
            is_admitted.store(true, Relaxed);
        }
        async { Ok::<_, Infallible>(response) }
    });
    // An error of one connection concerns its client only.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}
