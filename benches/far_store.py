"""An S3 server on this machine that seems to be far away: a proxy in front of it delays and limits what it sends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anyrecord import _core

from benches.libraries import ours
from benches.libraries.job import ACCESS_KEY, BUCKET, SECRET_KEY

ROUND_TRIP_MILLISECONDS = 20
BYTES_PER_SECOND = 125_000_000
"""A gigabit a second."""
START_SECONDS = 60.0
ROOT = Path(__file__).parents[1]
PROXY = ROOT / "target" / "release" / "examples" / "slow_link"


def server_program() -> str | None:
    """The S3 server: what S3S_FS names, or `s3s-fs` beside the Python that runs, or on the PATH."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ.get("S3S_FS") or shutil.which("s3s-fs", path=folders)


@dataclass
class FarStore:
    """A running server and the proxy in front of it."""

    folder: Path
    direct: str
    """The URL of the server."""
    endpoint: str
    """The URL of the proxy."""
    proxy: subprocess.Popen[str]

    def upload(self, source: Path, prefix: str) -> dict[str, int]:
        """Stores all files of a folder, around the proxy, and removes the folder. Returns keys and sizes.

        The files go through the server: for a file that it did not store itself, it computes the MD5 at each request.
        """
        sizes = {}
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            key = f"{prefix}/{path.relative_to(source)}"
            data = path.read_bytes()
            _core.put_object(f"s3://{BUCKET}/{key}", data, list(ours.storage(self.direct).items()))
            sizes[key] = len(data)
        shutil.rmtree(source)
        return sizes

    def remove(self, prefix: str) -> None:
        shutil.rmtree(self.folder / BUCKET / prefix)

    def counts(self) -> tuple[int, int]:
        """The bytes that came over the link, and the requests that went over it, since the last call."""
        assert self.proxy.stdin is not None
        assert self.proxy.stdout is not None
        self.proxy.stdin.write("\n")
        self.proxy.stdin.flush()
        received, requests = self.proxy.stdout.readline().split()
        return int(received), int(requests)


@contextmanager
def near_store(folder: Path, server: str) -> Iterator[int]:
    """Starts the server on a free port, and ends it."""
    (folder / BUCKET).mkdir(parents=True)
    port = free_port()
    keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
    # It writes a line for each request. That would take time.
    quiet = {**os.environ, "RUST_LOG": "error"}
    with subprocess.Popen(
        [server, "--host", "127.0.0.1", "--port", str(port), *keys, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=quiet,
    ) as process:
        try:
            wait_for(port, process)
            yield port
        finally:
            process.kill()


@contextmanager
def far_store(folder: Path, server: str) -> Iterator[FarStore]:
    """Starts the server and the proxy, and ends both."""
    with near_store(folder, server) as port:
        subprocess.run(
            ["cargo", "build", "--release", "--locked", "--quiet", "--example", "slow_link", "-p", "anyrecord"],
            cwd=ROOT,
            check=True,
        )
        command = [str(PROXY), str(port), str(ROUND_TRIP_MILLISECONDS), str(BYTES_PER_SECOND)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
            assert proxy.stdout is not None
            endpoint = f"http://127.0.0.1:{int(proxy.stdout.readline())}"
            yield FarStore(folder, f"http://127.0.0.1:{port}", endpoint, proxy)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise SystemExit("the S3 server did not start")
