"""The tables of docs/codecs.md, which help to choose a codec and an access pattern, from saved results."""

from __future__ import annotations

from benches.results import Results
from benches.tables import markdown, number

READS = {"single": "one at a time", "batch": "batches of 256", "in order": "in order"}
SIZES = ("120 B", "4 KB", "100 KB")


def codecs(results: Results) -> str:
    """Each codec of ArrayRecord on records of 4 KB, one in a chunk."""
    found = results.found("codecs")["4 KB"]
    rows = []
    for name, row in found.items():
        ours, _, codec = name.partition(" ")
        if ours == "anyrecord":
            rows.append((f"`{codec}`", [number(row[what]) for what in ("size", "write_many", *READS)]))
    return markdown(["file / records", "written, MB/s", *(f"{way}, µs" for way in READS.values())], rows)


def groups(results: Results) -> str:
    """What one and 256 records in a chunk cost and save."""
    found = results.found("stores")["figures"]
    named = {"g1 none": "1 record, `none`", "g1 zstd": "1 record, `zstd`", "g256 zstd": "256 records, `zstd`"}
    rows = [
        (f"{size}: {text}", [number(found[size][f"anyrecord array {name}"][what]) for what in ("size", *READS)])
        for size in SIZES
        for name, text in named.items()
    ]
    return markdown(["file / records", *(f"{way}, µs" for way in READS.values())], rows)


def formats(results: Results) -> str:
    """The formats beside each other, uncompressed."""
    found = results.found("stores")["figures"]
    named = {
        "ffrecord": "FFRecord",
        "array g1 none": "ArrayRecord",
        "recordio none": "RecordIO",
        "tfrecord": "TFRecord",
    }
    rows = [
        (f"{size}: {text}", [number(found[size][f"anyrecord {name}"][what]) for what in ("size", "write_many", *READS)])
        for size in SIZES
        for name, text in named.items()
    ]
    return markdown(["file / records", "written, MB/s", *(f"{way}, µs" for way in READS.values())], rows)


def warm(results: Results) -> str:
    """A pass over a file that is in memory."""
    found = results.found("order")["a pass, microseconds a record"]
    named = {
        "in order": "`for batch in records.batches(256)`",
        "shuffled": "`for batch in records.shuffle(seed).batches(256)`",
        "one by one": "`for record in records.shuffle(seed)`",
    }
    return markdown(
        [f"{size}, µs a record" for size in found],
        [(text, [number(found[size][way]) for size in found]) for way, text in named.items()],
    )


def blocks(results: Results) -> str:
    """When a block shuffle pays."""
    found = results.found("order")["blocks, thousand records a second"]
    ways = ("file order", "block shuffle", "full shuffle")
    return markdown(
        [f"{way}, thousand records/s" for way in ways],
        [(name, [number(row[way]) for way in ways]) for name, row in found.items()],
    )


def cold(results: Results) -> str:
    """Random records of 4 KB that are not in memory."""
    found = results.found("cold")
    ways = ("one at a time", "one at a time, 16 threads", "batches of 256", 'batches of 256, io="direct"')
    rows = [(way, [number(found[kind][way]["microseconds"]) for kind in (".ffr", ".array_record")]) for way in ways]
    return markdown(["FFRecord, µs a record", "ArrayRecord, µs a record"], rows)
