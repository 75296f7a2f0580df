"""New files that appear whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

__all__ = ["write_new_file"]


def write_new_file(path: str, data: bytes, *, overwrite: bool) -> None:
    """Writes a file. It has a temporary name in the same folder until it is complete."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{path}: the folder {folder!r} does not exist; make it first")
    if not overwrite and os.path.lexists(path):
        raise _exists(path)
    handle, temporary = tempfile.mkstemp(prefix=".anyrecord-", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())  # as for a file that is simply opened
        _publish(temporary, path, overwrite)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _publish(temporary: str, path: str, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(temporary, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise _exists(path) from None
        except OSError:  # a file system without links
            if os.path.lexists(path):
                raise _exists(path) from None
        else:
            os.unlink(temporary)
            return
    os.replace(temporary, path)


def _exists(path: str) -> FileExistsError:
    return FileExistsError(f"{path} exists already; --overwrite replaces it")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
