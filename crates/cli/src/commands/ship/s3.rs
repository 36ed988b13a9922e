//! Signs requests for S3 and for stores that speak its protocol: Amazon's signature, version 4.
//!
//! It is a text of the request, a digest of it, and five HMACs. ring, by which TLS is done, has both; Amazon's crates, and others for S3, bring
//! much more than that.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use http::{Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use ring::{digest, hmac};

/// What a path has percent signs for, in the text that is signed.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Who signs, and for which region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    id: String,
    secret: String,
    /// Of a session: keys that are lent for some hours have it.
    token: Option<String>,
    region: String,
}

impl Keys {
    /// Those that the environment has, or else the file of credentials that Amazon's own tools use.
    ///
    /// # Errors
    /// If there are none.
    pub fn find() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let pair = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
        if let Some((id, secret)) = pair {
            let token = variable("AWS_SESSION_TOKEN");
            return Ok(Self {
                id,
                secret,
                token,
                region,
            });
        }
        let file = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let file = file.or_else(|| Some(std::env::home_dir()?.join(".aws/credentials")));
        let file = file.unwrap_or_default();
        let text = std::fs::read_to_string(&file).with_context(|| {
            format!(
                "no keys for s3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them into {}",
                file.display()
            )
        })?;
        let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let mut keys = Self::in_file(&text, &profile).with_context(|| {
            format!(
                "{} has no keys under [{profile}]: aws_access_key_id and aws_secret_access_key",
                file.display()
            )
        })?;
        keys.region = region;
        Ok(keys)
    }

    fn in_file(text: &str, profile: &str) -> Option<Self> {
        let mut keys = Self::default();
        let mut is_inside = false;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                is_inside = name.trim() == profile;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| is_inside) else {
                continue;
            };
            let value = value.trim().to_owned();
            match name.trim() {
                "aws_access_key_id" => keys.id = value,
                "aws_secret_access_key" => keys.secret = value,
                "aws_session_token" => keys.token = Some(value),
                _ => {}
            }
        }
        (!keys.id.is_empty() && !keys.secret.is_empty()).then_some(keys)
    }

    /// Adds to the `headers` of a request those that sign it, all others, and its content.
    ///
    /// # Errors
    /// If the address has no host.
    pub fn sign(
        &self,
        method: &Method,
        url: &Uri,
        headers: &mut Vec<(String, String)>,
        body: &[u8],
        now: SystemTime,
    ) -> Result<()> {
        let Some(host) = url.authority() else {
            bail!("the address has no host");
        };
        let time = written(now);
        let content = hex(digest::digest(&digest::SHA256, body).as_ref());
        headers.push(("x-amz-date".to_owned(), time.clone()));
        headers.push(("x-amz-content-sha256".to_owned(), content.clone()));
        let token = self.token.iter();
        headers.extend(token.map(|token| ("x-amz-security-token".to_owned(), token.clone())));

        let mut signed = BTreeMap::from([("host".to_owned(), host.as_str().to_owned())]);
        for (name, value) in headers.iter() {
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            let of = signed.entry(name.to_ascii_lowercase());
            of.and_modify(|all| *all = format!("{all},{value}"))
                .or_insert(value);
        }
        let names = signed.keys().map(String::as_str).collect::<Vec<_>>();
        let names = names.join(";");
        let path: Vec<u8> = percent_decode_str(url.path()).collect();
        let mut text = format!("{method}\n{}\n\n", percent_encode(&path, ENCODED));
        for (name, value) in &signed {
            let _ = writeln!(text, "{name}:{value}");
        }
        let _ = write!(text, "\n{names}\n{content}");

        let day = &time[..8];
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let text = hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{text}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [day, &self.region, "s3", "aws4_request", &text] {
            let of = hmac::Key::new(hmac::HMAC_SHA256, &key);
            key = hmac::sign(&of, part.as_bytes()).as_ref().to_vec();
        }
        headers.push((
            "authorization".to_owned(),
            format!(
                "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={}",
                self.id,
                hex(&key)
            ),
        ));
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `20130524T000000Z`.
fn written(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    // Years that begin in March have their odd day at the end; 400 of them have 146,097 days.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{:02}Z",
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// The example of a PUT in Amazon's documentation of S3, "Authenticating Requests: Using the Authorization Header".
    #[test]
    fn a_request_is_signed_as_amazon_says() {
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
            region: "us-east-1".to_owned(),
        };
        let url = Uri::from_static("https://examplebucket.s3.amazonaws.com/test$file.text");
        let mut headers = vec![
            (
                "Date".to_owned(),
                "Fri, 24 May 2013 00:00:00 GMT".to_owned(),
            ),
            (
                "x-amz-storage-class".to_owned(),
                "  REDUCED_REDUNDANCY ".to_owned(),
            ),
        ];
        let now = after(1_369_353_600);
        keys.sign(
            &Method::PUT,
            &url,
            &mut headers,
            b"Welcome to Amazon S3.",
            now,
        )
        .unwrap();
        assert_eq!(
            headers.last().unwrap().1,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,\
             Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    #[test]
    fn keys_are_those_of_their_profile() {
        let text = "# mine\n[ other ]\naws_access_key_id=no\naws_secret_access_key=no\n\n[default]\n\
                    aws_access_key_id = id\naws_secret_access_key = se=cret\nregion = x\naws_session_token = token\n";
        let keys = Keys::in_file(text, "default").unwrap();
        assert_eq!((&*keys.id, &*keys.secret), ("id", "se=cret"));
        assert_eq!(keys.token.as_deref(), Some("token"));
        assert_eq!(Keys::in_file(text, "other").unwrap().token, None);
        assert_eq!(Keys::in_file(text, "third"), None);
        assert_eq!(
            Keys::in_file("[default]\naws_access_key_id=id", "default"),
            None
        );
    }

    #[test]
    fn moments_are_written_in_utc() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_704_067_199, "20231231T235959Z"),
            (1_709_164_800, "20240229T000000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(written(after(seconds)), text);
        }
    }
}
