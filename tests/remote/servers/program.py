"""A server that is a program of its own: started on a free port, waited for, and ended."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from .server import Server, free_port

START_SECONDS = 60.0
"""Many times what the slowest program needs to start on a busy machine."""
ATTEMPTS = 5


class Program(Server):
    """A server in a process of its own, with a folder of its own."""

    folder: Path
    _process: subprocess.Popen[bytes]
    _temporary: tempfile.TemporaryDirectory[str]

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments, for `self.port` and `self.folder`."""

    def environment(self) -> dict[str, str]:
        """Variables that the program has beside those of this process."""
        return {}

    @abstractmethod
    def prepare(self) -> None:
        """Makes the bucket, once the server answers."""

    def __enter__(self) -> Self:
        self._temporary = tempfile.TemporaryDirectory(prefix="anyrecord-server-")
        self.folder = Path(self._temporary.name)
        try:
            self._start()
            self.prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._temporary.cleanup()

    def _start(self) -> None:
        """Somebody else may take the port between our choice and the start of the program: then we choose another."""
        for attempt in range(ATTEMPTS):
            self.port = free_port()
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.folder,
                    env={**os.environ, **self.environment()},
                )
            if self._listens():
                return
            said = self._output.read_text(errors="replace")
            self._end()
            if attempt == ATTEMPTS - 1 or "in use" not in said:
                raise AssertionError(f"{self.command()[0]} did not start: {said}")

    def _listens(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=START_SECONDS).close()
                # A stranger on our port looks the same, but then our own program ends: its address is in use.
                return self._process.poll() is None
            except ConnectionRefusedError:
                time.sleep(0.02)
        return False

    def _end(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()

    @property
    def _output(self) -> Path:
        return self.folder / "output.txt"
