//! Where windows go, and in which form.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Method, Uri};
use nthbyte_formats::{otlp, pprof};
use serde_json::json;

use super::http::{Client, Message};
use super::s3::Keys;
use super::windows::Shipment;

/// A receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    kind: Kind,
    /// As it was written.
    text: String,
}

#[derive(Clone, Debug)]
enum Kind {
    /// An OpenTelemetry Collector, or what speaks its protocol, by HTTP.
    Otlp(Uri),
    /// The same by gRPC.
    OtlpGrpc(Uri),
    /// Pyroscope's push API.
    Pyroscope(Uri),
    /// A folder of pprof files.
    Folder(PathBuf),
    /// A folder, bucket or container of pprof files, each of which is sent by PUT.
    Put(Uri),
    /// The same, with each request signed by a key.
    S3(Uri),
}

impl Kind {
    fn url(&self) -> Option<&Uri> {
        match self {
            Self::Otlp(url)
            | Self::OtlpGrpc(url)
            | Self::Pyroscope(url)
            | Self::Put(url)
            | Self::S3(url) => Some(url),
            Self::Folder(_) => None,
        }
    }
}

/// The path of OTLP's profiles, which an address without one gets.
const OTLP_PATH: &str = "/v1development/profiles";
const GRPC_PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
const PYROSCOPE_PATH: &str = "/push.v1.PusherService/Push";
/// A message that gRPC refuses thus is wrong itself: INVALID_ARGUMENT, OUT_OF_RANGE.
const WRONG: [u16; 2] = [3, 11];
/// RESOURCE_EXHAUSTED: too much at once, if details say when to try again; without them, too long.
const TOO_MUCH: u16 = 8;

impl Receiver {
    /// Reads `otlp=http://collector:4318`.
    ///
    /// # Errors
    /// One line, for the command line's parser.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once('=').unwrap_or((text, ""));
        let kind = match kind {
            "otlp" => Kind::Otlp(address(rest, OTLP_PATH)?),
            "otlp-grpc" => Kind::OtlpGrpc(address(rest, GRPC_PATH)?),
            "pyroscope" => Kind::Pyroscope(address(rest, PYROSCOPE_PATH)?),
            "put" => Kind::Put(address(rest, "/")?),
            "s3" => {
                let url = address(rest, "/")?;
                if url.query().is_some() {
                    return Err(
                        "s3 signs each request: nothing stands behind a question mark".to_owned(),
                    );
                }
                Kind::S3(url)
            }
            "folder" if !rest.is_empty() => Kind::Folder(rest.into()),
            _ => {
                return Err(
                    "write otlp=http://HOST:4318, otlp-grpc=http://HOST:4317, pyroscope=http://HOST:4040, put=https://HOST/BUCKET, s3=https://HOST/BUCKET or folder=DIR"
                        .to_owned(),
                );
            }
        };
        Ok(Self {
            kind,
            text: text.to_owned(),
        })
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.text
    }

    /// Its address, if it has one.
    pub fn url(&self) -> Option<&Uri> {
        self.kind.url()
    }

    /// Whether its requests are signed.
    pub fn is_signed(&self) -> bool {
        matches!(self.kind, Kind::S3(_))
    }

    /// A window as it is sent.
    ///
    /// # Errors
    /// None that is expected: it is written to memory.
    pub fn body(&self, of: &Shipment<'_>) -> Result<Vec<u8>> {
        let mut gzipped = Vec::new();
        Ok(match &self.kind {
            Kind::Otlp(_) | Kind::OtlpGrpc(_) => {
                let resource = [("service.name".to_owned(), of.service())];
                otlp::encode(of.profile, of.window, of.id, &resource)
            }
            Kind::Folder(_) | Kind::Put(_) | Kind::S3(_) => {
                pprof::write_window(of.profile, of.window, &mut gzipped)?;
                gzipped
            }
            Kind::Pyroscope(_) => {
                pprof::write_window(of.profile, of.window, &mut gzipped)?;
                let label = |name: &str, value: &str| json!({"name": name, "value": value});
                let mut labels = vec![
                    label("__name__", "memory"),
                    label("service_name", &of.service()),
                ];
                let host = of.profile.meta.host.iter();
                labels.extend(host.map(|host| label("host", host)));
                let tags = of.profile.meta.tags().filter(|(key, _)| *key != "host");
                labels.extend(tags.map(|(key, value)| label(&plain(key), value)));
                let sample =
                    json!({"ID": of.uuid(), "rawProfile": BASE64_STANDARD.encode(&gzipped)});
                let series = json!({"labels": labels, "samples": [sample]});
                serde_json::to_vec(&json!({"series": [series]}))?
            }
        })
    }

    /// Sends what a file of the queue has, with further `headers`. Returns why the receiver will never take it, if it says so.
    ///
    /// # Errors
    /// If it takes nothing now.
    pub async fn send(
        &self,
        client: &Client,
        queued: &Path,
        body: Vec<u8>,
        mut headers: Vec<(String, String)>,
    ) -> Result<Option<String>> {
        let (url, kind) = match &self.kind {
            Kind::Folder(folder) => {
                store(folder, queued, &body)
                    .with_context(|| format!("cannot write to {}", folder.display()))?;
                return Ok(None);
            }
            Kind::Otlp(url) => (url, "application/x-protobuf"),
            Kind::OtlpGrpc(url) => (url, "application/grpc"),
            Kind::Pyroscope(url) => (url, "application/json"),
            Kind::Put(url) | Kind::S3(url) => (&beneath(url, queued)?, "application/octet-stream"),
        };
        headers.push(("content-type".to_owned(), kind.to_owned()));
        let method = match &self.kind {
            Kind::Put(_) | Kind::S3(_) => Method::PUT,
            _ => Method::POST,
        };
        if self.is_signed() {
            // That of the token file is another receiver's.
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            Keys::find()?.sign(&method, url, &mut headers, &body, SystemTime::now())?;
        }
        let message = Message {
            method,
            url,
            headers,
            body,
        };
        if let Kind::OtlpGrpc(_) = self.kind {
            let answer = client.call(message).await?;
            let said = beginning(&answer.text);
            let is_wrong =
                WRONG.contains(&answer.status) || answer.status == TOO_MUCH && !answer.has_details;
            return match answer.status {
                0 => Ok(None),
                status if is_wrong => Ok(Some(format!("gRPC {status} {said}"))),
                status => bail!("it answers gRPC {status} {said}"),
            };
        }
        let answer = client.send(message).await?;
        let said = beginning(&answer.text);
        match answer.status {
            200..=299 => Ok(None),
            // Keys whose time is over, or a wrong region.
            400 if self.is_signed() => bail!("it answers 400 {said}"),
            // It is this request that is wrong, and no later one will be right.
            400 | 413 | 415 | 422 => Ok(Some(format!("{} {said}", answer.status))),
            status => bail!("it answers {status} {said}"),
        }
    }
}

/// The beginning of an answer, in one line.
fn beginning(text: &str) -> String {
    let text: String = text.chars().take(200).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The address of a file in a folder. The part behind a question mark, a signature for the whole folder, stays behind
/// it.
fn beneath(folder: &Uri, queued: &Path) -> Result<Uri> {
    let mut parts = folder.clone().into_parts();
    let path = folder.path().trim_end_matches('/');
    let name = queued.with_extension("pb.gz");
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let query = folder.query().map(|query| format!("?{query}"));
    let whole = format!("{path}/{name}{}", query.unwrap_or_default());
    parts.path_and_query = Some(whole.parse()?);
    Ok(Uri::from_parts(parts)?)
}

fn address(text: &str, path: &str) -> Result<Uri, String> {
    let uri: Uri = text
        .parse()
        .map_err(|_| format!("{text:?} is no address"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
        return Err(format!(
            "{text:?} is no address: write http://HOST:PORT or https://HOST:PORT"
        ));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Ok(uri);
    }
    let whole = format!("{}{path}", text.trim_end_matches('/'));
    whole.parse().map_err(|_| format!("{text:?} is no address"))
}

/// Writes a pprof file, which appears when it is complete.
fn store(folder: &Path, queued: &Path, body: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let name = queued.file_name().unwrap_or_default();
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, body)?;
    file.persist(folder.join(name).with_extension("pb.gz"))?;
    Ok(())
}

/// A label's name as Prometheus allows it.
fn plain(key: &str) -> String {
    let sign = |sign: char| {
        if sign.is_ascii_alphanumeric() {
            sign
        } else {
            '_'
        }
    };
    let text: String = key.chars().map(sign).collect();
    match text.as_bytes().first() {
        Some(first) if first.is_ascii_digit() => format!("_{text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_path_of_its_protocol() {
        let path = |text: &str| match Receiver::parse(text).map(|of| of.kind) {
            Ok(kind) => kind.url().map(ToString::to_string),
            Err(_) => None,
        };
        assert_eq!(
            path("otlp=http://c:4318").as_deref(),
            Some("http://c:4318/v1development/profiles")
        );
        assert_eq!(
            path("otlp=http://c:4318/other").as_deref(),
            Some("http://c:4318/other")
        );
        assert_eq!(
            path("pyroscope=http://[::1]:4040/").as_deref(),
            Some("http://[::1]:4040/push.v1.PusherService/Push")
        );
        for wrong in [
            "otlp",
            "otlp=",
            "otlp=c:4318",
            "otlp=ftp://c",
            "put=/srv/bucket",
            "s3=https://s3.test/bucket?x-id=PutObject",
            "other=http://c",
            "folder=",
        ] {
            assert!(Receiver::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            path("otlp-grpc=https://c:4317").as_deref(),
            Some(
                "https://c:4317/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
            )
        );
        assert_eq!(plain("9a.b"), "_9a_b");
    }

    #[test]
    fn a_file_is_put_below_the_address_and_before_its_signature() {
        let queued = Path::new("/queue/007-ab.window");
        for (folder, file) in [
            ("https://b.s3.test", "https://b.s3.test/007-ab.pb.gz"),
            ("https://s/b/app/", "https://s/b/app/007-ab.pb.gz"),
            (
                "http://a/b?sv=1&sig=x%2F",
                "http://a/b/007-ab.pb.gz?sv=1&sig=x%2F",
            ),
        ] {
            let found = beneath(&address(folder, "/").unwrap(), queued).unwrap();
            assert_eq!(found.to_string(), file);
        }
    }
}
