"""`read_packed`: many records in one block of memory, the same ones as in a list."""

from __future__ import annotations

import copy
import gc
import pickle
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import LimitError, Limits, Packed, Records
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import turn

from conformance.formats import CASES, Case
from conformance.storages import RECORDS, Stored, write

N = len(RECORDS)
INDICES: dict[str, Any] = {
    "none": [],
    "one": [5],
    "repeated": [5, 0, 16, 5, N - 1, 1, -2],
    "empty records": [0, 0, -1],
    "all": range(N),
    "backwards": range(N - 1, -1, -1),
    "negative range": range(-1, -N, -3),
    "slice": slice(3, -3),
    "slice backwards": slice(None, None, -2),
    "empty slice": slice(9, 3),
    "tuple": (3, 1, 2),
    "iterator": None,
    "int64": np.array([7, 3, -1]),
    "uint8": np.array([7, 3], np.uint8),
    "numpy integers": [np.int16(4), np.uint64(2)],
    "array": array("i", [1, -1, 1]),
}


def expected(indices: Any) -> list[bytes]:
    return list(RECORDS[indices]) if isinstance(indices, slice) else [RECORDS[int(i)] for i in indices]


def test_it_holds_the_records_of_a_list_in_the_order_asked_for(stored: Stored) -> None:
    for name in INDICES:
        with turn(name), stored.opened() as records:
            indices = INDICES[name]
            wanted = [RECORDS[2], RECORDS[16]] if name == "iterator" else expected(indices)
            packed = records.read_packed(iter([2, 16]) if name == "iterator" else indices)
            assert packed.tolist() == wanted
            data, offsets = packed
            assert (data.format, data.readonly, data.nbytes) == ("B", False, sum(map(len, wanted)))
            assert (offsets.typecode, offsets[0], len(offsets)) == ("q", 0, len(wanted) + 1)
            assert packed.num_records == len(wanted)
            assert [bytes(data[offsets[i] : offsets[i + 1]]) for i in range(len(wanted))] == wanted
            assert [bytes(packed.record(i)) for i in range(len(wanted))] == wanted
            assert bytes(packed) == b"".join(wanted)


VIEWS: dict[str, Callable[[Records], Records]] = {
    "plain": lambda records: records,
    "slice": lambda records: records[3:30:2],
    "backwards": lambda records: records[::-1],
    "shuffled": lambda records: records.shuffle(3, 1),
    "shard": lambda records: records.shuffle(1).shard(1, of=3),
    "concat": lambda records: records[20:] + records.shuffle(2),
    "mixed": lambda records: anyrecord.mix([records[:9], records[9:].shuffle(1)], [1, 2], seed=3),
}


def test_views_are_packed_in_their_own_order(stored: Stored) -> None:
    for name, view in VIEWS.items():
        with turn(name), stored.opened() as records:
            seen = view(records)
            assert seen.read_packed(slice(None)).tolist() == list(seen)
            assert seen.read_packed([1, -1, 1]).tolist() == seen[[1, -1, 1]]


@pytest.fixture(scope="module", params=CASES, ids=str)
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """More records than are planned at once."""
    case: Case = request.param
    path = tmp_path_factory.mktemp("many") / f"many{case.suffix}"
    write(path, (b"%d " % i * (i % 23) for i in range(10_000)), case)
    return anyrecord.open(path, cache_bytes=30_000)  # some chunks are in the cache, and some are not


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_indices_give_what_a_list_gives(many: Records, data: st.DataObject) -> None:
    index = st.integers(-len(many), len(many) - 1)
    few = st.lists(index, max_size=200)
    run = st.builds(lambda start, count: range(start, min(start + count, len(many))), st.integers(0, 9999), index)
    part = st.builds(slice, index | st.none(), index | st.none(), st.sampled_from([None, 1, 2, -1, -7]))
    indices = data.draw(few | run | part)
    assert many.read_packed(indices).tolist() == list(many[indices])


def test_all_of_many_records_are_packed(many: Records) -> None:
    wanted = list(many)
    assert many.read_packed(range(len(many))).tolist() == wanted
    order = np.random.default_rng(1).permutation(len(many))
    assert many.read_packed(order).tolist() == [wanted[i] for i in order]


SIZES = [1, 7, N, 1000]


def test_packed_batches_are_the_lists_packed(stored: Stored) -> None:
    for size in SIZES:
        with turn(size), stored.opened() as records:
            for drop_last in (False, True):
                lists = records.batches(size, drop_last=drop_last)
                packed = records.batches(size, drop_last=drop_last, packed=True)
                assert len(packed) == len(lists)
                assert [batch.tolist() for batch in packed] == list(lists)
                assert all(isinstance(batch, Packed) for batch in packed)


def test_a_state_of_packed_batches_continues_lists_and_back(records: Records) -> None:
    view = records.shuffle(5)
    ahead = iter(view.batches(4, packed=True))
    begin = [record for _ in range(3) for record in next(ahead).tolist()]
    state = ahead.state_dict()
    assert begin + [record for batch in view.batches(7, resume=state) for record in batch] == list(view)
    rest = iter(view.batches(5, packed=True))
    rest.load_state_dict(state)
    assert begin + [record for batch in rest for record in batch.tolist()] == list(view)
    assert begin + list(view.resume(state)) == list(view)


def test_results_of_a_function_cannot_be_packed(records: Records) -> None:
    mapped = records.map(len)
    with pytest.raises(TypeError, match="before map"):
        mapped.batches(2, packed=True)  # type: ignore[arg-type]
    assert not hasattr(mapped, "read_packed")


OUT_OF_RANGE: list[Any] = [[N], [-N - 1], [0, N], range(N + 1), np.array([N])]


def test_a_number_out_of_range_is_an_index_error(records: Records) -> None:
    for wrong in OUT_OF_RANGE:
        with turn(wrong), pytest.raises(IndexError, match="out of range"):
            records.read_packed(wrong)


NO_NUMBERS: list[Any] = ["0", b"0", None, 5, 1.5, ["0"], [1.5], [True], np.ones(3, bool)]


def test_what_is_no_list_of_numbers_is_a_type_error(records: Records) -> None:
    for wrong in NO_NUMBERS:
        with turn(wrong), pytest.raises(TypeError):
            records.read_packed(wrong)


def test_a_record_is_taken_by_any_integer_and_only_from_the_batch(records: Records) -> None:
    packed = records.read_packed([2, 16, 3])
    assert bytes(packed.record(-1)) == bytes(packed.record(np.int8(2))) == RECORDS[3]
    for wrong in (3, -4, 2**70):
        with pytest.raises(IndexError, match="3 records"):
            packed.record(wrong)
    for kind in ("1", None, slice(1), 1.0):
        with pytest.raises(TypeError):
            packed.record(kind)  # type: ignore[arg-type]


def test_it_is_no_sequence(records: Records) -> None:
    packed: Any = records.read_packed([1, 2, 3])
    with pytest.raises(TypeError):
        len(packed)
    with pytest.raises(TypeError):
        packed[0]
    assert len(list(packed)) == 2, "it unpacks into data and offsets"
    assert packed.offsets is packed.offsets
    assert repr(packed) == f"<anyrecord.Packed: 3 records, {len(bytes(packed))} bytes>"


def test_views_keep_the_memory_when_everything_else_is_gone(records: Records) -> None:
    packed = records.read_packed([16, 17])
    views = [packed.data, memoryview(packed), packed.record(0), packed.numpy()[0], np.from_dlpack(packed)]
    records.close()
    del packed
    gc.collect()
    others = [bytearray(b"\xaa" * 70_005) for _ in range(50)]  # they would take its memory, if it were free
    for view in views:
        assert bytes(view).startswith(RECORDS[16])
    assert len(others) == 50


def test_memory_is_writable_and_belongs_to_one_batch(records: Records) -> None:
    first, second = records.read_packed([16]), records.read_packed([16])
    first.data[:5] = b"XXXXX"
    assert bytes(first.record(0)[:5]) == b"XXXXX"
    assert second.tolist() == [RECORDS[16]] == records[[16]]


DUPLICATES: list[Callable[[Packed], Packed]] = [
    copy.copy,
    copy.deepcopy,
    lambda packed: pickle.loads(pickle.dumps(packed)),
]


def test_a_copy_or_a_pickle_has_memory_of_its_own(records: Records) -> None:
    for duplicate in DUPLICATES:
        with turn(duplicate):
            for indices in ([], [0], [16, 2, 2]):
                packed = records.read_packed(indices)
                copied = duplicate(packed)
                assert (type(copied), copied.tolist(), copied.offsets) == (Packed, packed.tolist(), packed.offsets)
                packed.data[:] = bytes(packed.data.nbytes)
                assert copied.tolist() == records[indices]


def test_a_pickle_that_was_changed_is_refused(records: Records) -> None:
    make, (kind, data, offsets) = records.read_packed([16, 2]).__reduce__()
    for wrong in (b"", offsets[8:], offsets[:-8], offsets[:8] + offsets[-8:] + offsets[8:16]):
        with pytest.raises(ValueError, match="packed batch"):
            make(kind, data, wrong)


def test_numpy_shares_the_memory(records: Records) -> None:
    packed = records.read_packed([16, 2])
    data, offsets = packed.numpy()
    assert (data.dtype.name, offsets.dtype.name, data.flags.writeable) == ("uint8", "int64", True)
    assert data.ctypes.data == np.from_dlpack(packed).ctypes.data == np.asarray(packed).ctypes.data
    assert data.ctypes.data % 256 == 0
    assert list(offsets) == list(packed.offsets)
    empty, offsets = records.read_packed([]).numpy()
    assert (empty.size, empty.dtype.name, list(offsets)) == (0, "uint8", [0])


def test_dlpack_follows_the_standard(records: Records) -> None:
    packed = records.read_packed([16, 2])
    assert packed.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(packed.__dlpack__())
    assert '"dltensor"' in repr(packed.__dlpack__(max_version=(0, 8)))
    for version in ((1, 0), (1, 3), (2, 0)):
        assert '"dltensor_versioned"' in repr(packed.__dlpack__(max_version=version))
    assert packed.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="CPU"):
        packed.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        packed.__dlpack__(stream=1)  # type: ignore[arg-type]
    shared, copied = np.from_dlpack(packed), np.from_dlpack(packed, copy=True)
    packed.data[:4] = b"wxyz"
    assert bytes(shared[:4]) == b"wxyz"
    assert bytes(copied[:4]) == RECORDS[16][:4]
    assert np.from_dlpack(records.read_packed([])).shape == (0,)


def test_arrow_capsules_are_made_and_freed_without_a_consumer(records: Records) -> None:
    packed = records.read_packed([16, 2])
    for _ in range(3):
        schema, data = packed.__arrow_c_array__()
        assert '"arrow_schema"' in repr(schema)
        assert '"arrow_array"' in repr(data)
        assert '"arrow_schema"' in repr(packed.__arrow_c_schema__())
        assert '"arrow_array_stream"' in repr(packed.__arrow_c_stream__(schema))
        packed.__arrow_c_array__(schema)
    with pytest.raises(TypeError, match="Arrow schema"):
        packed.__arrow_c_array__(5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_batch_above_the_limit_is_refused_before_it_is_allocated(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"data{case.suffix}"
    write(path, [b"a" * 1000] * 5000, case)
    limit = 1_200_000 if case.variant.sizes_known else 20_000_000
    with anyrecord.open(path, limits=Limits(decoded_bytes=limit), cache_bytes=0) as records:
        few = range(1000) if case.variant.sizes_known else range(10)
        assert records.read_packed(few).tolist() == [b"a" * 1000] * len(few)
        for count in (2000, 5000):
            indices = range(count) if case.variant.sizes_known else [1] * 30_000
            with pytest.raises(LimitError, match="decoded_bytes"):
                records.read_packed(indices)
