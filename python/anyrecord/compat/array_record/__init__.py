"""ArrayRecord's Python interface, name for name, on top of `anyrecord`.

    array_record.python.array_record_module            ArrayRecordWriter, ArrayRecordReader
    array_record.python.array_record_data_source       ArrayRecordDataSource, which Grain and TFDS read from
    array_record.beam                                  sink, DoFn and pipelines for Apache Beam

Change `from array_record.python import ...` to `from anyrecord.compat.array_record.python import ...`. Or leave the
code unchanged and call `anyrecord.compat.install("array_record")` first.
"""

from typing import TYPE_CHECKING

from anyrecord.compat._submodules import imported_when_used

if TYPE_CHECKING:
    from anyrecord.compat.array_record import beam as beam
    from anyrecord.compat.array_record import python as python

__getattr__, __dir__ = imported_when_used(__name__, "beam", "python")
