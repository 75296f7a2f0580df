"""For Apache Beam: sources that divide files by records, and sinks for every format and every store.

>>> import anyrecord, apache_beam as beam
>>> from anyrecord.beam import ReadFromRecords, WriteToRecords
>>> with anyrecord.create("words.tfrecord", overwrite=True) as out:
...     out.write_many([b"one", b"two", b"three"])
>>> with beam.Pipeline("FnApiRunner") as pipeline:
...     words = pipeline | ReadFromRecords("words.tfrecord") | beam.Map(bytes.upper)
...     _ = words | WriteToRecords("upper", file_name_suffix=".array_record", num_shards=1)
>>> list(anyrecord.open("upper-00000-of-00001.array_record"))
[b'ONE', b'TWO', b'THREE']
"""

from __future__ import annotations

try:
    import apache_beam  # noqa: F401
except ImportError as error:
    raise ImportError("anyrecord.beam needs Apache Beam: pip install 'anyrecord[beam]'") from error

from anyrecord.beam._convert import Counts, convert
from anyrecord.beam._read import ReadAllFromRecords, ReadFromRecords
from anyrecord.beam._write import WriteToRecords

__all__ = ["Counts", "ReadAllFromRecords", "ReadFromRecords", "WriteToRecords", "convert"]
