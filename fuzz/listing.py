"""Fuzzes the parser of packed listings, with atheris (libFuzzer for Python).

    python fuzz/listing.py [flags of libFuzzer] [FOLDER ...]
    python fuzz/listing.py --seed FOLDER                     write first inputs, from the cases of the tests

`fuzz/run.py` runs it as the target `listing`.
"""

from __future__ import annotations

import pickle
import shlex
import sys
from collections import OrderedDict
from pathlib import Path


def seed(folder: Path) -> None:
    """Writes listings of every protocol, and the hostile ones of the tests."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from folder.listings import HOSTILE, UNSAFE_TO_UNPACK

    tree = OrderedDict(a=0, d=OrderedDict({"b": 1, "ä\udcff": 300, "e": OrderedDict()}), f=70_000)
    cases = [pickle.dumps(each, protocol) for each in (tree, *UNSAFE_TO_UNPACK.values()) for protocol in range(6)]
    for number, data in enumerate([*cases, *HOSTILE.values()]):
        if len(data) <= 4096:
            (folder / f"seed-{number}").write_bytes(data)


def fuzz() -> None:
    import atheris

    with atheris.instrument_imports(include=["anyrecord._listing"]):
        from listing_rules import check
    # To minimise a corpus, libFuzzer starts this program again, with a shell.
    atheris.Setup([shlex.join([sys.executable, __file__]), *sys.argv[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--seed"]:
        seed(Path(sys.argv[2]))
    else:
        fuzz()
