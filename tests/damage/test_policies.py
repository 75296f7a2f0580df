"""The rules of `on_error=` and `max_errors=`: what counts, what is never damage, and what a function may do."""

from __future__ import annotations

import errno
import gc
import io
import os
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError, ClosedError, DamageWarning, RecordError, Records
from children import python

from damage.files import KINDS, POLICIES, RECORDS, N, expected, file_of

IGNORED = pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")
FFRECORD = KINDS["ffrecord"]
GROUPS = KINDS["array_record-brotli-groups"]

READS: dict[str, Callable[[Any], Any]] = {
    "iteration": list,
    "a list": lambda records: records[range(N)],
    "batches": lambda records: [record for batch in records.batches(7) for record in batch],
    "batches of one": lambda records: [record for batch in records.batches(1) for record in batch],
    "packed": lambda records: records.read_packed(range(N)).tolist(),
    "packed batches": lambda records: [
        record for batch in records.batches(7, packed=True) for record in batch.tolist()
    ],
    "map": lambda records: list(records.map(bytes)),
    "a shuffle": lambda records: list(records.shuffle(3)),
}


class Disk:
    """A file object that notes where it is read, and whose disk cannot read some bytes."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)  # a `BytesIO` itself would not be read, but taken as bytes
        self.seek, self.tell = self._file.seek, self._file.tell
        self.reads: list[int] = []
        self.bad, self.number = range(0), errno.EIO

    def read(self, size: int) -> bytes:
        begin = self.tell()
        self.reads.append(begin)
        if max(begin, self.bad.start) < min(begin + size, self.bad.stop):
            raise OSError(self.number, os.strerror(self.number))
        return self._file.read(size)


def opened(disk: Disk, **keywords: Any) -> Records:
    return anyrecord.open(disk, **keywords)  # type: ignore[arg-type]  # it has what `open` needs of a file object


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"on_error": "ignore"}, ValueError, "'raise', 'skip', 'replace' or a function"),
        ({"on_error": None}, TypeError, "not NoneType"),
        ({"on_error": 3}, TypeError, "not int"),
        ({"max_errors": 3}, ValueError, "max_errors= needs on_error="),
        ({"on_error": "raise", "max_errors": 0}, ValueError, "max_errors= needs on_error="),
        ({"on_error": "skip", "max_errors": -1}, ValueError, "max_errors=-1"),
        ({"on_error": "skip", "max_errors": 1.5}, TypeError, "max_errors"),
        ({"on_error": "skip", "max_errors": True}, TypeError, "max_errors"),
    ],
)
def test_wrong_options_are_refused_by_name(keywords: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        anyrecord.open(file_of(FFRECORD), **keywords)
    Path("a.ffr").write_bytes(file_of(FFRECORD))
    with pytest.raises(error, match=text):
        anyrecord.convert("a.ffr", "b.ffr", **keywords)
    assert not Path("b.ffr").exists()


@IGNORED
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["ffrecord", "array_record-brotli-groups"])
def test_max_errors_is_the_most_damaged_records_and_one_more_raises(name: str, policy: str, read: str) -> None:
    kind = KINDS[name]
    damaged = {3, 20, 40}
    lost, data = kind.lost(damaged), file_of(kind, damaged)
    for most in (len(lost), len(lost) + 1, 10**9):
        records = anyrecord.open(data, on_error=POLICIES[policy], max_errors=most)
        for _ in range(2):
            READS[read](records)
        assert len(records.skipped) == len(lost)
    for most in (0, 1, len(lost) - 1):
        records = anyrecord.open(data, on_error=POLICIES[policy], max_errors=most)
        for _ in range(2):  # and again, each time
            with pytest.raises(ChecksumError) as caught:
                READS[read](records)
            assert caught.value.record in lost
            assert caught.value.__notes__ == [f"more than max_errors={most} records are damaged"]
            assert len(records.skipped) <= most
        assert caught.value.record not in {skipped.index for skipped in records.skipped}


@IGNORED
def test_the_same_record_counts_once_however_often_and_through_whatever_view_it_is_read() -> None:
    records = anyrecord.open(file_of(FFRECORD, {5}), on_error="skip", max_errors=1)
    for view in (records, records.shuffle(1), records[::-1], records[5:6], records + records):
        for _ in range(3):
            list(view)
    assert records[[5, 5, 5]] == []
    assert [skipped.record for skipped in records.skipped] == [5]


@IGNORED
def test_an_iterator_delivers_what_is_before_the_error_and_goes_on_after_it() -> None:
    records = anyrecord.open(file_of(FFRECORD, {10, 30, 50}), on_error="skip", max_errors=1)
    it = iter(records)
    assert [next(it) for _ in range(29)] == [RECORDS[i] for i in range(30) if i != 10]
    for position in (30, 50):
        with pytest.raises(ChecksumError) as caught:
            next(it)
        assert caught.value.record == position
        assert it.state_dict()["position"] == position + 1  # the error came in its place, as with on_error="raise"
        for number in range(position + 1, min(position + 20, N)):
            assert next(it) == RECORDS[number]
    assert list(it) == []


def test_a_function_gets_the_error_of_each_record_and_gives_its_bytes() -> None:
    for kind in KINDS.values():
        met: list[RecordError] = []

        def function(error: Any, met: list[RecordError] = met) -> bytes:
            met.append(error)
            return b"%d" % error.record

        records = anyrecord.open(file_of(kind, {17}), format=kind.format, on_error=function)
        lost = kind.lost({17})
        with pytest.warns(DamageWarning, match="replaced by the result of on_error"):
            assert records[sorted(lost)] == [b"%d" % number for number in sorted(lost)]
        assert [error.record for error in met] == sorted(lost)
        for error in met:
            with pytest.raises(type(error)) as caught:
                records[error.record]  # type: ignore[index]
            assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))
        list(records)  # asked again, warned no more
        assert len(met) == 2 * len(lost)


class OwnError(Exception):
    pass


@IGNORED
@pytest.mark.parametrize("read", [*READS, "read_into"])
def test_an_exception_of_the_function_reaches_the_caller(read: str) -> None:
    def act(records: Records) -> Any:
        return records.read_into(bytearray(1 << 20), range(N)) if read == "read_into" else READS[read](records)

    def refuse(error: Exception) -> bytes:
        raise OwnError("mine") from error

    def stop(error: Exception) -> bytes:
        raise StopIteration

    data = file_of(GROUPS, {17})
    records = anyrecord.open(data, on_error=refuse)
    with pytest.raises(OwnError, match="mine") as caught:
        act(records)
    assert isinstance(caught.value.__cause__, ChecksumError)
    assert records.skipped == []  # nothing was left out or replaced
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        act(anyrecord.open(data, on_error=stop))
    for wrong, name in ((None, "NoneType"), ("text", "str"), (bytearray(b"x"), "bytearray"), (7, "int")):
        with pytest.raises(TypeError, match=f"on_error must return the bytes .* it returned {name}"):
            act(anyrecord.open(data, on_error=lambda error, wrong=wrong: wrong))  # type: ignore[misc]


@IGNORED
def test_an_iterator_continues_after_the_function_raised_and_repeats_what_an_interrupt_stopped() -> None:
    raised: Exception | KeyboardInterrupt = OwnError()

    def function(error: Exception) -> bytes:
        if isinstance(raised, KeyboardInterrupt):
            raise raised
        raise raised

    it = iter(anyrecord.open(file_of(FFRECORD, {10}), on_error=function))
    assert len([next(it) for _ in range(10)]) == 10
    raised = KeyboardInterrupt()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            next(it)
        assert it.state_dict()["position"] == 10
    raised = OwnError()
    with pytest.raises(OwnError):
        next(it)
    assert it.state_dict()["position"] == 11
    assert next(it) == RECORDS[11]


@IGNORED
def test_a_function_may_read_the_records_itself() -> None:
    records: Records = anyrecord.open(file_of(GROUPS, {17}), on_error=lambda error: records[0] + records[[1]][0])
    lost = GROUPS.lost({17})
    want = [RECORDS[0] + RECORDS[1] if i in lost else RECORDS[i] for i in range(N)]
    assert list(records) == want == records[range(N)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_warning_that_is_an_error_loses_nothing(policy: str) -> None:
    for kind in (FFRECORD, GROUPS):
        lost = kind.lost({17, 40})
        want = expected(range(N), lost, policy)
        records = anyrecord.open(file_of(kind, {17, 40}), on_error=POLICIES[policy])
        found, raised, it = [], 0, iter(records)
        while it.state_dict()["position"] < N:
            try:
                found.append(next(it))
            except DamageWarning:
                raised += 1
                assert it.state_dict()["position"] in lost
        assert (found, raised) == (want, 2)
        assert {skipped.index for skipped in records.skipped} == lost
        records = anyrecord.open(file_of(kind, {17, 40}), on_error=POLICIES[policy])
        batches, position = iter(records.batches(25)), 0
        with pytest.raises(DamageWarning):
            next(batches)
        assert batches.state_dict()["position"] == position  # not skipped: tried again
        assert next(batches) == expected(range(25), lost, policy)
        with pytest.raises(DamageWarning):
            next(batches)
        assert next(batches) == expected(range(25, 50), lost, policy)


@IGNORED
@pytest.mark.parametrize("name", KINDS)
def test_if_everything_is_damaged_nothing_is_left_and_nothing_can_replace(name: str) -> None:
    kind = KINDS[name]
    data = file_of(kind, range(N))
    records = anyrecord.open(data, format=kind.format, on_error="skip")
    assert list(records) == records[range(N)] == []
    assert list(records.batches(7)) == []
    assert len(records.skipped) == N == len(records)
    assert len(records.batches(7)) == 9
    records = anyrecord.open(data, format=kind.format, on_error="replace")
    for read in READS.values():
        with pytest.raises(RecordError) as caught:
            read(records)
        assert caught.value.__notes__ == ['no other record can be read that could take its place (on_error="replace")']
    assert records.skipped == []


@IGNORED
def test_a_long_run_of_damage_is_not_searched_again_for_every_record() -> None:
    """20,000 damaged records in a row, with one good record at the end: linear work, not a square of it."""
    count = 20_000
    file = io.BytesIO()
    with anyrecord.create(file, format="ffrecord") as out:
        out.write_many(b"%08d" % i for i in range(count))
    data = bytearray(file.getvalue())
    begin = data.index(b"00000000" + b"00000001")
    for i in range(count - 1):
        data[begin + 8 * i] ^= 1
    disk = Disk(bytes(data))
    records = opened(disk, on_error="replace")
    disk.reads.clear()
    assert set(records) == {b"%08d" % (count - 1)}
    assert len(disk.reads) < 20 * count
    assert len(records.skipped) == count - 1


@IGNORED
@pytest.mark.parametrize("policy", POLICIES)
def test_a_damaged_chunk_is_decoded_a_few_times_and_not_once_for_every_record(policy: str) -> None:
    kind = KINDS["recordio-snappy"]
    disk = Disk(file_of(kind, {17}))
    records = opened(disk, format="recordio", on_error=POLICIES[policy])
    disk.reads.clear()
    for _ in range(20):
        list(records.batches(1))
        list(records.shuffle(1))
    # What is good is in the cache after the first read, what is damaged is known.
    assert max(map(disk.reads.count, disk.reads)) <= 4


def test_opening_raises_if_a_table_is_damaged_whatever_on_error_is(tmp_path: Path) -> None:
    data = bytearray(file_of(FFRECORD))
    data[15] ^= 1
    for policy in POLICIES.values():
        with pytest.raises(ChecksumError):
            anyrecord.open(bytes(data), on_error=policy)
    # The same, where the file is opened later.
    path = tmp_path / "a.ffr"
    path.write_bytes(file_of(FFRECORD))
    import pickle

    for policy in ("skip", "replace"):
        path.write_bytes(file_of(FFRECORD))
        records = pickle.loads(pickle.dumps(anyrecord.open(path, on_error=policy)))  # type: ignore[arg-type]
        path.write_bytes(data)
        for read in READS.values():
            with pytest.raises(ChecksumError):
                read(records)
        assert records.skipped == []


@IGNORED
def test_the_last_sample_of_an_ffrecord_file_can_be_damaged_or_cut() -> None:
    data = file_of(FFRECORD)
    for harmed in (data[:-3], data[:-1] + b"\0", data + b"more"):
        with pytest.raises(RecordError):
            anyrecord.open(harmed)
        assert list(anyrecord.open(harmed, on_error="skip")) == list(RECORDS[:-1])
        assert list(anyrecord.open(harmed, on_error="replace")) == [*RECORDS[:-1], RECORDS[0]]


@IGNORED
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", [name for name in KINDS if "-gzip" not in name and "zlib" not in name])
def test_bytes_that_the_disk_cannot_read_are_damage(name: str, policy: str) -> None:
    kind = KINDS[name]
    data = file_of(kind)
    place = next(i for i, (a, b) in enumerate(zip(data, file_of(kind, {17}), strict=True)) if a != b)
    file = Disk(data)
    records = opened(file, format=kind.format, on_error=POLICIES[policy])
    file.bad = range(place, place + 1)
    lost = kind.lost({17})
    for read in READS.values():
        order = [RECORDS.index(r) for r in anyrecord.open(data, format=kind.format).shuffle(3)]
        numbers = order if read is READS["a shuffle"] else range(N)
        assert read(records) == expected(numbers, lost, policy)
    assert {skipped.index for skipped in records.skipped} == lost
    with pytest.raises(OSError, match="Input/output error"):
        records[17]
    # Another error of the system is not damage.
    file = Disk(data)
    records = opened(file, format=kind.format, on_error=POLICIES[policy])
    file.bad, file.number = range(place, place + 1), errno.EACCES
    with pytest.raises(PermissionError):
        records[range(N)]
    with pytest.raises(PermissionError):
        list(records)
    assert records.skipped == []


@IGNORED
def test_a_function_gets_the_place_of_an_error_of_the_disk() -> None:
    data = file_of(FFRECORD)
    place = next(i for i, (a, b) in enumerate(zip(data, file_of(FFRECORD, {17}), strict=True)) if a != b)
    met: list[Any] = []
    file = Disk(data)

    def function(error: Any) -> bytes:
        met.append(error)
        return b"x"

    records = opened(file, on_error=function)
    file.bad = range(place, place + 1)
    assert records[[17]] == [b"x"]
    assert [type(error) for error in met] == [OSError]
    assert (met[0].errno, met[0].record) == (errno.EIO, 17)
    assert met[0].path.startswith("<")


@IGNORED
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("io", ["map", "plain"])
def test_a_file_that_is_cut_while_it_is_open_is_not_damage(tmp_path: Path, policy: str, io: Any) -> None:
    for kind in (FFRECORD, GROUPS):
        path = tmp_path / "file"
        path.write_bytes(file_of(kind, {3}))
        records = anyrecord.open(path, io=io, on_error=POLICIES[policy])
        os.truncate(path, path.stat().st_size // 2)
        for _ in range(2):
            with pytest.raises(RecordError, match="while it was open"):
                records[range(N)]
            with pytest.raises(RecordError, match="while it was open"):
                list(records)
        assert all(skipped.index in kind.lost({3}) for skipped in records.skipped)


@IGNORED
def test_a_file_that_was_replaced_is_not_damage(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.ffr" for i in range(4)]
    for path in paths:
        path.write_bytes(file_of(FFRECORD))
    limits = anyrecord.Limits(open_files=1)
    records = anyrecord.open(paths, io="plain", limits=limits, on_error="skip")
    for path in paths:
        other = path.with_suffix(".new")
        other.write_bytes(file_of(FFRECORD, {3}) + b"longer")
        other.replace(path)
    with pytest.raises(RecordError, match="file changed since it was opened"):
        records[range(4 * N)]
    assert records.skipped == []


def test_closed_records_raise() -> None:
    for policy in POLICIES.values():
        records = anyrecord.open(file_of(FFRECORD, {3}), on_error=policy)
        records.close()
        for read in READS.values():
            with pytest.raises(ClosedError):
                read(records)


@IGNORED
def test_a_chunk_over_a_limit_is_damage_and_a_batch_over_it_is_not() -> None:
    kind = GROUPS
    big = kind.lost({30})  # its chunk holds the record of 70,000 bytes
    limits = anyrecord.Limits(decoded_chunk_bytes=20_000)
    records = anyrecord.open(file_of(kind), limits=limits, on_error="skip")
    assert list(records) == expected(range(N), big, "skip")
    assert {skipped.index for skipped in records.skipped} == big
    limits = anyrecord.Limits(decoded_bytes=100_000)
    records = anyrecord.open(file_of(kind), limits=limits, on_error="skip", cache_bytes=0)
    assert records[range(N)] == list(RECORDS)
    assert records.skipped == []


@IGNORED
def test_records_and_their_function_are_collected_together() -> None:
    class Owner:
        def __init__(self, data: bytes) -> None:
            self.records = anyrecord.open(data, on_error=self.replace)
            self.iterator = iter(self.records)

        def replace(self, error: Exception) -> bytes:
            return b"x"

    owner = Owner(file_of(FFRECORD, {3}))
    assert len(list(owner.records)) == N
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_the_drop_ins_raise_as_the_originals_do(tmp_path: Path) -> None:
    path = tmp_path / "a.array_record"
    kind = KINDS["array_record-zstd"]
    path.write_bytes(file_of(kind, {3}))
    from anyrecord.compat.array_record.python.array_record_module import ArrayRecordReader

    with pytest.raises(Exception, match="hash mismatch"):
        ArrayRecordReader(str(path)).read_all()


def test_warnings_of_many_damaged_records_are_one_a_record_and_one_a_chunk() -> None:
    for kind in (FFRECORD, GROUPS):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            records = anyrecord.open(file_of(kind, range(20)), on_error="skip")
            for _ in range(2):
                list(records.shuffle(1).batches(3))
        assert len(caught) == len({number // kind.per_chunk for number in range(20)})
        assert len(records.skipped) == len(kind.lost(range(20)))


def test_python_itself_shows_the_warning_by_default(tmp_path: Path) -> None:
    path = tmp_path / "a.ffr"
    path.write_bytes(file_of(FFRECORD, {3}))
    script = """if True:
        import sys, warnings, anyrecord
        warnings.resetwarnings()
        sys.stderr = sys.stdout
        print(len(list(anyrecord.open(sys.argv[1], on_error="skip"))))
    """
    printed = python(script, str(path))
    assert f"DamageWarning: record 3 of {path} is damaged and was left out: sample checksum mismatch" in printed
    assert f"{N - 1}\n" in printed
