//! Who may read the profile.
//!
//! A profile contains private details of a program, and any web page that is open in a browser can
//! send requests to this machine. So a request must pass four checks:
//!
//! - the server listens on the loopback interface only;
//! - `Host` names the loopback interface, which keeps out a foreign name that resolves
//!   to this machine (DNS rebinding);
//! - `Origin` is the Firefox Profiler (the one that the user has chosen), which a browser does not let a page forge;
//! - the path holds 256 random bits, so nobody finds the address by guessing.
//!
//! A refusal reveals nothing: neither whether the path was right nor that there is a profile.

use std::net::SocketAddr;

use http::header::{HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Method, Request, StatusCode};
use subtle::ConstantTimeEq;

/// Random bytes in the path.
const SECRET: usize = 32;

/// Decides about requests.
pub struct Gate {
    address: SocketAddr,
    path: String,
    origin: String,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The profile.
    Profile,
    /// The permission to ask for it.
    Preflight,
    /// Nothing, for this reason.
    Refused(StatusCode),
}

impl Gate {
    /// For a server at this address and the page of this origin, with a new secret.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(address: SocketAddr, origin: &str) -> Result<Self, getrandom::Error> {
        let mut secret = [0; SECRET];
        getrandom::fill(&mut secret)?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = format!("/{secret}/profile.json");
        Ok(Self {
            address,
            path,
            origin: origin.to_owned(),
        })
    }

    /// The origin of the page that may read the profile.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Where the profile is.
    pub fn address(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Decides about a request.
    pub fn judge<B>(&self, request: &Request<B>) -> Verdict {
        // Only requests to a proxy name a whole address, and this is no proxy.
        if request.uri().authority().is_some() || !self.is_here(request.headers()) {
            return Verdict::Refused(StatusCode::FORBIDDEN);
        }
        if only(request.headers(), &ORIGIN) != Some(self.origin.as_bytes()) {
            return Verdict::Refused(StatusCode::FORBIDDEN);
        }
        let path = request
            .uri()
            .path_and_query()
            .map_or("", |path| path.as_str());
        if !bool::from(path.as_bytes().ct_eq(self.path.as_bytes())) {
            return Verdict::Refused(StatusCode::NOT_FOUND);
        }
        match *request.method() {
            Method::GET | Method::HEAD => Verdict::Profile,
            Method::OPTIONS => Verdict::Preflight,
            _ => Verdict::Refused(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn is_here(&self, headers: &HeaderMap) -> bool {
        let port = self.address.port();
        only(headers, &HOST).is_some_and(|host| {
            host == format!("127.0.0.1:{port}").as_bytes()
                || host.eq_ignore_ascii_case(format!("localhost:{port}").as_bytes())
        })
    }
}

/// The value of a header that must occur exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::place::OFFICIAL as PROFILER;

    fn gate() -> Gate {
        Gate::new(SocketAddr::from(([127, 0, 0, 1], 4321)), PROFILER).expect("random numbers")
    }

    fn verdict(gate: &Gate, change: impl FnOnce(&mut Request<()>)) -> Verdict {
        let mut request = Request::get(gate.path.as_str())
            .header(HOST, "127.0.0.1:4321")
            .header(ORIGIN, PROFILER)
            .body(())
            .expect("a valid request");
        change(&mut request);
        gate.judge(&request)
    }

    #[test]
    fn the_profilers_own_request_passes() {
        let gate = gate();
        assert_eq!(verdict(&gate, |_| {}), Verdict::Profile);
        let head = verdict(&gate, |r| *r.method_mut() = Method::HEAD);
        assert_eq!(head, Verdict::Profile);
        let options = verdict(&gate, |r| *r.method_mut() = Method::OPTIONS);
        assert_eq!(options, Verdict::Preflight);
        let name = verdict(&gate, |r| {
            r.headers_mut()
                .insert(HOST, "LocalHost:4321".parse().unwrap());
        });
        assert_eq!(name, Verdict::Profile);
    }

    #[test]
    fn another_host_is_refused() {
        let gate = gate();
        for host in [
            "",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:4322",
            "127.0.0.1:43210",
            "127.0.0.2:4321",
            "evil.example:4321",
            "localhost.evil.example:4321",
            "127.0.0.1:4321.evil.example",
            "[::1]:4321",
            "0.0.0.0:4321",
            "user@127.0.0.1:4321",
        ] {
            let found = verdict(&gate, |r| {
                r.headers_mut().insert(HOST, host.parse().unwrap());
            });
            assert_eq!(found, Verdict::Refused(StatusCode::FORBIDDEN), "{host}");
        }
        let none = verdict(&gate, |r| drop(r.headers_mut().remove(HOST)));
        assert_eq!(none, Verdict::Refused(StatusCode::FORBIDDEN));
        let two = verdict(&gate, |r| {
            r.headers_mut()
                .append(HOST, "127.0.0.1:4321".parse().unwrap());
        });
        assert_eq!(two, Verdict::Refused(StatusCode::FORBIDDEN));
        let proxied = verdict(&gate, |r| {
            *r.uri_mut() = gate.address().parse().unwrap();
        });
        assert_eq!(proxied, Verdict::Refused(StatusCode::FORBIDDEN));
    }

    #[test]
    fn another_origin_is_refused() {
        let gate = gate();
        for origin in [
            "",
            "null",
            "http://profiler.firefox.com",
            "https://profiler.firefox.com.evil.example",
            "https://evil.example",
            "https://profiler.firefox.com:8443",
            "HTTPS://profiler.firefox.com",
            "https://profiler.firefox.com/",
            "http://127.0.0.1:4321",
            "https://profiler.firefox.com null",
        ] {
            let found = verdict(&gate, |r| {
                r.headers_mut().insert(ORIGIN, origin.parse().unwrap());
            });
            assert_eq!(found, Verdict::Refused(StatusCode::FORBIDDEN), "{origin}");
        }
        let none = verdict(&gate, |r| drop(r.headers_mut().remove(ORIGIN)));
        assert_eq!(none, Verdict::Refused(StatusCode::FORBIDDEN));
    }

    #[test]
    fn a_copy_of_the_page_takes_the_place_of_the_official_one() {
        let copy = "http://profiler.corp:4243";
        let gate = Gate {
            origin: copy.to_owned(),
            ..gate()
        };
        let from = |origin: &str| {
            verdict(&gate, |r| {
                r.headers_mut().insert(ORIGIN, origin.parse().unwrap());
            })
        };
        assert_eq!(from(copy), Verdict::Profile);
        for origin in [
            PROFILER,
            "http://profiler.corp",
            "https://profiler.corp:4243",
        ] {
            assert_eq!(from(origin), Verdict::Refused(StatusCode::FORBIDDEN));
        }
    }

    #[test]
    fn another_path_is_not_found() {
        let gate = gate();
        let longer = format!("{}x", gate.path);
        let query = format!("{}?x", gate.path);
        let shorter = &gate.path[..gate.path.len() - 1];
        let other = super::Gate::new(gate.address, PROFILER).unwrap().path;
        let upper = gate.path.to_uppercase();
        for path in [
            "/",
            "/profile.json",
            &longer,
            &query,
            shorter,
            &other,
            &upper,
        ] {
            let found = verdict(&gate, |r| *r.uri_mut() = path.parse().unwrap());
            assert_eq!(found, Verdict::Refused(StatusCode::NOT_FOUND), "{path}");
        }
    }

    #[test]
    fn another_method_is_refused() {
        let gate = gate();
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::TRACE,
            Method::CONNECT,
        ] {
            let found = verdict(&gate, |r| *r.method_mut() = method.clone());
            assert_eq!(
                found,
                Verdict::Refused(StatusCode::METHOD_NOT_ALLOWED),
                "{method}"
            );
        }
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let (one, other) = (gate(), gate());
        assert_ne!(one.path, other.path);
        assert_eq!(one.path.len(), "//profile.json".len() + 2 * SECRET);
    }
}
