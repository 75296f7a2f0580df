"""What `checks/wheel.py` runs with an installed wheel: the main things of every format, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys

BEFORE = set(sys.modules)
import anyrecord  # noqa: E402

LOADED = set(sys.modules) - BEFORE
import sysconfig  # noqa: E402

MODULES = 100
"""How many modules an import may load."""
FILES = ("a.ffr", "a.array_record", "a.recordio", "a.tfrecord", "a.tfrecord.gz")
RECORDS = [b"", b"x", *(b"record %d " % number * number for number in range(200))]


def main() -> None:
    where = os.path.realpath(anyrecord.__file__)
    assert where.startswith(os.path.realpath(sys.prefix)), f"{where} was not installed here"
    assert len(LOADED) <= MODULES, f"{len(LOADED)} modules are loaded: {sorted(LOADED)}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled(), "the import turned the GIL on again"  # type: ignore[attr-defined,unused-ignore]
    for name in FILES:
        write_and_read(name)
    for suffix in (".ffr", ".array_record", ".recordio", ".tfrecord"):
        assert anyrecord.convert("a.tfrecord", f"b{suffix}").records == len(RECORDS), suffix
    find_damage("a.ffr")
    start_with_drop_ins()
    print(f"anyrecord {anyrecord.__version__} works on Python {sys.version.split()[0]}, {sys.platform}")


def write_and_read(name: str) -> None:
    with anyrecord.create(name) as out:
        out.write_many(RECORDS)
    with anyrecord.open(name) as found:
        assert list(found) == RECORDS, name
        assert found[[7, 3, -1]] == [RECORDS[7], RECORDS[3], RECORDS[-1]], name
    assert anyrecord.verify(name).ok, name


def find_damage(name: str) -> None:
    with open(name, "r+b") as file:
        data = file.read()
        file.seek(-1, os.SEEK_END)
        file.write(bytes([data[-1] ^ 1]))
    try:
        anyrecord.open(name)[-1]
    except anyrecord.ChecksumError:
        return
    raise SystemExit(f"the damage in {name} was not found")


def start_with_drop_ins() -> None:
    """The .pth file: if the variable is set, the original's name is ours. If not, nothing is imported."""
    assert output("import recordio; print(recordio.Writer.__module__)", "recordio").startswith("anyrecord")
    assert output("import sys; print('anyrecord' in sys.modules)", "") == "False"


def output(script: str, drop_ins: str) -> str:
    variables = {**os.environ, "ANYRECORD_COMPAT": drop_ins}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
