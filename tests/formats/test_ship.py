"""``nthbyte ship`` to receivers on the loopback interface: what arrives is what the summary says, once."""

from __future__ import annotations

import base64
import concurrent.futures
import gzip
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from formats.installed import module
from formats.protobuf import fields
from formats.shipping import Proxy, Receiver, compare, expected, ship, signature
from harness import COMMAND, report


def _pprof(body: bytes) -> dict[str, list[int]]:
    """The sums of the four values, by function at the innermost place."""
    message = fields(gzip.decompress(body))
    strings = [text.decode() for text in message[6]]
    functions = {fields(one)[1][0]: strings[fields(one)[2][0]] for one in message[5]}
    locations = {fields(one)[1][0]: functions[fields(fields(one)[4][0])[1][0]] for one in message[4]}
    sums: dict[str, list[int]] = {}
    for sample in map(fields, message[2]):
        name = locations[_numbers(sample[1][0])[0]]
        values = _numbers(sample[2][0])
        of = sums.setdefault(name.split(".")[0], [0] * 4)
        sums[name.split(".")[0]] = [a + b for a, b in zip(of, values)]
    return sums


def _numbers(packed: Any) -> list[int]:
    """The numbers of a packed field."""
    if isinstance(packed, int):
        return [packed]
    found, at = [], 0
    while at < len(packed):
        value = shift = 0
        while True:
            byte = packed[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                break
        found.append(value)
    return found


def test_pyroscope_gets_each_window_once(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    to = f"--to=pyroscope={receiver.url}"
    # It is busy, and then away for one look.
    receiver.answers = [503]
    assert ship(folder, to, queue=tmp_path / "queue").status == 1
    assert ship(folder, to, queue=tmp_path / "queue").status == 0
    assert ship(folder, to, queue=tmp_path / "queue").status == 0
    assert {path for path, _, _ in receiver.got} == {"/push.v1.PusherService/Push"}
    series = [json.loads(body)["series"][0] for _, _, body in receiver.got]
    labels = {label["name"]: label["value"] for label in series[0]["labels"]}
    assert labels["service_name"] == "web" and labels["env"] == "prod" and labels["__name__"] == "memory"
    identities = [one["samples"][0]["ID"] for one in series]
    assert len(set(identities)) == len(identities) >= 3
    bodies = [base64.b64decode(one["samples"][0]["rawProfile"]) for one in series]
    windows = [_pprof(body) for body in bodies]
    sums: dict[str, int] = {}
    for window in windows:
        for name, values in window.items():
            sums[name] = sums.get(name, 0) + values[1]
    compare(sums, folder)
    # The bytes in use grow from window to window, and what passes is in use in none for long.
    in_use = [window.get("stays", [0] * 4)[3] for window in windows]
    assert in_use == sorted(in_use) and in_use[-1] == pytest.approx(30e6, rel=0.1)
    assert windows[-1].get("passes", [0] * 4)[3] < 3e6
    for body in bodies:
        assert b"nobody may see" not in gzip.decompress(body)


def test_otlp_has_what_the_summary_has(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("letmein\n")
    to = [f"--to=otlp={receiver.url}", f"--token-file={token}"]
    assert ship(folder, *to, queue=tmp_path / "queue").status == 0
    sums: dict[str, int] = {}
    for path, headers, body in receiver.got:
        assert path == "/v1development/profiles"
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["authorization"] == "Bearer letmein"
        assert b"nobody may see" not in body
        request = fields(body)
        (of_resource,) = request[1]
        dictionary = fields(request[2][0])
        strings = [text.decode() for text in dictionary[5]]
        # Element 0 of each table has no value.
        assert strings[0] == "" and all(dictionary[table][0] == b"" for table in (1, 2, 3, 4, 6, 7))
        resource = {}
        for attribute in map(fields, fields(fields(of_resource)[1][0])[1]):
            resource[attribute[1][0].decode()] = next(iter(fields(attribute[2][0]).values()))[0]
        assert resource["service.name"] == b"web" and resource["env"] == b"prod"
        assert b"3." in resource["process.runtime.description"]
        profiles = [fields(one) for one in fields(fields(of_resource)[2][0])[2]]
        kinds = [strings[fields(profile[1][0])[1][0]] for profile in profiles]
        assert kinds == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
        assert len({profile[7][0] for profile in profiles}) == 4 and len(profiles[0][7][0]) == 16
        for sample in map(fields, profiles[1].get(2, [])):
            (stack,) = sample[1]
            locations = _numbers(fields(dictionary[7][stack])[1][0])
            line = fields(fields(dictionary[2][locations[0]])[3][0])
            name = strings[fields(dictionary[3][line[1][0]])[1][0]].split(".")[0]
            sums[name] = sums.get(name, 0) + _numbers(sample[4][0])[0]
            attributes = [fields(dictionary[6][number]) for number in _numbers(sample[2][0])]
            keys = [strings[attribute[1][0]] for attribute in attributes]
            assert "nthbyte.type" in keys
            if name == "stays":
                assert "endpoint" in keys
        # No index is out of range, and nothing is there that nobody refers to.
        for profile in profiles:
            for sample in map(fields, profile.get(2, [])):
                assert 0 < sample[1][0] < len(dictionary[7])
    compare(sums, folder)


def test_files_of_pprof_and_what_is_refused(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    said = (
        report("ship", folder / "profiles", "--to=folder=x", "--dry-run", "--every=1s", folder=tmp_path)
        .ok()
        .err
    )
    assert said.count("would send") >= 3 and list(tmp_path.iterdir()) == []
    receiver.answers = [400]
    to = [f"--to=folder={tmp_path / 'out'}", f"--to=otlp={receiver.url}"]
    done = ship(folder, *to, queue=tmp_path / "queue")
    assert done.status == 0 and done.err.count("refuses a window: 400 said") == 1
    files = sorted((tmp_path / "out").iterdir())
    # One is lost to the other receiver, which said that it will never take it.
    assert len(files) == len(receiver.got) + 1
    assert all(path.name.endswith(".pb.gz") for path in files)
    assert sum(_pprof(path.read_bytes()).get("stays", [0] * 4)[1] for path in files) == pytest.approx(
        30e6, rel=0.1
    )
    for wrong in (["--to=otlp=ftp://x"], ["--to=other=x"], []):
        assert report("ship", folder, *wrong, folder=tmp_path).status == 2
    assert report("ship", tmp_path / "none", "--to=folder=x", folder=tmp_path).status == 1


def test_files_are_put_below_an_address(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("letmein")
    headers = tmp_path / "headers"
    headers.write_text("X-Ms-Blob-Type: BlockBlob\n\n")
    to = [f"--to=put={receiver.url}/bucket/app?sig=a%2Fb", f"--to=folder={tmp_path / 'out'}"]
    options = [f"--token-file={tmp_path / 'token'}", f"--header-file={headers}"]
    assert ship(folder, *to, *options, queue=tmp_path / "queue").status == 0
    files = {f"/bucket/app/{path.name}?sig=a%2Fb": path for path in (tmp_path / "out").iterdir()}
    assert len(receiver.got) == len(files) >= 3
    for path, sent, body in receiver.got:
        assert body == files[path].read_bytes()
        assert sent["authorization"] == "Bearer letmein" and sent["x-ms-blob-type"] == "BlockBlob"
    headers.write_text("a secret without a name\n")
    done = ship(folder, f"--to=put={receiver.url}", *options, queue=tmp_path / "other")
    assert done.status == 1 and "write Name: value" in done.err and "secret" not in done.err


@pytest.mark.parametrize("way", ["environment", "file"])
def test_requests_for_s3_are_signed(
    folder: Path, receiver: Receiver, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "wJal/rXUtn+FEMI"
    if way == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "of-a/session==")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
    else:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        keys = f"aws_access_key_id = AKID\naws_secret_access_key = {secret}\n"
        (tmp_path / "keys").write_text(f"[default]\naws_access_key_id = other\n[ship]\n{keys}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
        monkeypatch.setenv("AWS_PROFILE", "ship")
    headers = tmp_path / "headers"
    headers.write_text("X-Amz-Server-Side-Encryption:  AES256\n")
    (tmp_path / "token").write_text("of another receiver")
    to = [f"--to=s3={receiver.url}/bucket/a=b/%C3%A4", f"--to=folder={tmp_path / 'out'}"]
    to += [f"--header-file={headers}", f"--token-file={tmp_path / 'token'}"]
    # 400: the time of its keys is over, say. They may be renewed, so nothing is thrown away.
    receiver.answers = [400]
    done = ship(folder, *to, queue=tmp_path / "queue")
    assert done.status == 1 and "it answers 400 said" in done.err and secret not in done.err
    assert ship(folder, *to, queue=tmp_path / "queue").status == 0
    files = {f"/bucket/a=b/%C3%A4/{path.name}": path for path in (tmp_path / "out").iterdir()}
    assert len(receiver.got) == len(files) >= 3
    for path, sent, body in receiver.got:
        assert body == files[path].read_bytes()
        had, wanted = signature("PUT", path, sent, body, secret)
        assert had == wanted
        assert sent["x-amz-server-side-encryption"] == "AES256"
        region = "eu-west-1" if way == "environment" else "us-east-1"
        assert f"Credential=AKID/{sent['x-amz-date'][:8]}/{region}/" in sent["authorization"]
        assert ("x-amz-security-token" in sent) == (way == "environment")


def test_without_keys_nothing_is_sent_to_s3(
    folder: Path, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    for text, why in ((None, "set AWS_ACCESS_KEY_ID"), ("[other]\n", "has no keys under [default]")):
        if text:
            (tmp_path / "keys").write_text(text)
        done = ship(folder, f"--to=s3={receiver.url}/bucket", queue=tmp_path / "queue")
        (line,) = done.err.splitlines()
        assert done.status == 1 and why in line and receiver.got == []


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root, and certificates of servers by it: for this address, for another one, and one whose time is over."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(
        folder,
        "req",
        "-x509",
        *key,
        "-keyout",
        "root.key",
        "-out",
        "root.pem",
        "-days",
        "2",
        "-subj",
        "/CN=r",
    )
    _openssl(
        folder, "req", "-x509", *key, "-keyout", "no.key", "-out", "no.pem", "-days", "2", "-subj", "/CN=n"
    )
    for name, subject, days in (
        ("right", "IP:127.0.0.1", "2"),
        ("other", "DNS:other.test", "2"),
        ("over", "IP:127.0.0.1", "-1"),
        ("client", "DNS:client.test", "2"),
    ):
        (folder / "names").write_text(f"subjectAltName={subject}\n")
        _openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", "request", "-subj", "/CN=s")
        signed = ["-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-extfile", "names"]
        _openssl(folder, "x509", "-req", "-in", "request", *signed, "-days", days, "-out", f"{name}.pem")
    return folder


def _tls(certificates: Path, name: str) -> Receiver:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return Receiver(context)


@pytest.mark.parametrize("way", ["option", "environment"])
def test_over_tls(
    folder: Path, certificates: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = certificates / "root.pem"
    if way == "environment":
        monkeypatch.setenv("SSL_CERT_FILE", str(root))
    receiver = _tls(certificates, "right")
    try:
        words = [f"--to=pyroscope={receiver.url}"] + [f"--ca-file={root}"] * (way == "option")
        done = ship(folder, *words, queue=tmp_path / "queue")
        assert (done.status, done.err) == (0, "") and len(receiver.got) >= 3
    finally:
        receiver.close()


@pytest.mark.parametrize(
    ("name", "root", "why"),
    [
        ("right", "no", "UnknownIssuer"),
        ("other", "root", "not valid for name"),
        ("over", "root", "Expired"),
    ],
)
def test_a_wrong_certificate_is_one_line(
    folder: Path, certificates: Path, tmp_path: Path, name: str, root: str, why: str
) -> None:
    receiver = _tls(certificates, name)
    try:
        words = [f"--to=otlp={receiver.url}", f"--ca-file={certificates / root}.pem"]
        done = ship(folder, *words, queue=tmp_path / "queue")
        first, second = done.err.splitlines()
        assert done.status == 1 and why in first and "waits in" in second
        assert receiver.got == []
    finally:
        receiver.close()


def test_a_receiver_that_asks_for_a_certificate(folder: Path, certificates: Path, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "right.pem", certificates / "right.key")
    context.load_verify_locations(certificates / "root.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    receiver = Receiver(context)
    words = [f"--to=pyroscope={receiver.url}", f"--ca-file={certificates / 'root.pem'}"]
    client = [
        f"--client-{name}={certificates / 'client'}.{end}" for name, end in (("cert", "pem"), ("key", "key"))
    ]
    try:
        done = ship(folder, *words, queue=tmp_path / "queue")
        assert done.status == 1 and "takes nothing" in done.err and receiver.got == []
        done = ship(folder, *words, *client, queue=tmp_path / "queue")
        assert (done.status, done.err) == (0, "") and len(receiver.got) >= 3
        for option, why in (
            (f"--client-key={certificates / 'right.key'}", "is no key of the certificate"),
            (f"--client-key={certificates / 'none'}", "cannot read the key"),
        ):
            done = ship(folder, *words, client[0], option, queue=tmp_path / "queue")
            (line,) = done.err.splitlines()
            assert done.status == 1 and why in line
        assert ship(folder, *words, client[0], queue=tmp_path / "queue").status == 2
    finally:
        receiver.close()


@pytest.mark.parametrize("proxy_by_tls", [False, True])
@pytest.mark.parametrize("by_tls", [False, True])
def test_by_a_proxy(
    folder: Path,
    certificates: Path,
    tmp_path: Path,
    by_tls: bool,
    proxy_by_tls: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = _tls(certificates, "right") if by_tls else Receiver()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "right.pem", certificates / "right.key")
    proxy = Proxy(context if proxy_by_tls else None)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    words = [f"--to=pyroscope={receiver.url}", f"--ca-file={certificates / 'root.pem'}"]
    place = receiver.url.partition("//")[2]
    try:
        monkeypatch.setenv("HTTPS_PROXY" if by_tls else "HTTP_PROXY", proxy.url)
        done = ship(folder, *words, queue=tmp_path / "queue")
        assert (done.status, done.err) == (0, "") and len(receiver.got) >= 3
        assert {path for path, _, _ in receiver.got} == {"/push.v1.PusherService/Push"}
        assert not any("proxy-authorization" in headers for _, headers, _ in receiver.got)
        asked = f"CONNECT {place}" if by_tls else f"POST {receiver.url}/push.v1.PusherService/Push"
        assert proxy.got == [asked] * len(receiver.got)

        # A call of gRPC goes through a tunnel, too.
        scheme = "https" if by_tls else "http"
        ship(folder, f"--to=otlp-grpc={scheme}://{place}", words[1], queue=tmp_path / "grpc")
        assert proxy.got[-1] == f"CONNECT {place}"

        before = len(proxy.got)
        monkeypatch.setenv("NO_PROXY", "other.test,127.0.0.0/8")
        done = ship(folder, *words, queue=tmp_path / "direct")
        assert (done.status, done.err, len(proxy.got)) == (0, "", before)

        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("ALL_PROXY", proxy.url.replace("sesame", "simsim"))
        monkeypatch.delenv("HTTPS_PROXY" if by_tls else "HTTP_PROXY")
        done = ship(folder, *words, queue=tmp_path / "wrong")
        assert done.status == 1 and "answers 407" in done.err and "simsim" not in done.err
    finally:
        proxy.close()
        receiver.close()


def test_a_proxy_that_is_not_there(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, why in (("http://127.0.0.1:1", "refused"), ("socks5://127.0.0.1:1", "only proxies of http")):
        monkeypatch.setenv("ALL_PROXY", url)
        done = ship(folder, "--to=otlp=http://collector.test", queue=tmp_path / "queue")
        assert done.status == 1 and f"the proxy {url}/" in done.err and why in done.err


GRPC_METHOD = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"


@pytest.mark.parametrize("by_tls", [False, True])
def test_otlp_by_grpc(folder: Path, certificates: Path, tmp_path: Path, by_tls: bool) -> None:
    grpc = module("grpc")
    got: list[tuple[dict[str, Any], bytes]] = []
    # It is busy, then says that too much came at once; the first window is wrong, the second one too long.
    busy, wrong, long = (
        getattr(grpc.StatusCode, name) for name in ("UNAVAILABLE", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
    )
    details = (("grpc-status-details-bin", b"later"),)
    answers = [(busy, ()), (long, details), (wrong, ()), (long, ())]

    def export(body: bytes, context: Any) -> bytes:
        if answers:
            status, details = answers.pop(0)
            context.set_trailing_metadata(details)
            context.abort(status, "said\nso")
        got.append((dict(context.invocation_metadata()), body))
        return b""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(export) if call.method == GRPC_METHOD else None

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([Handler()])
    key, right = (certificates / f"right.{end}" for end in ("key", "pem"))
    if by_tls:
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), right.read_bytes())])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        (tmp_path / "token").write_text("letmein")
        words = [
            f"--to=otlp-grpc={'https' if by_tls else 'http'}://127.0.0.1:{port}",
            f"--token-file={tmp_path / 'token'}",
            f"--ca-file={certificates / 'root.pem'}",
        ]
        for status in ("14", "8"):
            done = ship(folder, *words, queue=tmp_path / "queue")
            assert done.status == 1 and f"it answers gRPC {status} said" in done.err
        done = ship(folder, *words, queue=tmp_path / "queue")
        assert done.status == 0 and done.err.count("refuses a window: gRPC") == 2
    finally:
        server.stop(None).wait()
    assert got and all(metadata["authorization"] == "Bearer letmein" for metadata, _ in got)
    files = ship(folder, f"--to=otlp-grpc=http://127.0.0.1:{port}", queue=tmp_path / "again")
    assert files.status == 1 and "refused" in files.err.lower()
    waiting = sorted((tmp_path / "again").glob("*/*.window"))
    # But for the two that were refused, each is sent as it waits.
    assert [body for _, body in got] == [path.read_bytes() for path in waiting][2:]


def test_roots_that_are_none_are_said_at_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("no certificate\n")
    for file, why in (("none", "No such file"), ("empty", "has no certificate")):
        words = ["--to=otlp=https://127.0.0.1:1", f"--ca-file={tmp_path / file}"]
        done = ship(folder, *words, queue=tmp_path / "queue")
        (line,) = done.err.splitlines()
        assert done.status == 1 and why in line


def test_a_queue_without_room_drops_the_oldest(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    to = [f"--to=pyroscope={receiver.url}", "--queue-size=1"]
    receiver.answers = [503]
    done = ship(folder, *to, queue=tmp_path / "queue")
    assert done.status == 1 and "is full" in done.err
    assert ship(folder, *to, queue=tmp_path / "queue").status == 0
    assert len(receiver.got) == 1


def test_killed_at_any_step_it_loses_nothing(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    """Each time it is killed at another moment; what was sent twice has the same identity and the same content."""
    words = ["ship", str(folder / "profiles"), "--every=1s", f"--queue={tmp_path / 'queue'}"]
    for step in range(8):
        shipper = subprocess.Popen([str(COMMAND), *words, f"--to=pyroscope={receiver.url}"], cwd=folder)
        try:
            shipper.wait(0.005 * 2**step)
        except subprocess.TimeoutExpired:
            shipper.kill()
            shipper.wait()
    assert ship(folder, f"--to=pyroscope={receiver.url}", queue=tmp_path / "queue").status == 0
    windows: dict[str, bytes] = {}
    for _, _, body in receiver.got:
        sample = json.loads(body)["series"][0]["samples"][0]
        profile = base64.b64decode(sample["rawProfile"])
        assert windows.setdefault(sample["ID"], profile) == profile
    sums = sum(_pprof(profile).get("stays", [0] * 4)[1] for profile in windows.values())
    assert sums == pytest.approx(expected(folder)["stays"], rel=1e-3)
