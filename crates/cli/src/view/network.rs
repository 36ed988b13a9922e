//! Whether a web site can be reached from here.

use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Time limit for each step.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Tries to connect to an `https://` or `http://` origin.
///
/// If a proxy is set, only the browser can tell, and this returns `Ok` without a test.
///
/// # Errors
/// The reason, as text for the user.
pub async fn reach(origin: &str) -> Result<(), String> {
    let is_https = origin.starts_with("https://");
    let own = if is_https {
        ["https_proxy", "HTTPS_PROXY"]
    } else {
        ["http_proxy", "HTTP_PROXY"]
    };
    let proxied = own.into_iter().chain(["all_proxy", "ALL_PROXY"]);
    if proxied
        .into_iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        return Ok(());
    }
    let (host, port) = parts(origin);
    connect(host, port, TIME_LIMIT).await
}

/// The host and the port of an origin, as [`PageSource`](super::place::PageSource) writes it.
fn parts(origin: &str) -> (&str, u16) {
    let (scheme, authority) = origin.split_once("://").unwrap_or(("https", origin));
    let port = authority.rsplit_once(':');
    // Colons in brackets are part of an IPv6 address.
    let port = port.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let own = if scheme == "https" { 443 } else { 80 };
    let (host, port) = port.unwrap_or((authority, own));
    (host.trim_matches(['[', ']']), port)
}

async fn connect(host: &str, port: u16, limit: Duration) -> Result<(), String> {
    let late = |_| "no answer".to_owned();
    let addresses = timeout(limit, lookup_host((host, port)))
        .await
        .map_err(late)?
        .map_err(|_| "its name is not known here".to_owned())?;
    let mut reason = "it has no address".to_owned();
    for address in addresses.take(3) {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => reason = error.kind().to_string(),
            Err(elapsed) => reason = late(elapsed),
        }
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_host_and_a_port() {
        assert_eq!(parts("https://profiler.corp"), ("profiler.corp", 443));
        assert_eq!(parts("http://profiler.corp:4243"), ("profiler.corp", 4243));
        assert_eq!(parts("http://[::1]"), ("::1", 80));
        assert_eq!(parts("https://[::1]:8443"), ("::1", 8443));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_listening_port_is_reached_and_a_closed_one_is_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(connect("127.0.0.1", port, TIME_LIMIT).await, Ok(()));
        drop(listener);
        let refused = connect("127.0.0.1", port, TIME_LIMIT).await;
        assert_eq!(refused, Err("connection refused".to_owned()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_unknown_name_is_said_to_be_unknown() {
        let unknown = connect("nowhere.invalid", 443, Duration::from_secs(30)).await;
        assert_eq!(unknown, Err("its name is not known here".to_owned()));
    }
}
