//! Serves a copy of the Firefox Profiler from a folder.
//!
//! It has a port of its own, so it is another origin than the profile: the page must ask for the profile like any other page,
//! and the [gate](super::gate) stays the same. The files are public, and there is nothing else to read here. So any page may ask,
//! but only for what lies in the folder.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use tokio::net::TcpListener;

use super::connections::accept;

/// The page's own policy (`res/_headers` of its repository), without fonts and films of other sites.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; \
     img-src http: https: data:; object-src 'none'; connect-src *; form-action 'none'; frame-ancestors 'none'",
);

/// A copy of the page on the loopback interface.
pub struct Copy {
    listener: TcpListener,
    folder: Arc<PathBuf>,
}

impl Copy {
    /// Listens on a free port.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn bind(folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let folder = Arc::new(folder.canonicalize()?);
        Ok(Self { listener, folder })
    }

    /// The origin of the page.
    ///
    /// # Errors
    /// If the system does not know its own port.
    pub fn origin(&self) -> Result<String> {
        Ok(format!("http://{}", self.listener.local_addr()?))
    }

    /// Answers requests; does not end.
    ///
    /// # Errors
    /// If no connections can be accepted any more.
    pub async fn run(&self) -> Result<()> {
        let folder = Arc::clone(&self.folder);
        accept(&self.listener, move |request| answer(&folder, request)).await
    }
}

fn answer(folder: &Path, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    let path = request.uri().path();
    // An address that is no file is one of the page's own: `/from-url/…`.
    let is_code = [".js", ".css", ".wasm", ".map"]
        .iter()
        .any(|end| path.ends_with(end));
    let page = (!is_code).then(|| folder.join("index.html"));
    let file = file_of(folder, path).or(page);
    let content = file.and_then(|file| Some((std::fs::read(&file).ok()?, file)));
    let Some((content, file)) = content else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    *response.body_mut() = Full::new(content.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type(&file));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The file of an address, if there is one in the folder. The names of the page's files need no escapes.
fn file_of(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path.strip_prefix('/')?);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !path.components().all(is_plain) {
        return None;
    }
    // A symbolic link may lead out of the folder.
    let file = folder.join(path).canonicalize().ok()?;
    (file.starts_with(folder) && file.is_file()).then_some(file)
}

fn content_type(file: &Path) -> HeaderValue {
    HeaderValue::from_static(match file.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript",
        Some("css") => "text/css",
        Some("json" | "map") => "application/json",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg") => "image/jpeg",
        Some("ftl" | "txt" | "md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_folder_are_served() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("secret.txt"), "secret").unwrap();
        let folder = place.path().join("page");
        std::fs::create_dir_all(folder.join("locales")).unwrap();
        std::fs::write(folder.join("index.html"), "page").unwrap();
        std::fs::write(folder.join("locales/en.ftl"), "words").unwrap();
        std::os::unix::fs::symlink("../secret.txt", folder.join("link.txt")).unwrap();
        let folder = folder.canonicalize().unwrap();
        let found = |path| file_of(&folder, path);
        assert_eq!(found("/index.html"), Some(folder.join("index.html")));
        assert_eq!(
            found("/locales/en.ftl"),
            Some(folder.join("locales/en.ftl"))
        );
        for path in [
            "/",
            "/locales",
            "/from-url/http%3A%2F%2F127.0.0.1",
            "/../secret.txt",
            "/locales/../../secret.txt",
            "//etc/passwd",
            "/%2e%2e/secret.txt",
            "/link.txt",
        ] {
            assert_eq!(found(path), None, "{path}");
        }
    }
}
