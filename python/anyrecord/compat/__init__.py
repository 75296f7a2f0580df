"""The originals' own interfaces on top of `anyrecord`, for code that was written for them.

`anyrecord.compat.array_record.python...` has the names, signatures, results and exceptions of `array_record.python...`:
changing the import line is the whole migration. Code that cannot be edited gets the same modules under the original
names, in any of three ways:

    anyrecord.compat.install("array_record")            before anything imports the original
    ANYRECORD_COMPAT=array_record python train.py       the same for a whole program, whatever it imports
    python -m anyrecord.compat train.py                 the same, for all originals that there are modules for

Child processes get them, too, however they are started.
"""

from __future__ import annotations

from anyrecord.compat.installation import install, install_from_environment, uninstall

__all__ = ["install", "install_from_environment", "uninstall"]
