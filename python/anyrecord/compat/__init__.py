"""The interfaces of the original libraries on top of `anyrecord`, for code that was written for those libraries.

`anyrecord.compat.array_record.python...` has the names, signatures, results and exceptions of `array_record.python...`.
To migrate, change the import line. If you cannot edit the code, use one of these. They provide the same modules under
the original names:

    anyrecord.compat.install("array_record")            call it before any module imports the original
    ANYRECORD_COMPAT=array_record python train.py       does the same for a whole program
    python -m anyrecord.compat train.py                 does the same for all originals that have modules here

Child processes use the same modules, however they are started.
"""

from __future__ import annotations

from anyrecord.compat.installation import install, install_from_environment, uninstall

__all__ = ["install", "install_from_environment", "uninstall"]
