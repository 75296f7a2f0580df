"""Makes the actor that keeps shards, or finds it."""

from __future__ import annotations

from typing import Any

import ray

from anyrecord._shard_store_ray import Values

__all__ = ["shard_store"]

_OURS = {"lifetime", "get_if_exists", "max_restarts", "max_task_retries", "max_concurrency"}


def shard_store(
    name: str | None = None, *, namespace: str = "anyrecord", detached: bool | None = None, **options: Any
) -> Any:
    """Returns the handle of an actor that keeps shards. Pass it to `ShardQueue`, in any task, actor or driver.

    With a `name`, the first caller makes the actor, and all others get the same one, in later jobs, too. It lives until
    `ray.kill(handle)`. So choose a name for each job.

    Without a name, or with `detached=False`, the actor ends when the process that has made it ends, or lets go of the
    handle. Make it in the driver then, and keep the handle: Ray does not count the handles of others.

    `options` are those of Ray's `ActorClass.options`, such as `resources=` to choose the node.

    The actor keeps the shards in its memory. If it dies, or its node does, requests raise `ConnectionError`. A new
    actor continues with `ShardQueue.load_state_dict`.

    >>> import anyrecord, ray
    >>> from anyrecord.ray import shard_store
    >>> _ = ray.init(include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(100))
    >>> @ray.remote
    ... def work():
    ...     records = anyrecord.open("doc.ffr")
    ...     queue = anyrecord.ShardQueue(anyrecord.ShardPlan(records, shard_records=10), shard_store("job-17"))
    ...     done = 0
    ...     while lease := queue.claim():
    ...         with lease:
    ...             done += len(records[lease.shard.slice])
    ...     return done
    >>> sum(ray.get([work.remote(), work.remote()]))
    100
    >>> ray.kill(shard_store("job-17"))
    >>> ray.shutdown()
    """
    is_detached = name is not None if detached is None else detached
    if is_detached and name is None:
        raise ValueError("a detached actor needs a name: it could not be found without one")
    for taken in _OURS & {*options}:
        raise TypeError(f"shard_store sets {taken!r} itself")
    # A restarted actor would have lost its values, and a method that is called again could be applied twice.
    options = {"num_cpus": 0, **options, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}
    if name is not None:
        options |= {"name": name, "namespace": namespace, "get_if_exists": True}
    if is_detached:
        options["lifetime"] = "detached"
    return ray.remote(Values).options(**options).remote()
