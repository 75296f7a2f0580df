"""Writes a data set, or reads all of it, with one library. It prints its answer as a line of JSON.

python -m benches.loaders LIBRARY write|read JOB
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from typing import Any

from benches.loaders.job import Job


def main() -> None:
    library, task, text = sys.argv[1:]
    job = Job(**json.loads(text))
    module: Any = importlib.import_module(f"benches.loaders.{library}")
    answer: dict[str, Any] = {"version": module.version()}
    if task == "write":
        module.write(job)
    else:
        read = module.reader(job)
        cpu, begin = processor_seconds(), time.perf_counter()
        answer |= job.check(read())
        answer["seconds"] = time.perf_counter() - begin
        answer["cpu"] = processor_seconds() - cpu
    print(json.dumps(answer))


def processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
