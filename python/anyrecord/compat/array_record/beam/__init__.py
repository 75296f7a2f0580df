"""ArrayRecord's modules for Apache Beam, name for name, on top of `anyrecord`.

    array_record.beam.arrayrecordio    WriteToArrayRecord, which writes to every file system of Beam
    array_record.beam.dofns            ConvertToArrayRecordGCS, which writes one file and uploads it
    array_record.beam.pipelines        TFRecord to ArrayRecord; also `python -m array_record.beam.pipelines`
    array_record.beam.options          the command line of the pipelines
    array_record.beam.example          the examples of the documentation; needs TensorFlow
    array_record.beam.testdata         the data of these examples
    array_record.beam.demo             examples to TFRecord to ArrayRecord

Importing these modules reads no command line. Only `example` and what writes its examples need TensorFlow.
"""

from typing import TYPE_CHECKING

from anyrecord.compat._submodules import imported_when_used

try:
    import apache_beam as beam
except ImportError as error:
    text = "anyrecord.compat.array_record.beam needs Apache Beam: pip install 'anyrecord[beam]'"
    raise ModuleNotFoundError(text, name="apache_beam") from error

if TYPE_CHECKING:
    from anyrecord.compat.array_record.beam import arrayrecordio as arrayrecordio
    from anyrecord.compat.array_record.beam import demo as demo
    from anyrecord.compat.array_record.beam import dofns as dofns
    from anyrecord.compat.array_record.beam import example as example
    from anyrecord.compat.array_record.beam import options as options
    from anyrecord.compat.array_record.beam import pipelines as pipelines
    from anyrecord.compat.array_record.beam import testdata as testdata

__all__ = ["beam"]

__getattr__, __dir__ = imported_when_used(
    __name__, "arrayrecordio", "demo", "dofns", "example", "options", "pipelines", "testdata"
)
