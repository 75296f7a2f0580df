"""Random records to the memory of a GPU through `Loader(device="cuda")`, beside a plain copy from pinned memory.

Needs a GPU, PyTorch and nothing else. Checksums are on, and the files are in the page cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyrecord

from benches import machine
from benches.goals import GPU_SHARE
from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show

DEVICE = "cuda"
SIZES = {"4 KB": 4_000, "100 KB": 100_000, "1 MB": 1_000_000}
FORMATS: dict[str, dict[str, Any]] = {".ffr": {}, ".array_record": {"codec": "none", "group_size": 1}}
NAMES = {".ffr": "FFRecord", ".array_record": "ArrayRecord"}
TOTAL_BYTES = 4_000_000_000
"""Of a file. It is larger than any cache of a processor."""
EPOCH_BYTES = 12_000_000_000
"""Of an epoch, which has each record several times."""
BATCH_BYTES = 16_000_000
"""About so large are batches in the rows that count."""
OTHER_BATCHES = (1_000_000, 4_000_000, 64_000_000)
OTHER_THREADS = (2, 4, 8)
ALONE_THREADS = 4
"""So many threads read at once in the rows without a GPU. The core shares all cores among them."""
BUFFERS = 3
"""Pinned buffers of the plain copy."""
COPIED_BYTES = 10_000_000_000


def main(run: Run) -> dict[str, Any] | None:
    """Prints GB/s and the share of the plain copy. Returns them by size and format."""
    if find_spec("torch") is None:
        print("PyTorch is missing: pip install torch\n")
        return None
    import torch

    if not torch.cuda.is_available():
        print("there is no GPU that PyTorch can use: this benchmark needs one\n")
        return None
    total = TOTAL_BYTES // (10 if run.quick else 1)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {machine.cores()} cores")
    print("random records, checksums on, files in the page cache; packed batches in device memory")
    print("epoch: a whole one; steady: without its first fifth")
    print("reading alone: into pinned memory, without a GPU; the last row of it without checksums, for comparison")
    print(f"best of {run.rounds} rounds; the plain copy takes turns with the rest\n")
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__), "sizes": {}}
    for name, size in SIZES.items():
        if run.only in name:
            found["sizes"][name] = measure(run, name, size, total)
    return found


def measure(run: Run, name: str, size: int, total: int) -> dict[str, Any]:
    """The plain copy, and for each format the figures with default options and others."""
    bare: dict[str, float] = {}
    formats: dict[str, dict[str, Any]] = {}
    for suffix, options in FORMATS.items():
        path = run.folder / f"gpu{suffix}"
        write(path, size, total // size, options)
        with anyrecord.open(path) as records, anyrecord.open(path, checksums=False) as unchecked:
            check(records)
            repeated = anyrecord.concat([records] * (EPOCH_BYTES // TOTAL_BYTES))
            settings: list[tuple[int | None, int]] = [(None, BATCH_BYTES)]
            if not run.quick:
                settings += [(None, batch) for batch in OTHER_BATCHES]
                settings += [(threads, BATCH_BYTES) for threads in threads_to_try()]
            rows: dict[str, dict[str, float]] = {}
            for turn in range(run.rounds):
                # The others have one round.
                of_turn = settings if turn == 0 else settings[:1]
                keep_best(bare, {"copy": plain_copy()})
                for threads, batch_bytes in of_turn:
                    row = rows.setdefault(setting(threads, batch_bytes), {})
                    keep_best(row, epoch(repeated, max(1, batch_bytes // size), threads, turn))
                for how, read in {ALONE: records, UNCHECKED: unchecked}.items():
                    rate = reading_alone(read, max(1, BATCH_BYTES // size), total, turn)
                    keep_best(rows.setdefault(how, {}), {"epoch": rate, "steady": rate})
        path.unlink()
        formats[NAMES[suffix]] = rows
    found = {"bare": bare["copy"], "formats": formats}
    report(name, found)
    return found


def threads_to_try() -> list[int]:
    return [threads for threads in OTHER_THREADS if threads <= machine.cores()]


def setting(threads: int | None, batch_bytes: int) -> str:
    return f"{threads or 'default'} threads, batches of {batch_bytes / 1e6:.0f} MB"


DEFAULT = setting(None, BATCH_BYTES)
ALONE = "reading alone"
UNCHECKED = "reading alone, no checksums"


def keep_best(best: dict[str, float], row: dict[str, float]) -> None:
    for what, figure in row.items():
        best[what] = max(figure, best.get(what, 0.0))


def write(path: Path, size: int, count: int, options: dict[str, Any]) -> None:
    chance = random.Random(5)
    pool = chance.randbytes(8_000_000 + size)
    starts = (chance.randrange(len(pool) - size) for _ in range(count))
    with anyrecord.create(path, durable=False, num_records=count, **options) as out:
        out.write_many(pool[at : at + size] for at in starts)


def loader(records: anyrecord.Records, batch: int, threads: int | None = None) -> Any:
    from anyrecord.torch import Loader

    return Loader(records, batch, shuffle=True, collate="packed", device=DEVICE, threads=threads)


def check(records: anyrecord.Records) -> None:
    """Compares a batch on the device with one that is not. Then reads the whole file, so that it is warm."""
    from anyrecord.torch import Loader

    few = 64
    expected: Any = next(iter(Loader(records, few, shuffle=True)))
    data, offsets = next(iter(loader(records, few)))
    if data.device.type != DEVICE:
        raise SystemExit(f"a batch is on {data.device}")
    if data.cpu().numpy().tobytes() != b"".join(expected) or len(offsets) != few + 1:
        raise SystemExit("a batch is wrong on the device")
    for _ in records.batches(64, packed=True):
        pass


def epoch(records: anyrecord.Records, batch: int, threads: int | None, number: int) -> dict[str, float]:
    """GB/s of an epoch, and of what comes after its first fifth."""
    import torch

    made = loader(records, batch, threads)
    made.set_epoch(number)
    fifth = max(1, len(made) // 5)
    torch.cuda.synchronize()
    received, before, begin = 0, 0, time.perf_counter()
    middle = begin
    for turn, (data, _) in enumerate(made, 1):
        received += data.nbytes
        if turn == fifth:
            torch.cuda.synchronize()
            middle, before = time.perf_counter(), received
    torch.cuda.synchronize()
    end = time.perf_counter()
    return {"epoch": received / (end - begin) / 1e9, "steady": (received - before) / (end - middle) / 1e9}


def reading_alone(records: anyrecord.Records, batch: int, total: int, number: int) -> float:
    """GB/s of random records into pinned memory, read by several threads."""
    import torch

    order = records.shuffle(seed=number)
    starts = iter(range(0, len(order) - batch + 1, batch))
    size = 2 * batch * total // len(records)
    buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=DEVICE == "cuda").numpy() for _ in range(ALONE_THREADS)]

    def read(buffer: Any) -> int:
        count = 0
        for start in starts:  # shared by the threads, which hold the interpreter's lock while they take one
            count += order.read_into(buffer, range(start, start + batch))[-1]
        return count

    begin = time.perf_counter()
    with ThreadPoolExecutor(ALONE_THREADS) as pool:
        received = sum(pool.map(read, buffers))
    return received / (time.perf_counter() - begin) / 1e9


def plain_copy() -> float:
    """GB/s from pinned buffers to the device, one copy after the other."""
    import torch

    batch_bytes = BATCH_BYTES
    buffers = [torch.zeros(batch_bytes, dtype=torch.uint8, pin_memory=DEVICE == "cuda") for _ in range(BUFFERS)]
    targets = [torch.empty(batch_bytes, dtype=torch.uint8, device=DEVICE) for _ in range(BUFFERS)]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for turn in range(COPIED_BYTES // batch_bytes):
        targets[turn % BUFFERS].copy_(buffers[turn % BUFFERS], non_blocking=True)
    torch.cuda.synchronize()
    return COPIED_BYTES // batch_bytes * batch_bytes / (time.perf_counter() - begin) / 1e9


def report(name: str, found: dict[str, Any]) -> None:
    bare = found["bare"]
    rows = [("plain copy, pinned", [number(bare), number(bare), "100 %"])]
    for format, settings in found["formats"].items():
        for how, row in settings.items():
            share = f"{row['steady'] / bare:.0%}"
            rows.append((f"{format}, {how}", [number(row["epoch"]), number(row["steady"]), share]))
    show(f"records of {name}, GB/s to the device", ["epoch", "steady", "steady, of the copy"], rows)
    for format, settings in found["formats"].items():
        share, least = settings[DEFAULT]["steady"] / bare, GPU_SHARE[name]
        verdict = "reached" if share >= least else "missed,"
        print(f"  {format}: goal {least:.0%} of the copy: {verdict} {share:.0%}")
    print(flush=True)


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for size, of_size in found["sizes"].items():
        for format, settings in of_size["formats"].items():
            share = settings[DEFAULT]["steady"] / of_size["bare"]
            yield Outcome(f"{size}, {format}: of a plain copy", share, GPU_SHARE[size], unit="%")
