"""The command-line flags that the original defines. They are accepted and have no effect."""

from __future__ import annotations

__all__ = ["define"]

_FLAGS = {
    "grain_num_threads_computing_num_records": 64,
    "grain_num_threads_fetching_records": 64,
    "array_record_reader_pool_size": None,
}


def define() -> None:
    """Defines the flags if absl is installed.

    Call it only in a process that does not import the original. The original defines the same flags, and absl refuses
    to define a flag twice.
    """
    try:
        from absl import flags
    except ImportError:
        return
    for name, default in _FLAGS.items():
        if name not in flags.FLAGS:
            flags.DEFINE_integer(name, default, "Accepted for old command lines. Has no effect.")
