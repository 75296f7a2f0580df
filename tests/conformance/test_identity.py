"""The same records in another process: `repr` and pickles."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import anyrecord
import pytest
from anyrecord import Records
from turns import turn

from conformance.formats import Case
from conformance.storages import RECORDS, Stored, write

N = len(RECORDS)

READ_PICKLE = """
import pickle, sys
records = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps((len(records), list(records), repr(records))))
"""

PRINT_REPR = """
import sys, anyrecord
records = anyrecord.open(sys.argv[1])
print([repr(records), repr(records[3:9][::-1]), repr(records + records), repr(records.map(len))])
"""


def run_python(script: str, *arguments: str, stdin: bytes = b"") -> bytes:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=60).stdout


def test_the_repr_tells_count_and_format_and_has_no_addresses(stored: Stored, records: Records) -> None:
    text = repr(records)
    assert str(N) in text
    assert stored.case.format.name in text
    assert not re.search(r"\b0x[0-9a-f]", text)


def test_the_repr_is_the_same_for_the_same_records_and_only_for_them(stored: Stored, records: Records) -> None:
    with stored.opened() as again:
        assert repr(again) == repr(records)
        assert repr(again[2:8]) == repr(records[2:8])
    different = [records, records[1:], records[:-1], records[::-1], records[1:-1], records[:1], records + records]
    assert len({repr(each) for each in different}) == len(different)


def test_the_repr_is_the_same_in_every_process(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"same{case.suffix}", RECORDS, case)
    said = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        said.add(run_python(PRINT_REPR, f"same{case.suffix}"))
    assert len(said) == 1
    assert b"sha1" in said.pop()


def test_pickled_records_of_paths_are_the_same_records(stored: Stored, records: Records) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with turn(protocol):
            for part, expected in ((records, RECORDS), (records[20:3:-2], RECORDS[20:3:-2]), (records[:0], ())):
                if not stored.is_of_paths:
                    with pytest.raises(TypeError, match="cannot be pickled"):
                        pickle.dumps(part, protocol)
                    continue
                again = pickle.loads(pickle.dumps(part, protocol))
                assert type(again) is Records
                assert len(again) == len(expected)
                assert list(again) == list(expected)
                assert again.paths == part.paths
                assert repr(again) == repr(part)


def test_a_pickle_is_small_and_holds_no_records(stored: Stored, records: Records) -> None:
    if stored.is_of_paths:
        assert len(pickle.dumps(records)) < 1000 + 200 * len(stored.files)


def test_a_pickle_remembers_how_the_records_were_opened(stored: Stored) -> None:
    if stored.is_of_paths:
        with stored.opened(checksums=False) as unchecked:
            again = pickle.loads(pickle.dumps(unchecked))
            assert len(again + unchecked) == 2 * N, "the options are equal, or they could not be added"


def test_a_pickle_of_relative_paths_is_read_from_any_folder(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f"here{case.suffix}", RECORDS, case)
    with anyrecord.open(f"here{case.suffix}") as records:
        pickled = pickle.dumps(records[::-1])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    count, found, _ = pickle.loads(run_python(READ_PICKLE, stdin=pickled))
    assert count == N
    assert found == list(RECORDS[::-1])


def test_a_pickle_opens_nothing_before_it_is_read_and_says_what_is_missing(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"gone{case.suffix}"
    write(path, RECORDS, case)
    with anyrecord.open(path) as records:
        pickled = pickle.dumps(records)
    os.remove(path)
    again = pickle.loads(pickled)
    assert len(again) == N
    with pytest.raises(FileNotFoundError) as caught:
        again[0]
    assert caught.value.filename == str(path)


def test_a_pickle_of_a_file_that_lost_records_since_is_refused(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"shorter{case.suffix}"
    write(path, RECORDS, case)
    with anyrecord.open(path) as records:
        pickled = pickle.dumps(records)
    write(path, RECORDS[:-1], case, overwrite=True)
    with pytest.raises(anyrecord.FormatError) as caught:
        pickle.loads(pickled)[0]
    assert caught.value.path == str(path)
