//! Sends a request by HTTP, or a call by gRPC, with or without TLS, directly or by a proxy.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::header::HeaderMap;
use http::{Method, Request, Uri, Version};
use http_body_util::{BodyExt, Collected, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::tls::{Stream, Tls};

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

/// Connects, by the proxies that the environment names.
pub struct Client {
    proxies: Matcher,
    /// Nothing if nothing is sent by TLS.
    tls: Option<Tls>,
}

impl Client {
    /// `tls` makes what is needed for TLS, if it is.
    ///
    /// # Errors
    /// Those of `tls`.
    pub fn new<'a>(
        receivers: impl IntoIterator<Item = &'a Uri>,
        tls: impl FnOnce() -> Result<Tls>,
    ) -> Result<Self> {
        let proxies = Matcher::from_env();
        let mut receivers = receivers.into_iter();
        let is_needed = receivers.any(|url| {
            is_secret(url) || proxies.intercept(url).is_some_and(|of| is_secret(of.uri()))
        });
        let tls = is_needed.then(tls).transpose()?;
        Ok(Self { proxies, tls })
    }

    /// Sends a request of HTTP 1.1.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send(&self, message: Message<'_>) -> Result<Answer> {
        in_time(async {
            let proxy = self.proxies.intercept(message.url);
            let stream = self.connect(message.url, proxy.as_ref(), HTTP1).await?;
            // What is no secret, a proxy reads, and sends on.
            let reading = proxy.filter(|_| !is_secret(message.url));
            over_http1(stream, message, reading).await
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
            let proxy = self.proxies.intercept(message.url);
            let stream = self.connect(message.url, proxy.as_ref(), b"h2").await?;
            over_http2(stream, message).await
        })
        .await
    }

    async fn connect(
        &self,
        url: &Uri,
        proxy: Option<&Intercept>,
        protocol: &[u8],
    ) -> Result<Stream> {
        let mut stream = match proxy {
            Some(proxy) => {
                let connected = self.connect_proxy(proxy).await;
                let stream = connected.with_context(|| format!("the proxy {}", proxy.uri()))?;
                match is_secret(url) || protocol != HTTP1 {
                    true => tunnel(stream, url, proxy).await?,
                    false => stream,
                }
            }
            None => tcp(url).await?,
        };
        if is_secret(url) {
            stream = self.secret(stream, url, protocol, true).await?;
        }
        Ok(stream)
    }

    async fn connect_proxy(&self, proxy: &Intercept) -> Result<Stream> {
        let stream = match proxy.uri().scheme_str() {
            Some("http" | "https") => tcp(proxy.uri()).await?,
            _ => bail!("only proxies of http and https are spoken to"),
        };
        if !is_secret(proxy.uri()) {
            return Ok(stream);
        }
        self.secret(stream, proxy.uri(), HTTP1, false).await
    }

    async fn secret(
        &self,
        stream: Stream,
        url: &Uri,
        protocol: &[u8],
        is_receiver: bool,
    ) -> Result<Stream> {
        let tls = self.tls.as_ref().context("no roots were read")?;
        tls.over(stream, place(url)?.0, protocol, is_receiver).await
    }
}

/// The name that TLS has for HTTP 1.1.
const HTTP1: &[u8] = b"http/1.1";

async fn tcp(url: &Uri) -> Result<Stream> {
    Ok(TokioIo::new(Box::new(
        TcpStream::connect(place(url)?).await?,
    )))
}

/// Asks a proxy to pass on whatever comes.
async fn tunnel(stream: Stream, url: &Uri, proxy: &Intercept) -> Result<Stream> {
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(connection.with_upgrades());
    let (_, port) = place(url)?;
    let place = format!("{}:{port}", url.host().unwrap_or_default());
    let request = with_name(Request::connect(&place).header("host", &place), proxy);
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    if !answer.status().is_success() {
        bail!(
            "the proxy {} answers {}",
            proxy.uri(),
            answer.status().as_u16()
        );
    }
    Ok(TokioIo::new(Box::new(TokioIo::new(
        hyper::upgrade::on(answer).await?,
    ))))
}

/// With the name and the password that the proxy's address has.
fn with_name(request: http::request::Builder, proxy: &Intercept) -> http::request::Builder {
    match proxy.basic_auth() {
        Some(name) => request.header("proxy-authorization", name.clone()),
        None => request,
    }
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

/// `proxy`: one that reads the request itself.
async fn over_http1(
    stream: Stream,
    message: Message<'_>,
    proxy: Option<Intercept>,
) -> Result<Answer> {
    let (mut sender, connection) = http1::handshake(stream).await?;
    let served = tokio::spawn(connection);
    let authority = message.url.authority().map_or("", |all| all.as_str());
    let path = message.url.path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    let mut request = Request::builder().header("host", authority);
    request = match proxy {
        Some(proxy) => with_name(request.uri(message.url), &proxy),
        None => request.uri(path),
    };
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

async fn over_http2(stream: Stream, message: Message<'_>) -> Result<Answer> {
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
