"""ArrayRecord's Python interface, name for name, on top of `anyrecord`.

    array_record.python.array_record_module            ArrayRecordWriter, ArrayRecordReader
    array_record.python.array_record_data_source       ArrayRecordDataSource, which Grain and TFDS read from

Change `from array_record.python import ...` to `from anyrecord.compat.array_record.python import ...`. Or leave the
code unchanged and call `anyrecord.compat.install("array_record")` first. There are no Beam modules here: code that
imports `array_record.beam` gets the original modules, with and without `install`.
"""

from typing import TYPE_CHECKING

from anyrecord.compat._submodules import imported_when_used

if TYPE_CHECKING:
    from anyrecord.compat.array_record import python as python

__getattr__, __dir__ = imported_when_used(__name__, "python")
