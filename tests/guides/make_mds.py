"""Writes the small data set that docs/coming-from-mds.md reads, with MosaicML Streaming 0.13.0.

    .venv/loader-peers/bin/python tests/guides/make_mds.py      # after `make bench-loaders`

MosaicML Streaming needs an older NumPy than our tests, so what it wrote is kept in `tests/guides/mds/`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).parent / "mds"
COLUMNS = {"image": "bytes", "label": "int", "name": "str"}


def main() -> None:
    from streaming import MDSWriter

    shutil.rmtree(FOLDER, ignore_errors=True)
    with MDSWriter(out=str(FOLDER), columns=COLUMNS, size_limit=500) as out:
        for i in range(10):
            out.write({"image": bytes([i]) * 20, "label": i % 3, "name": f"pet {i}"})


if __name__ == "__main__":
    main()
