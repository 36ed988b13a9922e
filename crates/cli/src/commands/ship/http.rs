//! Sends a request by HTTP, or a call by gRPC, with or without TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::header::HeaderMap;
use http::{Method, Request, Uri, Version};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A receiver that takes longer is tried again.
const LONGEST: Duration = Duration::from_secs(30);
/// So much of an answer is read.
const LONGEST_ANSWER: usize = 64 << 10;

/// A request.
pub struct Message<'a> {
    /// POST or PUT.
    pub method: Method,
    /// Where to.
    pub url: &'a Uri,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

/// An answer: its status, and the beginning of its text.
pub struct Answer {
    /// Of HTTP, or of gRPC.
    pub status: u16,
    /// What it says.
    pub text: String,
    /// Of gRPC: whether there are details, as of when to try again.
    pub has_details: bool,
}

/// Connects, with the roots that certificates are checked against.
pub struct Client {
    /// Nothing if no receiver is sent to by TLS.
    tls: Option<ClientConfig>,
}

impl Client {
    /// Reads the roots, if they are `needed`: the file's, or else the system's.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(needed: bool, roots: Option<&Path>) -> Result<Self> {
        if !needed && roots.is_none() {
            return Ok(Self { tls: None });
        }
        let mut store = RootCertStore::empty();
        if let Some(file) = roots {
            let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
            let all: Vec<_> = all.map_err(|error| {
                anyhow!(
                    "cannot read the certificates of {}: {error}",
                    file.display()
                )
            })?;
            for one in all {
                store
                    .add(one)
                    .with_context(|| format!("a certificate of {} is no root", file.display()))?;
            }
            if store.is_empty() {
                bail!("{} has no certificate", file.display());
            }
        } else {
            // One that cannot be read does not hinder the others.
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let why = found.errors.first().map(|error| format!(": {error}"));
                bail!(
                    "this machine has no root certificates{}; give --ca-file, or set SSL_CERT_FILE",
                    why.unwrap_or_default()
                );
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { tls: Some(config) })
    }

    /// Sends a request of HTTP 1.1.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send(&self, message: Message<'_>) -> Result<Answer> {
        in_time(async {
            match self.connect(message.url, b"http/1.1").await? {
                Stream::Plain(stream) => over_http1(stream, message).await,
                Stream::Secret(stream) => over_http1(stream, message).await,
            }
        })
        .await
    }

    /// Calls a method without streams: the message is its argument. The answer has the status of gRPC; the one of HTTP is an
    /// error if it is not 200.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn call(&self, mut message: Message<'_>) -> Result<Answer> {
        let length = u32::try_from(message.body.len()).context("the message is too long")?;
        let mut framed = vec![0];
        framed.extend(length.to_be_bytes());
        framed.append(&mut message.body);
        message.body = framed;
        in_time(async {
            match self.connect(message.url, b"h2").await? {
                Stream::Plain(stream) => over_http2(stream, message).await,
                Stream::Secret(stream) => over_http2(stream, message).await,
            }
        })
        .await
    }

    async fn connect(&self, url: &Uri, protocol: &[u8]) -> Result<Stream> {
        let (name, port) = place(url)?;
        let stream = TcpStream::connect((name, port)).await?;
        let Some(config) = self.tls.as_ref().filter(|_| is_secret(url)) else {
            return Ok(Stream::Plain(TokioIo::new(stream)));
        };
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from(name.to_owned())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let stream = stream.await.context("no TLS")?;
        Ok(Stream::Secret(Box::new(TokioIo::new(stream))))
    }
}

enum Stream {
    Plain(TokioIo<TcpStream>),
    Secret(Box<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>>),
}

/// Whether it is sent to by TLS.
pub fn is_secret(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

/// The host, without the brackets that an address of IPv6 has in a URL, and the port.
fn place(url: &Uri) -> Result<(&str, u16)> {
    let host = url.host().context("the address has no host")?;
    let port = url.port_u16();
    let port = port.unwrap_or(if is_secret(url) { 443 } else { 80 });
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

async fn in_time(answer: impl Future<Output = Result<Answer>>) -> Result<Answer> {
    tokio::time::timeout(LONGEST, answer)
        .await
        .context("no answer in time")?
}

async fn over_http1<S>(stream: S, message: Message<'_>) -> Result<Answer>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await?;
    let served = tokio::spawn(connection);
    let authority = message.url.authority().map_or("", |all| all.as_str());
    let path = message.url.path_and_query();
    let request = Request::builder()
        .uri(path.map_or("/", |path| path.as_str()))
        .header("host", authority);
    let answer = sender.send_request(message.into_request(request)?).await?;
    let status = answer.status().as_u16();
    let text = read(answer.into_body()).await;
    served.abort();
    Ok(Answer {
        status,
        // A text that is longer, or breaks off, says no less than its status.
        text: text.map_or_else(String::new, |text| {
            String::from_utf8_lossy(&text.to_bytes()).into_owned()
        }),
        has_details: false,
    })
}

async fn over_http2<S>(stream: S, message: Message<'_>) -> Result<Answer>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
    let served = tokio::spawn(connection);
    let request = Request::builder()
        .uri(message.url)
        .version(Version::HTTP_2)
        .header("te", "trailers");
    let answer = sender.send_request(message.into_request(request)?).await?;
    let (head, body) = answer.into_parts();
    if head.status != 200 {
        bail!("it answers {}", head.status.as_u16());
    }
    let body = read(body).await;
    served.abort();
    // The status is behind the content; or before, where there is none.
    let trailers = body.as_ref().and_then(Collected::trailers);
    let value = |name: &str| -> Option<String> {
        let found = |headers: &HeaderMap| headers.get(name).map(|value| value.as_bytes().to_vec());
        let value = trailers.and_then(found).or_else(|| found(&head.headers))?;
        Some(String::from_utf8_lossy(&value).into_owned())
    };
    let status = value("grpc-status").and_then(|text| text.parse().ok());
    Ok(Answer {
        status: status.context("its answer has no status of gRPC")?,
        text: value("grpc-message").unwrap_or_default(),
        has_details: value("grpc-status-details-bin").is_some(),
    })
}

impl Message<'_> {
    fn into_request(self, request: http::request::Builder) -> Result<Request<Full<Bytes>>> {
        let mut request = request.method(self.method);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        Ok(request.body(Full::new(Bytes::from(self.body)))?)
    }
}

async fn read(body: Incoming) -> Option<Collected<Bytes>> {
    Limited::new(body, LONGEST_ANSWER).collect().await.ok()
}
