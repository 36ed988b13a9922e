//! Where the Firefox Profiler comes from: its own site, a copy on another one, or a copy in a folder of this machine.

use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::Scheme;

/// The Firefox Profiler's own site.
pub const OFFICIAL: &str = "https://profiler.firefox.com";

/// A copy of the page, or the page itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageSource {
    /// The origin of a site, as browsers write it.
    Site(String),
    /// A folder with a built copy, which is served from this machine.
    Folder(PathBuf),
}

impl PageSource {
    /// A site's address or a folder, as the user writes it.
    ///
    /// # Errors
    /// One line that says why it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Self::folder(Path::new(text));
        }
        let wrong = || {
            format!(
                "`{text}` is no site: write the address without a path, as https://profiler.example:8443, or a folder"
            )
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let scheme = uri.scheme().ok_or_else(wrong)?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let is_web = [Scheme::HTTP, Scheme::HTTPS].contains(scheme);
        let is_bare = uri.path() == "/" && uri.query().is_none();
        let host = authority.host().to_lowercase();
        if !is_web || !is_bare || host.is_empty() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        // A port that is left out, or empty, or the scheme's own, is not part of an origin.
        let has_colon = authority.as_str().len() > host.len();
        let port = match authority.port_u16() {
            None if has_colon && !authority.as_str().ends_with(':') => return Err(wrong()),
            port => port.filter(|&port| port != own_port(scheme)),
        };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self::Site(format!("{scheme}://{host}{port}")))
    }

    /// A folder, if it has a built copy.
    fn folder(path: &Path) -> Result<Self, String> {
        if path.join("index.html").is_file() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let built = path.join("dist");
        let advice = if built.join("index.html").is_file() {
            format!("the copy is in {}", built.display())
        } else {
            "build one as docs/view.md says, or write a site's address, as https://profiler.example"
                .to_owned()
        };
        Err(format!(
            "there is no Firefox Profiler in {}: it has no index.html; {advice}",
            path.display()
        ))
    }

    /// The copy that is installed for this user, if there is one.
    #[must_use]
    pub fn installed() -> Option<Self> {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        // A relative path is to be ignored: XDG Base Directory Specification.
        let data = data.filter(|path| path.is_absolute()).or_else(|| {
            let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
            home.map(|home| PathBuf::from(home).join(".local/share"))
        });
        Self::folder(&data?.join("nthbyte/firefox-profiler")).ok()
    }
}

impl Default for PageSource {
    fn default() -> Self {
        Self::Site(OFFICIAL.to_owned())
    }
}

fn own_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_written_as_browsers_write_its_origin() {
        for (text, origin) in [
            ("https://profiler.firefox.com", OFFICIAL),
            ("https://profiler.firefox.com/", OFFICIAL),
            ("HTTPS://Profiler.Firefox.com:443", OFFICIAL),
            ("http://profiler.corp:4243", "http://profiler.corp:4243"),
            ("http://127.0.0.1:80/", "http://127.0.0.1"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://profiler.corp:80", "https://profiler.corp:80"),
        ] {
            assert_eq!(
                PageSource::parse(text),
                Ok(PageSource::Site(origin.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_site_is_refused_in_one_line() {
        for text in [
            "https://",
            "https://profiler.corp/tools/",
            "https://profiler.corp?x",
            "https://user@profiler.corp",
            "ftp://profiler.corp",
            "https://profiler.corp:99999",
            "https://profiler.corp:x",
            "https://a b",
            "no-such-folder",
            "profiler.corp:4243",
        ] {
            let wrong = PageSource::parse(text).unwrap_err();
            assert!(!wrong.contains('\n') && wrong.contains(text), "{wrong}");
        }
    }
}
