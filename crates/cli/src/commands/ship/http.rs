//! Sends a request by HTTP.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A receiver that takes longer is tried again.
const LONGEST: Duration = Duration::from_secs(30);
/// So much of an answer is read.
const LONGEST_ANSWER: usize = 64 << 10;

/// An answer: its status, and the beginning of its text.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// What it says.
    pub text: String,
}

/// Sends a POST request.
///
/// # Errors
/// If there is no answer.
pub async fn post(url: &Uri, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Answer> {
    tokio::time::timeout(LONGEST, exchange(url, headers, body))
        .await
        .context("no answer in time")?
}

async fn exchange(url: &Uri, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Answer> {
    let Some(host) = url.host() else {
        bail!("the address has no host");
    };
    let port = url.port_u16().unwrap_or(80);
    // An address of IPv6 has brackets in a URL.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let served = tokio::spawn(connection);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path).header("host", format!("{host}:{port}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body)))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let text = Limited::new(answer.into_body(), LONGEST_ANSWER)
        .collect()
        .await;
    // What is longer, or breaks off, says no less than its status.
    let text = text.map_or_else(|_| Bytes::new(), |text| text.to_bytes());
    served.abort();
    Ok(Answer {
        status,
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}
