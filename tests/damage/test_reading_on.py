"""`on_error=`: what is damaged is left out, replaced or asked for, everything else is as in the undamaged file."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import DamageWarning, RecordError, Records
from hypothesis import given, settings
from hypothesis import strategies as st

from damage.files import KINDS, NUMBERS, POLICIES, RECORDS, Kind, N, expected, file_of

pytestmark = pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")

DAMAGED: dict[str, set[int]] = {
    "none": set(),
    "first": {0},
    "last": {N - 1},
    "middle": {17, 18, 40},
    "many": set(range(0, N, 3)),
    "most": set(range(N)) - {29},
}

VIEWS: dict[str, Callable[[Records], Records]] = {
    "plain": lambda records: records,
    "slice": lambda records: records[5:50:3],
    "backwards": lambda records: records[::-1],
    "shuffled": lambda records: records.shuffle(42, 3),
    "shard": lambda records: records.shuffle(1).shard(1, of=3),
    "blocks": lambda records: records.shuffle(7, window=2, block=8),
    "concat": lambda records: records[40:] + records[:20] + records.shuffle(1),
    "mixed": lambda records: anyrecord.mix([records[:20], records[20:].shuffle(1)], [1, 2], seed=3),
}


@contextmanager
def both(kind: Kind, damaged: set[int], folder: Path, **keywords: Any) -> Iterator[tuple[Records, Records]]:
    """The records of the undamaged and of the damaged file, which have the same name."""
    paths = [folder / name / f"file{kind.suffix}" for name in ("good", "bad")]
    for path, data in zip(paths, (file_of(kind), file_of(kind, damaged)), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* read through the page cache")  # where there is no direct reading
        good = anyrecord.open(paths[0], format=kind.format)
        bad = anyrecord.open(paths[1], format=kind.format, **keywords)
    with good, bad:
        yield good, bad


def numbers_of(view: Records) -> list[int]:
    return [NUMBERS[record] for record in view]


@pytest.mark.parametrize("io", ["map", "plain", "direct"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", KINDS)
def test_every_way_to_read_gives_the_records_of_the_undamaged_file_but_the_damaged_ones(
    name: str, policy: str, io: str, tmp_path: Path
) -> None:
    kind = KINDS[name]
    for damaged in DAMAGED.values():
        lost = kind.lost(damaged)
        if len(lost) == N:
            continue
        with both(kind, damaged, tmp_path, io=io, on_error=POLICIES[policy]) as (good, bad):
            for view_name, view in VIEWS.items():
                numbers, seen = numbers_of(view(good)), view(bad)
                want = expected(numbers, lost, policy)
                about = f"{view_name}, {damaged}"
                assert list(seen) == want, about
                assert list(seen.map(len)) == [len(record) for record in want], about
                assert list(reversed(seen)) == expected(numbers[::-1], lost, policy), about
                assert len(seen) == len(numbers), about
                for size in (1, 4, 1000):
                    parts = [numbers[i : i + size] for i in range(0, len(numbers), size)]
                    batches = [expected(part, lost, policy) for part in parts]
                    assert list(seen.batches(size)) == [batch for batch in batches if batch], about
                    assert len(seen.batches(size)) == len(batches), about
                    packed = [batch.tolist() for batch in seen.batches(size, packed=True)]
                    assert packed == [batch for batch in batches if batch], about
            found = {(skipped.record, skipped.index) for skipped in bad.skipped}
            assert found == {(number, number) for number in lost}
            assert len(bad.skipped) == len(lost)
            assert all(skipped.path == bad.paths[0] for skipped in bad.skipped)
            assert all(f"(record {skipped.index})" in skipped.error for skipped in bad.skipped)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_lists_of_any_records_in_any_order(name: str, policy: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    damaged = data.draw(st.sets(st.integers(0, N - 1), max_size=6))
    wanted = data.draw(st.lists(st.integers(-N, N - 1), max_size=40))
    lost = kind.lost(damaged)
    with anyrecord.open(file_of(kind, damaged), format=kind.format, on_error=POLICIES[policy]) as records:
        numbers = [index % N for index in wanted]
        want = expected(numbers, lost, policy)
        assert records[wanted] == want
        assert records.__getitems__(wanted) == want
        assert records.read_packed(wanted).tolist() == want
        assert records.map(bytes.upper)[wanted] == [record.upper() for record in want]
        gaps = [next(iter(expected([number], lost, policy)), None) for number in numbers]
        assert records._getitems(wanted) == gaps
        assert records.map(len)._getitems(wanted) == [None if gap is None else len(gap) for gap in gaps]
        assert {skipped.index for skipped in records.skipped} == set(numbers) & lost


@pytest.mark.parametrize("policy", ["raise", *POLICIES])
@pytest.mark.parametrize("name", KINDS)
def test_one_record_by_its_number_always_raises(name: str, policy: str) -> None:
    kind = KINDS[name]
    lost = kind.lost({17})
    on_error = POLICIES.get(policy, policy)
    with anyrecord.open(file_of(kind, {17}), format=kind.format, on_error=on_error) as records:
        for _ in range(2):
            for number in range(N):
                if number not in lost:
                    assert records[number] == RECORDS[number]
                    continue
                with pytest.raises(RecordError) as caught:
                    records[number]
                assert caught.value.record == number
                with pytest.raises(RecordError):
                    records.map(len)[number]
            assert records.skipped == []
            if policy != "raise":
                list(records[:10])  # knows nothing of record 17


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", KINDS)
def test_positions_are_those_of_the_undamaged_file_and_every_state_resumes(
    name: str, policy: str, tmp_path: Path
) -> None:
    kind, damaged = KINDS[name], {3, 17, 18, 40, N - 1}
    lost = kind.lost(damaged)
    with both(kind, damaged, tmp_path, on_error=POLICIES[policy]) as (good, bad):
        for view in (VIEWS["plain"], VIEWS["shuffled"], VIEWS["mixed"]):
            numbers, seen = numbers_of(view(good)), view(bad)
            states, it = [], iter(view(good))
            states.append(it.state_dict())
            for _ in it:
                states.append(it.state_dict())
            for position, state in enumerate(states):
                want = expected(numbers[position:], lost, policy)
                assert list(seen.resume(state)) == want, position
                batches = seen.batches(4, resume=state)
                assert [record for batch in batches for record in batch] == want, position
            mine = iter(seen)
            assert mine.state_dict() == states[0]
            for record in mine:
                position = mine.state_dict()["position"]
                assert mine.state_dict() == states[position]
                assert [record] == expected([numbers[position - 1]], lost, policy)
                assert mine.__length_hint__() == len(numbers) - position
            assert mine.state_dict() == states[-1]
            batched = iter(seen.batches(7))
            for _ in batched:
                assert batched.state_dict() == states[batched.state_dict()["position"]]
                assert batched.state_dict()["position"] in {*range(7, len(numbers), 7), len(numbers)}


@pytest.mark.parametrize("name", ["ffrecord", "array_record-brotli-groups"])
def test_index_and_notes_of_functions_count_damaged_records(name: str) -> None:
    kind = KINDS[name]
    records = anyrecord.open(file_of(kind, {3, 17}), format=kind.format, on_error="skip")
    assert records.index(RECORDS[40]) == 40
    assert records.index(RECORDS[40], 5) == 40
    assert records.map(bytes).index(RECORDS[40], 20, 50) == 40

    def refuse(record: bytes) -> bytes:
        if record == RECORDS[40]:
            raise KeyError("mine")
        return record

    for read in (
        lambda mapped: list(mapped),
        lambda mapped: mapped[range(N)],
        lambda mapped: mapped[range(-N, 0)],
        lambda mapped: mapped._getitems(range(N)),
        lambda mapped: list(mapped.batches(25)),
        lambda mapped: list(reversed(mapped)),
        lambda mapped: anyrecord.convert(mapped, "out.ffr"),
        lambda mapped: anyrecord.convert(records, "out.ffr", map=refuse),
    ):
        with pytest.raises(KeyError, match="mine") as caught:
            read(records.map(refuse))
        assert any("record 40 of <bytes>" in note for note in caught.value.__notes__)


def test_read_into_puts_replacements_in_place_and_never_leaves_a_place_out() -> None:
    for kind in KINDS.values():
        data, lost = file_of(kind, {17}), kind.lost({17})
        wanted = [16, 17, 50, 17, 3]
        for policy in ("replace", "function"):
            records = anyrecord.open(data, format=kind.format, on_error=POLICIES[policy])
            out = bytearray(100_000)
            offsets = records.read_into(out, wanted)
            assert [bytes(out[a:b]) for a, b in itertools.pairwise(offsets)] == expected(wanted, lost, policy)
            with pytest.raises(ValueError, match="too small"):
                records.read_into(bytearray(5), wanted)
        records = anyrecord.open(data, format=kind.format, on_error="skip")
        with pytest.raises(RecordError):
            records.read_into(bytearray(100_000), wanted)
        assert len(records.read_into(bytearray(100_000), [50, 3])) == 3
        assert records.skipped == []


def test_several_files_count_on_and_name_their_own_records(tmp_path: Path) -> None:
    kind = KINDS["ffrecord"]
    for name, damaged in (("a.ffr", {N - 1}), ("b.ffr", {0, 1}), ("c.ffr", {N - 1})):
        (tmp_path / name).write_bytes(file_of(kind, damaged))
    records = anyrecord.open(f"{tmp_path}/*.ffr", on_error="replace")
    found = list(records)
    assert [(Path(skipped.path).name, skipped.record, skipped.index) for skipped in records.skipped] == [
        ("a.ffr", N - 1, N - 1),
        ("b.ffr", 0, N),
        ("b.ffr", 1, N + 1),
        ("c.ffr", N - 1, 3 * N - 1),
    ]
    assert found[N - 1 : N + 2] == [RECORDS[2]] * 3
    assert found[-1] == RECORDS[0]
    part = anyrecord.open(f"{tmp_path / 'a.ffr'}[50:60]", on_error="replace")  # the range is the source
    assert part[[9]] == [RECORDS[50]]
    assert [(skipped.record, skipped.index) for skipped in part.skipped] == [(N - 1, 9)]


def test_a_neighbour_is_the_same_in_every_view_and_combination(tmp_path: Path) -> None:
    kind = KINDS["array_record-none-groups"]
    lost = {"a": kind.lost({N - 1, 8}), "b": kind.lost({N - 1, 0})}
    (tmp_path / "a").write_bytes(file_of(kind, lost["a"]))
    (tmp_path / "b").write_bytes(file_of(kind, lost["b"]))
    a, b = (anyrecord.open(tmp_path / name, on_error="replace") for name in "ab")
    in_a, in_b = ([expected([number], lost[name], "replace")[0] for number in range(N)] for name in "ab")
    together = a + b
    assert list(together) == [*in_a, *in_b]
    # Of its own source, not the next one that can be read in the other source.
    assert together[[N - 1, 2 * N - 1]] == [RECORDS[0], RECORDS[7]]
    mixed = anyrecord.mix([a, b.shuffle(1)], [1, 3], seed=2, until="all")
    # The same mixture of undamaged files, whose records say which file they are of.
    for name in "ab":
        with anyrecord.create(tmp_path / f"{name}.ffr") as out:
            out.write_many(b"%s%d" % (name.encode(), number) for number in range(N))
    plain = [anyrecord.open(tmp_path / f"{name}.ffr") for name in "ab"]
    order = anyrecord.mix([plain[0], plain[1].shuffle(1)], [1, 3], seed=2, until="all")
    assert list(mixed) == [(in_a if record[:1] == b"a" else in_b)[int(record[1:])] for record in order]
    assert (together + together[:5])[[N - 1, 2 * N - 1, -1]] == [RECORDS[0], RECORDS[7], in_a[4]]


def test_views_share_what_was_met_and_separate_sources_do_not() -> None:
    data = file_of(KINDS["ffrecord"], {5, 50})
    records, other = (anyrecord.open(data, on_error="skip") for _ in range(2))
    list(records[:20])
    views = [records, records.shuffle(1), records[3:], records + records[:1], records.map(len)]
    assert all([skipped.record for skipped in view.skipped] == [5] for view in views)  # type: ignore[attr-defined]
    list(records.shuffle(1) + records)
    assert [skipped.record for skipped in records.skipped] == [5, 50]
    joined = records + other
    assert joined.skipped == []
    list(joined)
    assert [skipped.index for skipped in joined.skipped] == [5, 50, N + 5, N + 50]
    assert other.skipped == []
    with pytest.raises(ValueError, match="different options"):
        _ = records + anyrecord.open(data)
    with pytest.raises(ValueError, match="different options"):
        anyrecord.mix([records, anyrecord.open(data, on_error="skip", max_errors=1)], [1, 1])


def test_random_damage_everywhere_gives_right_records_or_none(tmp_path: Path) -> None:
    """Any byte of any file: what is delivered is a record of the file, at its own position."""
    source = random.Random(5)
    for kind in KINDS.values():
        data = file_of(kind)
        for _ in range(60):
            at = source.randrange(len(data))
            harmed = data[:at] + bytes([data[at] ^ 1 << source.randrange(8)]) + data[at + 1 :]
            try:
                records = anyrecord.open(harmed, format=kind.format, on_error="skip")
            except RecordError:
                continue
            it = iter(records)
            for record in it:
                assert record == RECORDS[it.state_dict()["position"] - 1]
            assert len({skipped.index for skipped in records.skipped}) == len(records.skipped) <= kind.per_chunk


def test_warnings_name_the_file_and_the_record_once() -> None:
    for kind in KINDS.values():
        records = anyrecord.open(file_of(kind, {8, 40}), format=kind.format, on_error="skip")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                list(records)
                records[[8, 40]]
                list(records.shuffle(1))
        assert [warning.category for warning in caught] == [DamageWarning] * 2
        first, second = (str(warning.message) for warning in caught)
        begin, end = min(kind.lost({8})), max(kind.lost({8}))
        assert first.startswith(f"record {begin} of <bytes> is damaged and was left out: ")
        assert second.startswith(f"record {min(kind.lost({40}))} of <bytes>")
        assert (f"records {begin} to {end} of the file" in first) == (kind.per_chunk > 1)
        assert caught[0].filename == __file__
