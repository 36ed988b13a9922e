//! Where windows go, and in which form.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use http::Uri;
use nthbyte_formats::{otlp, pprof};
use serde_json::json;

use super::http::post;
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
    /// Pyroscope's push API.
    Pyroscope(Uri),
    /// A folder of pprof files.
    Folder(PathBuf),
}

/// The path of OTLP's profiles, which an address without one gets.
const OTLP_PATH: &str = "/v1development/profiles";
const PYROSCOPE_PATH: &str = "/push.v1.PusherService/Push";

impl Receiver {
    /// Reads `otlp=http://collector:4318`.
    ///
    /// # Errors
    /// One line, for the command line's parser.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once('=').unwrap_or((text, ""));
        let kind = match kind {
            "otlp" => Kind::Otlp(address(rest, OTLP_PATH)?),
            "pyroscope" => Kind::Pyroscope(address(rest, PYROSCOPE_PATH)?),
            "folder" if !rest.is_empty() => Kind::Folder(rest.into()),
            _ => {
                return Err(
                    "write otlp=http://HOST:4318, pyroscope=http://HOST:4040 or folder=DIR"
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

    /// A window as it is sent.
    ///
    /// # Errors
    /// None that is expected: it is written to memory.
    pub fn body(&self, of: &Shipment<'_>) -> Result<Vec<u8>> {
        let mut gzipped = Vec::new();
        Ok(match &self.kind {
            Kind::Otlp(_) => {
                let resource = [("service.name".to_owned(), of.service())];
                otlp::encode(of.profile, of.window, of.id, &resource)
            }
            Kind::Folder(_) => {
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
                let sample = json!({"ID": of.uuid(), "rawProfile": base64(&gzipped)});
                let series = json!({"labels": labels, "samples": [sample]});
                serde_json::to_vec(&json!({"series": [series]}))?
            }
        })
    }

    /// Sends what a file of the queue has. Returns why the receiver will never take it, if it says so.
    ///
    /// # Errors
    /// If it takes nothing now.
    pub async fn send(
        &self,
        queued: &Path,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Option<String>> {
        let (url, kind) = match &self.kind {
            Kind::Otlp(url) => (url, "application/x-protobuf"),
            Kind::Pyroscope(url) => (url, "application/json"),
            Kind::Folder(folder) => {
                store(folder, queued, &body)
                    .with_context(|| format!("cannot write to {}", folder.display()))?;
                return Ok(None);
            }
        };
        let authorization = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("content-type", kind)];
        headers.extend(
            authorization
                .iter()
                .map(|text| ("authorization", text.as_str())),
        );
        let answer = post(url, &headers, body).await?;
        let said: String = answer.text.chars().take(200).collect();
        match answer.status {
            200..=299 => Ok(None),
            // It is this request that is wrong, and no later one will be right.
            400 | 413 | 415 | 422 => Ok(Some(format!("{} {}", answer.status, said.trim()))),
            status => bail!("it answers {status} {}", said.trim()),
        }
    }
}

fn address(text: &str, path: &str) -> Result<Uri, String> {
    if text.starts_with("https:") {
        return Err(
            "https is not supported: send to a Collector or an agent on this machine, which speaks TLS"
                .to_owned(),
        );
    }
    let uri: Uri = text
        .parse()
        .map_err(|_| format!("{text:?} is no address"))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err(format!("{text:?} is no address: write http://HOST:PORT"));
    }
    if !matches!(uri.path(), "" | "/") {
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

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - three.len()));
        for at in 0..4 {
            match at <= three.len() {
                true => text.push(SIGNS[(bits >> (18 - 6 * at)) as usize & 63] as char),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base64() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn an_address_gets_the_path_of_its_protocol() {
        let path = |text: &str| match Receiver::parse(text).map(|of| of.kind) {
            Ok(Kind::Otlp(url) | Kind::Pyroscope(url)) => Some(url.to_string()),
            _ => None,
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
            "otlp=https://c",
            "other=http://c",
            "folder=",
        ] {
            assert!(Receiver::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(plain("9a.b"), "_9a_b");
    }
}
