//! `nthbyte view`, tested with raw requests over the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flate2::read::GzDecoder;
use nthbyte_profile::synthetic::Synthetic;

const PROFILER: &str = "https://profiler.firefox.com";

/// A running `nthbyte view --no-browser`.
struct View {
    child: Child,
    /// Its output so far.
    page: String,
    address: SocketAddr,
    path: String,
    _folder: tempfile::TempDir,
}

impl View {
    fn start() -> Self {
        Self::start_with(&[], |page| page.strip_prefix(PROFILER))
    }

    /// With options. `rest` takes away the origin of the page.
    fn start_with(options: &[&str], rest: impl Fn(&str) -> Option<&str>) -> Self {
        Self::start_by(
            Command::new(env!("CARGO_BIN_EXE_nthbyte")).stderr(Stdio::null()),
            options,
            rest,
        )
    }

    /// With so many descriptors at most. What it says goes to a pipe.
    fn start_limited(descriptors: u32) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "ulimit -n \"$1\" && shift && exec \"$@\"", "sh"])
            .args([&descriptors.to_string(), env!("CARGO_BIN_EXE_nthbyte")])
            .stderr(Stdio::piped());
        Self::start_by(&mut shell, &[], |page| page.strip_prefix(PROFILER))
    }

    fn start_by(
        command: &mut Command,
        options: &[&str],
        rest: impl Fn(&str) -> Option<&str>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let profile = folder.path().join("app.nthb");
        write_profile(&profile);
        let mut child = command
            .args(["view", "--no-browser"])
            .args(options)
            .arg(&profile)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut page = String::new();
        let stdout = child.stdout.as_mut().expect("it is a pipe");
        BufReader::new(stdout)
            .read_line(&mut page)
            .expect("a line of text");
        let page = page.trim_end().to_owned();
        let local = rest(&page).expect("the page's origin");
        let local = local
            .strip_prefix("/from-url/http%3A%2F%2F")
            .expect("the page's address");
        let local = local.replace("%3A", ":").replace("%2F", "/");
        let (local, tab) = local
            .split_once("/calltree/")
            .expect("the inverted call tree");
        if options.is_empty() {
            assert_eq!(tab, "?invertCallstack&v=17");
        }
        let (address, path) = local.split_once('/').expect("an address and a path");
        Self {
            child,
            address: address.parse().expect("an address"),
            path: format!("/{path}"),
            page,
            _folder: folder,
        }
    }

    /// The answer to a request with these lines: status, headers in lower case, body.
    fn ask(&self, lines: &[&str]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time limit");
        let request = format!("{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"));
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("headers end");
        let head = String::from_utf8(answer[..end].to_vec()).expect("text");
        let status = head[9..12].parse().expect("a status");
        (status, head.to_lowercase(), answer[end + 4..].to_vec())
    }

    /// A request like the Firefox Profiler's, with one line replaced or left out.
    fn ask_but(&self, method: &str, path: &str, host: Option<&str>, origin: Option<&str>) -> u16 {
        let line = format!("{method} {path} HTTP/1.1");
        let host = host.map(|host| format!("Host: {host}"));
        let origin = origin.map(|origin| format!("Origin: {origin}"));
        let lines: Vec<&str> = [Some(line.as_str()), host.as_deref(), origin.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let (status, head, body) = self.ask(&lines);
        if status != 200 {
            assert!(body.is_empty(), "a refusal has no body: {head}");
            assert!(
                !head.contains("access-control"),
                "a refusal permits nothing: {head}"
            );
        }
        status
    }

    /// The status of the answer to the Firefox Profiler.
    fn ask_as_profiler(&self) -> u16 {
        self.ask_but("GET", &self.path, Some(&self.host()), Some(PROFILER))
    }

    /// Connections that send nothing, or half a request.
    fn silent(&self, number: usize) -> Vec<TcpStream> {
        let connect = |number: usize| {
            let mut stream = TcpStream::connect(self.address).expect("it listens");
            if number.is_multiple_of(2) {
                // It may be closed already.
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1");
            }
            stream
        };
        (0..number).map(connect).collect()
    }

    fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).expect("it runs").count()
    }

    fn host(&self) -> String {
        self.address.to_string()
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        let killed = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(killed.expect("kill runs").success());
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_profile(path: &Path) {
    let synthetic = Synthetic {
        samples: 500,
        ..Synthetic::default()
    };
    std::fs::write(path, synthetic.bytes()).expect("a file");
}

#[test]
fn only_the_firefox_profiler_gets_the_profile() {
    let view = View::start();
    let (host, path) = (view.host(), view.path.clone());
    let (status, head, body) = view.ask(&[
        &format!("GET {path} HTTP/1.1"),
        &format!("Host: {host}"),
        &format!("Origin: {PROFILER}"),
    ]);
    assert_eq!(status, 200, "{head}");
    assert!(head.contains(&format!("access-control-allow-origin: {PROFILER}")));
    assert!(head.contains("vary: origin") && head.contains("cache-control: no-store"));
    let mut json = String::new();
    GzDecoder::new(body.as_slice())
        .read_to_string(&mut json)
        .expect("gzip");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(
        json["threads"]
            .as_array()
            .is_some_and(|threads| !threads.is_empty())
    );

    let port = view.address.port();
    let localhost = format!("localhost:{port}");
    let foreign = format!("evil.example:{port}");
    let ask = |method, path: &str, host, origin| view.ask_but(method, path, host, origin);
    assert_eq!(ask("GET", &path, Some(&localhost), Some(PROFILER)), 200);
    for host in ["evil.example", &foreign, "127.0.0.1", "localhost"] {
        assert_eq!(ask("GET", &path, Some(host), Some(PROFILER)), 403, "{host}");
    }
    for origin in [
        None,
        Some("null"),
        Some("https://evil.example"),
        Some("http://profiler.firefox.com"),
    ] {
        assert_eq!(ask("GET", &path, Some(&host), origin), 403, "{origin:?}");
        assert_eq!(
            ask("OPTIONS", &path, Some(&host), origin),
            403,
            "{origin:?}"
        );
    }
    for other in [
        "/",
        "/profile.json",
        "/favicon.ico",
        &path.to_uppercase(),
        &format!("{path}/.."),
    ] {
        assert_eq!(
            ask("GET", other, Some(&host), Some(PROFILER)),
            404,
            "{other}"
        );
    }
    assert_eq!(ask("POST", &path, Some(&host), Some(PROFILER)), 405);
    let whole = format!("http://{host}{path}");
    assert_eq!(ask("GET", &whole, Some(&host), Some(PROFILER)), 403);
}

#[test]
fn the_answer_to_a_preflight_permits_only_what_was_asked() {
    let view = View::start();
    let request = |more: &'static [&'static str]| {
        let line = format!("OPTIONS {} HTTP/1.1", view.path);
        let host = format!("Host: {}", view.host());
        let origin = format!("Origin: {PROFILER}");
        let mut lines = vec![
            line.as_str(),
            &host,
            &origin,
            "Access-Control-Request-Method: GET",
        ];
        lines.extend(more);
        view.ask(&lines)
    };
    let (status, head, _) = request(&["Access-Control-Request-Private-Network: true"]);
    assert_eq!(status, 204);
    assert!(
        head.contains("access-control-allow-private-network: true"),
        "{head}"
    );
    assert!(
        head.contains("access-control-allow-methods: get, head, options"),
        "{head}"
    );
    let (_, head, _) = request(&[]);
    assert!(!head.contains("private-network"), "{head}");
}

#[test]
fn a_copy_of_the_page_reads_the_profile_instead_of_the_official_one() {
    let copy = "http://profiler.corp:4243";
    let view = View::start_with(
        &["--call-tree", "--profiler", "http://Profiler.corp:4243/"],
        |page| page.strip_prefix(copy),
    );
    assert!(view.page.ends_with("/calltree/?v=17"), "{}", view.page);
    let line = format!("GET {} HTTP/1.1", view.path);
    let host = format!("Host: {}", view.host());
    let (status, head, _) = view.ask(&[&line, &host, &format!("Origin: {copy}")]);
    assert_eq!(status, 200);
    assert!(
        head.contains(&format!("access-control-allow-origin: {copy}\r\n")),
        "{head}"
    );
    let host = view.host();
    for origin in [
        PROFILER,
        "http://profiler.corp",
        "https://profiler.corp:4243",
    ] {
        let status = view.ask_but("GET", &view.path, Some(&host), Some(origin));
        assert_eq!(status, 403, "{origin}");
    }
}

#[test]
fn a_copy_in_a_folder_is_served_from_here() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "the page").expect("a file");
    let path = folder.path().to_str().expect("text");
    let place = std::cell::Cell::new(0);
    let view = View::start_with(&["--profiler", path], |page| {
        let port = page.strip_prefix("http://127.0.0.1:")?;
        let (port, _) = port.split_once('/')?;
        place.set(port.parse().ok()?);
        page.strip_prefix(&format!("http://127.0.0.1:{port}"))
    });
    let origin = format!("http://127.0.0.1:{}", place.get());
    let host = view.host();
    let ask = |origin: &str| view.ask_but("GET", &view.path, Some(&host), Some(origin));
    assert_eq!((ask(&origin), ask(PROFILER)), (200, 403));
    let mut page = TcpStream::connect(("127.0.0.1", place.get())).expect("it listens");
    let request = "GET /from-url/x/calltree/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    page.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    page.read_to_string(&mut answer).expect("it answers");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("the page"),
        "{answer}"
    );
}

#[test]
fn silent_clients_keep_nobody_from_an_answer() {
    let view = View::start();
    // One that was let in, and goes on after the others.
    let mut kept = TcpStream::connect(view.address).expect("it listens");
    let again = format!(
        "HEAD {} HTTP/1.1\r\nHost: {}\r\nOrigin: {PROFILER}\r\n\r\n",
        view.path,
        view.host()
    );
    let mut ask_again = || {
        kept.write_all(again.as_bytes()).expect("it reads");
        let mut answer = BufReader::new(&kept).lines().map_while(Result::ok);
        let status = answer.next().expect("it answers");
        answer.find(String::is_empty).expect("headers end");
        status
    };
    assert_eq!(ask_again(), "HTTP/1.1 200 OK");
    let silent = view.silent(300);
    assert_eq!(view.ask_as_profiler(), 200);
    // Those that came before it have been accepted, and closed again.
    let most = view.descriptors();
    assert!(most < 250, "{most}");
    assert_eq!(ask_again(), "HTTP/1.1 200 OK");
    drop(silent);
}

#[test]
fn clients_that_take_all_descriptors_give_way() {
    let mut view = View::start_limited(20);
    // Each has ten seconds for its headers: one after the other, they would take longer than the answer may.
    let silent = view.silent(200);
    assert_eq!(view.ask_as_profiler(), 200);
    drop(silent);
    let mut stderr = view.child.stderr.take().expect("it is a pipe");
    view.end("-TERM");
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(said.matches("was not accepted").count(), 1, "{said}");
}

#[test]
fn what_is_no_request_for_the_profile_gets_nothing_of_it() {
    let view = View::start();
    let (host, path) = (view.host(), &view.path);
    let headers = format!("Host: {host}\r\nOrigin: {PROFILER}\r\nConnection: close");
    let long = "a".repeat(100_000);
    let many: String = (0..5000)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    let requests = [
        "\0\u{ff} garbage\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        format!("GET {path}\r\n\r\n"),
        format!("GET {path} HTTP/1.0\r\nOrigin: {PROFILER}\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: {host}\0\r\nOrigin: {PROFILER}\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\n{headers}\r\nOrigin: https://evil.example\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\n{headers}\r\nHost: evil.example\r\n\r\n"),
        format!("GET {path}/../profile.json HTTP/1.1\r\n{headers}\r\n\r\n"),
        format!(
            "GET {}%70{} HTTP/1.1\r\n{headers}\r\n\r\n",
            &path[..66],
            &path[67..]
        ),
        format!("GET /../../etc/passwd HTTP/1.1\r\n{headers}\r\n\r\n"),
        format!("GET {path}?{long} HTTP/1.1\r\n{headers}\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\n{many}{headers}\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nX: {long}{long}{long}{long}{long}\r\n{headers}\r\n\r\n"),
        format!(
            "POST {path} HTTP/1.1\r\n{headers}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\n\r\nGET {path} HTTP/1.1\r\n{headers}\r\n\r\n"
        ),
        format!("CONNECT {host} HTTP/1.1\r\n{headers}\r\n\r\n"),
    ];
    for request in requests {
        let mut stream = TcpStream::connect(view.address).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time limit");
        // It may close the connection before all is sent, which also resets it.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let start = request.escape_default().take(120).collect::<String>();
        assert!(
            !answer.contains(" 200 ") && !answer.contains("access-control"),
            "{start}: {answer}"
        );
        assert_eq!(view.ask_as_profiler(), 200, "{start}");
    }
    // It changes to no other protocol.
    let line = format!("GET {path} HTTP/1.1");
    let (host, origin) = (format!("Host: {host}"), format!("Origin: {PROFILER}"));
    let upgrade = [
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AA==",
    ];
    let (status, ..) = view.ask(&[&line, &host, &origin, upgrade[0], upgrade[1], upgrade[2]]);
    assert_eq!(status, 200);
}

#[test]
fn sigint_and_sigterm_end_it() {
    for signal in ["-INT", "-TERM"] {
        assert_eq!(View::start().end(signal), Some(0), "{signal}");
    }
}

#[test]
fn every_start_has_a_new_secret() {
    let (one, other) = (View::start(), View::start());
    assert_ne!(one.path, other.path);
    assert!(one.path.len() > 64 && one.page.contains(&one.path[1..65]));
}
