"""The modules of `array_record.python`: `array_record_module` and `array_record_data_source`."""

from typing import TYPE_CHECKING

from anyrecord.compat._submodules import imported_when_used

if TYPE_CHECKING:
    from anyrecord.compat.array_record.python import array_record_data_source as array_record_data_source
    from anyrecord.compat.array_record.python import array_record_module as array_record_module

__getattr__, __dir__ = imported_when_used(__name__, "array_record_data_source", "array_record_module")
