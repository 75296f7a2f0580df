"""Writes a data set, or reads all of it, with one library. It prints its answer as a line of JSON.

python -m benches.libraries LIBRARY write|read|count JOB

`read` checks every sample. `count` only counts samples, so that nothing but the library takes time.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

from benches.libraries.job import Job


def main() -> None:
    library, task, text = sys.argv[1:]
    job = Job(**json.loads(text))
    module: Any = importlib.import_module(f"benches.libraries.{library}")
    answer: dict[str, Any] = {"version": module.version()}
    if task == "write":
        module.write(job)
    else:
        if job.is_local:
            prepare(job)
        read = module.reader(job)
        cpu, begin = processor_seconds(), time.perf_counter()
        batches = first_timed(read(), begin, answer)
        answer |= job.check(batches) if task == "read" else {"samples": sum(map(job.samples_in, batches))}
        answer["seconds"] = time.perf_counter() - begin
        answer["cpu"] = processor_seconds() - cpu
    print(json.dumps(answer))


def prepare(job: Job) -> None:
    """Imports what any training has. Its time and its memory are not those of a library."""
    import torch.utils.data  # noqa: F401

    if job.pictures:
        import cv2  # noqa: F401


def first_timed(batches: Iterator[Any], begin: float, answer: dict[str, Any]) -> Iterator[Any]:
    """Passes batches on, and notes when the first one came."""
    for batch in batches:
        answer.setdefault("first", time.perf_counter() - begin)
        yield batch


def processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
