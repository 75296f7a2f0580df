"""ArrayRecord where numbers no longer fit in 32 bits, and tables of millions of chunks in little memory."""

from __future__ import annotations

from pathlib import Path

import anyrecord
import pytest
from children import python

CHUNKS = 2_000_000


def test_a_record_over_2_gib_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "a.array_record"
    size = 2**31 + 1
    record = b"begin" + bytes(size - 8) + b"end"
    with anyrecord.create(path, codec="zstd", level=1, durable=False) as out:
        out.write_many([b"before", record, b"after"])
    records = anyrecord.open(path)
    assert (records[0], records[2]) == (b"before", b"after")
    assert records[1] == record
    path.unlink()


@pytest.fixture(scope="module")
def many_chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.array_record"
    with anyrecord.create(path, codec="none", durable=False) as out:
        out.write_many(b"" for _ in range(CHUNKS))
    return path


# Mapped pages would count as memory of the process, so the file is read by plain reads.
MEASURE = """if True:
    import anyrecord
    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    before = peak()
    records = anyrecord.open({path!r}, table={table!r}, io="plain")
    grown = peak() - before
    assert len(records) == {count}
    assert records[[0, {count} - 1, {count} // 2]] == [b"", b"", b""]
    print(grown)
"""


@pytest.mark.parametrize(("table", "bytes_a_chunk"), [("memory", 16), ("disk", 0)])
def test_a_table_takes_at_most_16_bytes_a_chunk_and_none_on_disk(
    many_chunks: Path, table: str, bytes_a_chunk: int
) -> None:
    grown = int(python(MEASURE.format(path=str(many_chunks), table=table, count=CHUNKS)))
    # What opening any file takes: buffers of a few MiB.
    assert grown <= bytes_a_chunk * CHUNKS + (8 << 20)
