//! A server with one document.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use http::header::{
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, CACHE_CONTROL,
    CONTENT_ENCODING, CONTENT_TYPE, HeaderName, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use tokio::net::TcpListener;

use super::connections::{Admitted, accept};
use super::gate::{Gate, Verdict};

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// The headers by which Chromium asks for permission before a web page may fetch from the loopback interface: "Private
/// Network Access", and its successor "Local Network Access".
const NETWORK_QUESTIONS: [(&str, &str); 2] = [
    (
        "access-control-request-private-network",
        "access-control-allow-private-network",
    ),
    (
        "access-control-request-local-network",
        "access-control-allow-local-network",
    ),
];

/// A profile on the loopback interface.
pub struct Server {
    listener: TcpListener,
    document: Arc<Document>,
}

struct Document {
    gate: Gate,
    /// Gzipped JSON.
    json: Bytes,
}

impl Server {
    /// Listens on a free port, for the page of an origin. `json` is gzipped.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn bind(json: Vec<u8>, origin: &str) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let gate = Gate::new(listener.local_addr()?, origin)?;
        let document = Arc::new(Document {
            gate,
            json: json.into(),
        });
        Ok(Self { listener, document })
    }

    /// Decides which requests get the document.
    pub fn gate(&self) -> &Gate {
        &self.document.gate
    }

    /// Answers requests; does not end.
    ///
    /// # Errors
    /// If no connections can be accepted any more.
    pub async fn run(&self) -> Result<()> {
        let document = Arc::clone(&self.document);
        accept(&self.listener, move |request| document.answer(request)).await
    }
}

impl Document {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let verdict = self.gate.judge(request);
        let mut response = Response::new(Full::default());
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Verdict::Refused(status) = verdict {
            if status == StatusCode::METHOD_NOT_ALLOWED {
                headers.insert(ALLOW, METHODS);
            }
            *response.status_mut() = status;
            return response;
        }
        // It is the origin in the request, so it is a valid value.
        if let Ok(origin) = HeaderValue::from_str(self.gate.origin()) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        if verdict == Verdict::Preflight {
            permit(request.headers(), headers);
            *response.status_mut() = StatusCode::NO_CONTENT;
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            // Every browser that can show the page accepts it.
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            *response.body_mut() = Full::new(self.json.clone());
            response.extensions_mut().insert(Admitted);
        }
        response
    }
}

/// Adds the headers that permit what a preflight asks for.
fn permit(asked: &HeaderMap, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    for (question, answer) in NETWORK_QUESTIONS {
        if asked.get(question).is_some_and(|value| value == "true") {
            headers.insert(
                HeaderName::from_static(answer),
                HeaderValue::from_static("true"),
            );
        }
    }
}
