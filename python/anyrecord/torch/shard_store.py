"""Runs a command beside a store for its shards. The store lives as long as the command, also if workers are killed.

    python -m anyrecord.torch.shard_store torchrun --nproc-per-node 4 train.py
    python -m anyrecord.torch.shard_store --host 0.0.0.0 --port 29600      # for several machines, until it is stopped

The command finds the address in the variable ANYRECORD_STORE of its environment, which `connect_store` reads.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from anyrecord._shard_tcp import ADDRESS, host_store

__all__ = ["main"]


def main() -> int:
    """Hosts the store until the command has ended. Returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m anyrecord.torch.shard_store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at; there is no password")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run; without it, wait for Ctrl-C")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    try:
        store = host_store(arguments.host, arguments.port)
    except (OSError, ValueError) as error:
        parser.error(f"cannot listen at {arguments.host}, port {arguments.port}: {error}")
    address = f"{store.host}:{store.port}"
    print(f"the store of the shards is at {address}", file=sys.stderr, flush=True)
    if not arguments.command:
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        return 0
    command = arguments.command[1:] if arguments.command[0] == "--" else arguments.command
    try:
        ran = subprocess.Popen(command, env={**os.environ, ADDRESS: address})
    except (OSError, IndexError) as error:
        parser.error(f"cannot run {' '.join(command) or 'an empty command'}: {error}")
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends Ctrl-C to the command, too
    signal.signal(signal.SIGTERM, lambda *_: ran.terminate())
    status = ran.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
