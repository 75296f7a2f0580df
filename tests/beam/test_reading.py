"""`ReadFromRecords` and `ReadAllFromRecords`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import anyrecord
import apache_beam as beam
import pytest
from anyrecord.beam import ReadAllFromRecords, ReadFromRecords
from apache_beam.coders import StrUtf8Coder
from apache_beam.io import fileio
from apache_beam.options.value_provider import StaticValueProvider
from conformance.formats import CASES, FIRST_CASES, Case
from damage.files import KINDS, POLICIES, expected, file_of
from remote import servers

from .files import RECORDS, counters, pipeline, read, write

pytestmark = pytest.mark.framework

ARRAY_RECORD = FIRST_CASES[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_format_is_read(case: Case) -> None:
    path = write("a", case)
    assert read(ReadFromRecords(path, desired_bundle_size=50)) == sorted(RECORDS)
    positions = [(path, index, record) for index, record in enumerate(RECORDS)]
    assert read(beam.Create([path]), ReadAllFromRecords(with_position=True, desired_bundle_size=50)) == positions


SHARDS = [f"a-{shard:05}-of-00003.array_record" for shard in range(3)]


@pytest.mark.parametrize("source", ["a-*.array_record", "a.array_record@3", ".", SHARDS], ids=str)
def test_every_kind_of_name_is_read(source: Any) -> None:
    with anyrecord.create("a.array_record", shards=3) as out:
        out.write_many(RECORDS)
    assert read(ReadFromRecords(source)) == sorted(RECORDS)
    assert read(ReadFromRecords(StaticValueProvider(str, "a-*.array_record"))) == sorted(RECORDS)
    if isinstance(source, str):
        assert read(beam.Create([source]), ReadAllFromRecords()) == sorted(RECORDS)


def test_a_range_and_a_path_object_are_read() -> None:
    path = write("a", ARRAY_RECORD)
    expected = [(path, index, RECORDS[index]) for index in range(5, 8)]
    assert read(ReadFromRecords(f"{path}[5:8]", with_position=True)) == expected
    assert read(ReadFromRecords(Path(path))) == sorted(RECORDS)


def test_what_beam_has_matched_is_read() -> None:
    path = write("a", ARRAY_RECORD)
    pattern = os.path.abspath("*.array_record")
    assert read(fileio.MatchFiles(pattern), ReadAllFromRecords()) == sorted(RECORDS)
    matched = (fileio.MatchFiles(pattern), fileio.ReadMatches(), ReadAllFromRecords(with_position=True))
    assert read(*matched)[0] == (os.path.abspath(path), 0, RECORDS[0])


def test_a_coder_decodes_and_says_which_record_it_cannot_decode() -> None:
    write("a", ARRAY_RECORD, ["grün".encode(), b"rot"])
    assert read(ReadFromRecords("a.array_record", coder=StrUtf8Coder())) == ["grün", "rot"]
    write("b", ARRAY_RECORD, [b"good", b"\xff"])
    with pytest.raises(Exception, match=r"while the coder StrUtf8Coder decoded record 1 of b.array_record"):
        read(ReadFromRecords("b.array_record", coder=StrUtf8Coder()))


def test_types_are_known_to_the_next_transform() -> None:
    write("a", ARRAY_RECORD)
    with pytest.raises(Exception, match="requires PCollections of type '<class 'int'>'"):
        pipeline() | ReadFromRecords("a.array_record") | beam.Map(len).with_input_types(int)
    assert read(ReadFromRecords("a.array_record"), beam.Map(len).with_input_types(bytes)) == sorted(map(len, RECORDS))
    with pytest.raises(TypeError, match="coder= takes a coder of Beam"):
        ReadFromRecords("a.array_record", coder=str)


def test_a_pattern_without_match_is_an_error_where_the_pipeline_is_built() -> None:
    with pytest.raises(FileNotFoundError, match="no file matches the pattern"):
        ReadFromRecords("nothing-*.ffr")
    with pytest.raises(FileNotFoundError):
        ReadFromRecords("nothing.ffr")
    later = ReadFromRecords("nothing-*.ffr", validate=False)
    with pytest.raises(Exception, match="no file matches the pattern"):
        read(later)


def test_read_all_takes_a_glob_without_match_for_no_records() -> None:
    assert read(beam.Create(["nothing-*.ffr"]), ReadAllFromRecords()) == []
    with pytest.raises(Exception, match="no file matches the pattern"):
        read(beam.Create(["nothing-*.ffr"]), ReadAllFromRecords(empty_match_treatment="DISALLOW"))
    with pytest.raises(Exception, match="No such file or directory"):
        read(beam.Create(["nothing.ffr"]), ReadAllFromRecords())
    with pytest.raises(ValueError, match="empty_match_treatment='ALLOW' is not valid"):
        ReadAllFromRecords(empty_match_treatment="ALLOW")


def test_a_missing_shard_is_an_error() -> None:
    with anyrecord.create("a.ffr", shards=3) as out:
        out.write_many(RECORDS)
    reading = ReadFromRecords("a-*.ffr")
    os.remove("a-00001-of-00003.ffr")
    with pytest.raises(Exception, match=re.escape("a-00001-of-00003.ffr")):
        read(reading)
    with pytest.raises(Exception, match=re.escape("a-00001-of-00003.ffr")):
        read(beam.Create(["a-*.ffr"]), ReadAllFromRecords())


class Delete(beam.DoFn):
    """Deletes a file after it was found and before it is read."""

    def process(self, file: Any) -> Any:
        os.remove(file.path)
        yield file


def test_a_file_that_vanishes_before_it_is_read_is_an_error() -> None:
    path = write("a", ARRAY_RECORD)
    found = fileio.MatchFiles(os.path.abspath(path))
    with pytest.raises(Exception, match=r"No such file or directory.*a\.array_record"):
        read(found, beam.ParDo(Delete()), ReadAllFromRecords())


def test_empty_files_are_read() -> None:
    for case in FIRST_CASES:
        assert read(ReadFromRecords(write("a", case, []))) == []
    Path("b.tfrecord").touch()
    assert read(ReadFromRecords("b.tfrecord")) == []


def test_options_are_checked_where_the_pipeline_is_built() -> None:
    path = write("a", ARRAY_RECORD)
    with pytest.raises(
        TypeError, match="unexpected keyword argument 'expected_records'; the options of open are cache"
    ):
        ReadFromRecords(path, expected_records=7)
    with pytest.raises(ValueError, match="on_error='ignore' is not valid"):
        ReadFromRecords(path, on_error="ignore")
    with pytest.raises(ValueError, match="desired_bundle_size=0 is not valid"):
        ReadFromRecords(path, desired_bundle_size=0)
    for pattern, kind in ((None, "NoneType"), (7, "int"), (path.encode(), "bytes")):
        with pytest.raises(TypeError, match=f"file_pattern must be a path or an iterable of paths, not {kind}"):
            ReadFromRecords(pattern)


def test_format_is_passed_on() -> None:
    write("a", ARRAY_RECORD)
    assert len(read(ReadFromRecords("a.array_record", format="riegeli"))) >= len(RECORDS)


@pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "kind", ["ffrecord", "tfrecord", "recordio-snappy", "array_record-zstd", "array_record-none-groups"]
)
def test_damaged_records_are_left_out_or_replaced_and_counted(kind: str, policy: str) -> None:
    path = f"a{KINDS[kind].suffix}"
    Path(path).write_bytes(file_of(KINDS[kind], [3, 20]))
    lost = KINDS[kind].lost([3, 20])
    wanted = sorted(expected(range(60), lost, policy))
    started = pipeline()
    reading = ReadFromRecords(path, on_error=POLICIES[policy], desired_bundle_size=500)
    started | reading | beam.combiners.ToList() | beam.Map(lambda found: Path("found").write_text(repr(sorted(found))))
    result = started.run()
    result.wait_until_finish()
    assert eval(Path("found").read_text()) == wanted
    counted = {"records_read": len(wanted), "bytes_read": sum(map(len, wanted)), "records_damaged": len(lost)}
    assert counters(result) == counted


@pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")
def test_damage_is_an_error_unless_it_is_wanted() -> None:
    Path("a.ffr").write_bytes(file_of(KINDS["ffrecord"], [3, 20]))
    policies: list[dict[str, Any]] = [{}, {"on_error": "skip", "max_errors": 1}]
    for options in policies:
        with pytest.raises(Exception, match=r"checksum.*a\.ffr"):
            read(ReadFromRecords("a.ffr", **options))


def test_the_counters_of_a_pipeline_count_records_and_bytes() -> None:
    path = write("a", ARRAY_RECORD)
    started = pipeline()
    started | ReadFromRecords(path, desired_bundle_size=50)
    result = started.run()
    assert counters(result) == {"records_read": 40, "bytes_read": sum(map(len, RECORDS))}


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
@pytest.mark.filterwarnings("ignore:opening searched")
def test_objects_of_a_store_are_read_with_the_options_of_the_store(case: Case) -> None:
    path = write("a", case)
    with servers.Played() as server:
        for shard in range(2):
            server.put(f"some/a-{shard:05}-of-00002{case.suffix}", Path(path).read_bytes())
        url = server.url(f"some/a{case.suffix}@2")
        found = read(ReadFromRecords(url, storage=server.storage, with_position=True, desired_bundle_size=50))
        names = [server.url(f"some/a-{shard:05}-of-00002{case.suffix}") for shard in range(2)]
        assert found == [(name, index, record) for name in names for index, record in enumerate(RECORDS)]
        with pytest.raises(FileNotFoundError, match=r"some/nothing\.ffr"):
            ReadFromRecords(server.url("some/nothing.ffr"), storage=server.storage)
        later = ReadFromRecords(server.url("some/nothing.ffr"), storage=server.storage, validate=False)
        with pytest.raises(Exception, match=r"some/nothing\.ffr"):
            read(later)
