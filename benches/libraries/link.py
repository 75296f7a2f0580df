"""The link itself: curl fetches all bytes of the shards, 16 ranges at once. No library can be much faster."""

from __future__ import annotations

import subprocess

from benches.libraries.signed import signed_url

CONNECTIONS = 16
RANGE_BYTES = 4 << 20


def fetch(endpoint: str, objects: dict[str, int]) -> None:
    """Fetches objects, given as key and size, and drops what arrives."""
    requests = []
    for key, size in objects.items():
        url = signed_url(endpoint, key)
        for begin in range(0, size, RANGE_BYTES):
            end = min(size, begin + RANGE_BYTES) - 1
            requests.append(f'url = "{url}"\nrange = "{begin}-{end}"\noutput = "/dev/null"\nfail\n')
    command = ["curl", "--no-progress-meter", "--parallel", "--parallel-immediate", "--parallel-max", str(CONNECTIONS)]
    subprocess.run([*command, "--config", "-"], input="next\n".join(requests), text=True, check=True)
