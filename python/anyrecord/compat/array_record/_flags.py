"""The command-line flags that the original defines. They are accepted and have no effect."""

from __future__ import annotations

__all__ = ["define"]

_FLAGS = {
    "grain_num_threads_computing_num_records": 64,
    "grain_num_threads_fetching_records": 64,
    "array_record_reader_pool_size": None,
}


def define() -> None:
    """Defines the flags, if absl is there. Only for a process in which the original is not imported: it would
    define them, too, which absl refuses."""
    try:
        from absl import flags
    except ImportError:
        return
    for name, default in _FLAGS.items():
        if name not in flags.FLAGS:
            flags.DEFINE_integer(name, default, "Accepted for the sake of old command lines; has no effect.")
