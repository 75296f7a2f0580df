"""What can go wrong with a server is a clear error: it names the URL, shows no secret, and says what to try."""

from __future__ import annotations

import base64
import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import anyrecord
import pytest

from .files import bytes_of
from .servers import Played, faults
from .servers.faults import Fault
from .servers.server import ACCESS_KEY, SECRET_KEY

QUICK = {"retry_timeout": 60, "max_retries": 2, "init_backoff": "1ms", "max_backoff": "2ms"}
"""Few tries, close together."""
IMPATIENT = {**QUICK, "read_timeout": "200ms"}
"""For stalls. On a busy machine, every request may be too slow for it."""


def file_of(*records: bytes) -> bytes:
    return bytes_of("ffrecord", records)


DATA = file_of(*(bytes([i]) * 30_000 for i in range(20)))

FAULTS: dict[str, tuple[Fault, type[Exception], str]] = {
    "403": (faults.access_denied(), PermissionError, "check the credentials and their permissions"),
    "401": (faults.unauthorized(), PermissionError, "credentials are missing or wrong"),
    "404": (faults.not_found(), FileNotFoundError, "check the name"),
    "no bucket": (faults.not_found("NoSuchBucket"), FileNotFoundError, "there is no such bucket.*check the name"),
    "wrong region": (faults.wrong_region(), OSError, "the bucket is in another region: pass storage="),
    "signed for another region": (faults.malformed_authorization(), OSError, "the bucket is in another region"),
    "range ignored": (faults.ignore_range(), OSError, "ignores the Range header; copy the file to a local disk"),
    "no length": (faults.no_length(), OSError, "sends no Content-Length.*copy the file to a local disk"),
    "wrong Content-Range": (
        faults.wrong_content_range(),
        OSError,
        "sent other bytes than were asked for.*copy the file",
    ),
    "truncated": (faults.truncate(0.5), OSError, "tried 3 times.*the connection broke.*check the network"),
    "reset": (faults.reset(), OSError, "tried 3 times.*the connection broke.*check the network"),
    "reset in the body": (faults.reset(0.5), OSError, "tried 3 times"),
    "closed": (faults.close(), OSError, "tried 3 times.*the connection broke.*check the network"),
    "redirect to another host": (
        faults.redirect("other"),
        OSError,
        "redirects to another host: http://localhost:.*; open the",
    ),
    "redirects without end": (faults.redirect("same"), OSError, "too many redirects"),
    "500": (faults.internal_error(), OSError, "try again later"),
    "503": (faults.slow_down(), OSError, "it is overloaded: use fewer"),
    "429": (faults.too_many_requests(), OSError, "it is overloaded: use fewer"),
    "stall": (faults.stall(), OSError, "the server sends nothing.*read_timeout and retry_timeout"),
    "garbage": (faults.garbage(), anyrecord.FormatError, "impossible number of samples"),
}


def shown(error: BaseException) -> str:
    """All that a user sees of an error."""
    return "".join(traceback.format_exception(error, chain=True)).partition("\n\n")[0] + str(error)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_server_is_a_clear_error_of_opening(name: str) -> None:
    fault, kind, says = FAULTS[name]
    with Played({"a.ffr": DATA}) as server:
        server.play(fault)
        with pytest.raises(kind, match=says) as caught:
            anyrecord.open(server.url("a.ffr"), storage={**server.storage, **(IMPATIENT if name == "stall" else QUICK)})
        assert server.url("a.ffr") in str(caught.value)
        for secret in (SECRET_KEY, ACCESS_KEY):
            assert secret not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("garbage", "404", "no bucket", "stall")])
def test_a_fault_of_a_server_is_a_clear_error_of_reading(name: str) -> None:
    fault, kind, says = FAULTS[name]
    with Played({"a.ffr": DATA}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **QUICK})
        server.play(fault)
        for read in (lambda: records[3], lambda: records[[1, 19, 7]]):
            with pytest.raises(kind, match=says) as caught:
                read()
            assert server.url("a.ffr") in str(caught.value)


WEB_FAULTS: dict[str, tuple[Fault, type[Exception], str]] = {
    "401": (faults.unauthorized(), PermissionError, "credentials are missing or wrong.*write them into the URL"),
    "403": (faults.access_denied(), PermissionError, "check the credentials and their permissions"),
    "301": (faults.wrong_region(), OSError, "it redirects without saying where: check the address"),
    "400": (faults.malformed_authorization(), OSError, "the server answered 400"),
    "range ignored": (faults.ignore_range(), OSError, "ignores the Range header; copy the file to a local disk"),
}


@pytest.mark.parametrize("name", WEB_FAULTS)
def test_errors_of_a_web_server_speak_of_no_cloud(name: str) -> None:
    fault, kind, says = WEB_FAULTS[name]
    with Played({"a.ffr": DATA}, protocol="http") as server:
        server.play(fault)
        with pytest.raises(kind, match=says) as caught:
            anyrecord.open(server.url("a.ffr"), storage=QUICK)
        assert server.url("a.ffr") in str(caught.value)
        assert not {"AWS", "region", "bucket", "skip_signature"} & set(str(caught.value).replace('"', " ").split())


def test_user_name_and_password_of_a_url_are_sent_and_not_shown() -> None:
    with Played({"a b.ffr": DATA}, protocol="http") as server:
        url = server.endpoint.replace("http://", "http://me:p%40ss@") + "/a%20b.ffr"
        records = anyrecord.open(url)
        assert records[1] == bytes([1]) * 30_000
        login = "Basic " + base64.b64encode(b"me:p@ss").decode()
        assert {entry.headers.get("authorization") for entry in server.log} == {login}
        assert records.paths == [f"{server.endpoint}/a%20b.ffr"]
        again = pickle.loads(pickle.dumps(records))
        assert again[1] == records[1]
        # Another host is not sent the password, even if we go there.
        server.play(faults.redirect("other"), number=server.requests + 1)
        anyrecord.open(url, storage={"follow_redirects": True})
        assert server.log[-1].headers.get("authorization") is None


def test_credentials_are_not_sent_to_another_host_or_port() -> None:
    with Played({"a.ffr": DATA}) as other, Played({"a.ffr": DATA}) as server:
        own = {**server.storage, "session_token": "hidden", "follow_redirects": True}
        server.play(faults.redirect(f"{other.endpoint}/bucket/a.ffr"))
        with pytest.raises(OSError, match=r"redirects to another host: http://127\.0\.0\.1"):
            anyrecord.open(server.url("a.ffr"), storage={**own, "follow_redirects": False})
        assert not other.log
        assert anyrecord.open(server.url("a.ffr"), storage=own)[1] == bytes([1]) * 30_000
        sent = {name for entry in other.log for name in entry.headers}
        assert sent <= {"accept", "host", "if-match", "range", "user-agent"}
        assert "x-amz-security-token" in server.log[0].headers


def test_credentials_that_are_set_later_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    with Played({"a.ffr": DATA}) as server:
        own = {"endpoint": server.endpoint, "region": "r", "allow_http": True, **QUICK}
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        anyrecord.open("s3://bucket/a.ffr", storage=own)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
        anyrecord.open("s3://bucket/a.ffr", storage=own)
        used = [entry.headers["authorization"].partition("Credential=")[2].partition("/")[0] for entry in server.log]
        assert used == ["first", "second"]


def test_signed_urls_of_one_server_share_its_connections() -> None:
    with Played({f"{i}.ffr": DATA for i in range(40)}, protocol="http") as server:
        urls = [f"{server.url(f'{i}.ffr')}?signature={i}" for i in range(40)]
        records = anyrecord.open(urls, storage={"max_requests": 4})
        assert records[795] == bytes([15]) * 30_000
        assert {entry.query["signature"] for entry in server.log} == {str(i) for i in range(40)}
        # With a client for each URL there would be at least as many. A few are opened in reserve.
        assert max(entry.connection for entry in server.log) < 40


def test_odd_names_in_a_listing() -> None:
    with Played({"d/a.ffr": DATA, "d/sub/": b"", "d/sub/b.ffr": DATA}) as server:
        assert len(anyrecord.open(server.url("d/**"), storage=server.storage)) == 40
        server.put("d//c.ffr", DATA)
        with pytest.raises(OSError, match=r"an object has a name that cannot be read.*d//c\.ffr.*; rename it"):
            anyrecord.open(server.url("d/**"), storage=server.storage)
    for url in ("s3://bucket//a.ffr", "s3://key:hidden@bucket/a.ffr"):
        with pytest.raises(ValueError, match="names no") as refused:
            anyrecord.open(url)
        assert "hidden" not in shown(refused.value)


def test_a_server_without_encryption_has_to_be_allowed() -> None:
    with Played({"a.ffr": DATA}) as server:
        storage = {name: value for name, value in server.storage.items() if "allow_http" not in name}
        with pytest.raises(OSError, match=r"has no encryption .*allow_http"):
            anyrecord.open(server.url("a.ffr"), storage={**storage, **QUICK})


READS: dict[str, Callable[[str, Any], object]] = {
    "open": lambda url, storage: anyrecord.open(url, storage=storage),
    "info": lambda url, storage: anyrecord.info(url, storage=storage),
    "verify": lambda url, storage: anyrecord.verify(url, storage=storage),
    "convert": lambda url, storage: anyrecord.convert(url, "out.tfrecord", storage=storage),
    "salvage": lambda url, storage: anyrecord.salvage(url, storage=storage),
    "Folder": lambda url, storage: anyrecord.Folder(url, storage=storage),
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_everything_that_reads_says_that_an_object_is_missing_or_forbidden(read: Callable[..., object]) -> None:
    with Played() as server:
        with pytest.raises(FileNotFoundError, match="there is no such object"):
            read(server.url("missing.ffr"), server.storage)
        server.play(faults.access_denied())
        with pytest.raises(PermissionError, match="access is denied"):
            read(server.url("missing.ffr"), server.storage)
    assert not os.path.exists("out.tfrecord")


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
@pytest.mark.parametrize("url", ["ftp://host/a.ffr", "hdfs://a/b.ffr"])
def test_an_unknown_scheme_is_refused_by_name_everywhere(read: Callable[..., object], url: str) -> None:
    with pytest.raises(
        ValueError, match=f'the scheme "{url.partition(":")[0]}" .* is not supported; schemes: s3, s3a, gs'
    ):
        read(url, None)


def test_the_error_of_an_unknown_scheme_has_all_schemes_that_there_are() -> None:
    with pytest.raises(ValueError, match="schemes: ") as raised:
        anyrecord.open("hdfs://a/b.ffr")
    schemes = str(raised.value).partition("schemes: ")[2].split(", ")
    assert {"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "file", "memory"} == {*schemes}
    for scheme in {*schemes} - {"file"}:
        assert anyrecord._core.check_url(f"{scheme}://host/name") == scheme


OPTIONS: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("http://no-such-host.invalid/a.ffr", QUICK, OSError, "cannot reach the server.*check the name of the host"),
    ("http://127.0.0.1:1/a.ffr", QUICK, OSError, "cannot reach the server.*check the name of the host"),
    ("s3://bucket/a.ffr", {"nonsense": "1"}, ValueError, 'no storage option "nonsense"'),
    ("s3://bucket/a.ffr", {"access_key_id": "only"}, ValueError, "Missing SecretAccessKey"),
    ("s3://bucket/a.ffr", {"retry_timeout": "soon"}, ValueError, '"retry_timeout" is not valid: "soon" is not a time'),
    ("s3://bucket/a.ffr", {"max_requests": 0}, ValueError, '"max_requests" is not valid'),
    ("s3://bucket/a.ffr", {"timeout": "soon"}, ValueError, '"timeout" is not valid'),
    ("s3://bucket/a.ffr", {"allow_http": "maybe"}, ValueError, '"allow_http" is not valid'),
    ("s3://bucket/a.ffr", {"http2_max_frame_size": 1}, ValueError, '"http2_max_frame_size" has no effect'),
    ("s3://bucket/a.ffr", {"region": ["a"]}, TypeError, "storage option 'region' must be a str, a number or a bool"),
    ("s3:///a.ffr", {}, ValueError, "names no bucket; write s3://bucket/name"),
    ("az://container/a.ffr", {}, ValueError, "Account must be specified"),
    ("gs://bucket/../a.ffr", {}, ValueError, "names no object that can be read"),
]


@pytest.mark.parametrize(("url", "storage", "kind", "says"), OPTIONS, ids=lambda part: str(part)[:40])
def test_wrong_addresses_and_options(
    url: str, storage: dict[str, Any], kind: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    with pytest.raises(kind, match=says):
        anyrecord.open(url, storage=storage)


def test_missing_credentials_are_an_error_that_says_how_to_pass_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    with Played({"a.ffr": DATA}) as server:
        # Without keys, the metadata service of the cloud is asked, at an address that only machines of the cloud have.
        # The request to it goes to our server, which knows no credentials.
        monkeypatch.setenv("http_proxy", server.endpoint)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        own = {"endpoint": server.endpoint, "allow_http": True, **QUICK}
        with pytest.raises(PermissionError, match="AWS_SECRET_ACCESS_KEY, or pass storage=") as caught:
            anyrecord.open("s3://bucket/a.ffr", storage=own)
        assert "s3://bucket/a.ffr" in str(caught.value)
        records = anyrecord.open("s3://bucket/a.ffr", storage={**own, "skip_signature": True})
        assert records[2] == bytes([2]) * 30_000


def test_neither_passwords_nor_signatures_of_a_url_are_shown() -> None:
    url = "http://me:hidden@127.0.0.1:1/{}?signature=hidden"
    for name in ("a.ffr", "a.ffr[0:2]", "*.ffr", "a.ffr@3", "folder/"):
        with pytest.raises(OSError, match=r"http://127\.0\.0\.1:1/") as caught:
            anyrecord.open(url.format(name), storage=QUICK)
        assert "hidden" not in shown(caught.value)
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:1/") as caught:
        anyrecord.create(url.format("a.ffr"), storage=QUICK)
    assert "hidden" not in shown(caught.value)
    for act in (anyrecord.create, anyrecord.open):
        with pytest.raises(ValueError, match="is not supported") as refused:
            act(url.format("a.ffr").replace("http:", "ftp:"))
        assert "hidden" not in str(refused.value)


def test_a_signed_url_is_shown_without_its_signature_and_read_with_it() -> None:
    with Played({"a.ffr": DATA}, protocol="http") as server:
        records = anyrecord.open(server.url("a.ffr") + "?signature=hidden")
        assert records.paths == [server.url("a.ffr")]
        assert records[1] == bytes([1]) * 30_000
        assert all(entry.query == {"signature": "hidden"} for entry in server.log)
        assert "hidden" not in repr(records)


def test_an_object_that_is_replaced_is_an_error_and_never_mixed_data() -> None:
    other = file_of(*(bytes([i + 100]) * 30_000 for i in range(20)))
    with Played({"a.ffr": DATA}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage=server.storage)
        assert records[3] == bytes([3]) * 30_000
        server.put("a.ffr", other)
        for read in (lambda: records[4], lambda: records[[1, 15]], lambda: list(records)):
            with pytest.raises(anyrecord.FormatError, match=r"changed after it was opened.*; open it again"):
                read()
        assert anyrecord.open(server.url("a.ffr"), storage=server.storage)[4] == bytes([104]) * 30_000


def test_a_web_server_that_cannot_list_says_so() -> None:
    with Played({"a.ffr": DATA}, protocol="http") as server:
        for pattern in ("*.ffr", "a.ffr@2", ""):
            with pytest.raises(OSError, match=r"cannot be listed .*most web servers cannot list files: pass the URL"):
                anyrecord.open(f"{server.endpoint}/{pattern}")
