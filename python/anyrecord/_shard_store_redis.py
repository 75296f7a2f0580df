"""Shards in Redis: a client of the package `redis`, also of a cluster or behind sentinels.

Commands are sent on a connection of the client's pool, past the client itself. A client repeats a command after a lost
answer, and then a `compare_set` that did set the value would say that it did not.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = ["RedisStore"]

# All are scripts: a read must not come from a replica or from a cache of the client. Each has one key, for clusters.
_GET = "return redis.call('GET', KEYS[1])"
_CREATE = "return redis.call('SET', KEYS[1], ARGV[1], 'NX') and 1 or 0"
_COMPARE_SET = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


class RedisStore:
    """The adapter for a client of Redis."""

    def __init__(self, client: Any) -> None:
        kinds = {(base.__module__, base.__name__) for base in type(client).__mro__}
        is_known = {("redis.client", "Redis"), ("redis.cluster", "RedisCluster")} & kinds
        if not is_known or hasattr(client, "command_stack"):  # a pipeline has one
            raise TypeError(
                f"a {type(client).__module__}.{type(client).__name__} cannot keep shards: "
                "pass a redis.Redis or a redis.RedisCluster"
            )
        self._client = client

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None if there is none."""
        found: bytes | None = self._run(_GET, key)
        return found

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Sets the value if it is `expected` now; None means that there is none yet. Returns whether it did."""
        if expected is None:
            return bool(self._run(_CREATE, key, value))
        return bool(self._run(_COMPARE_SET, key, expected, value))

    def _run(self, script: str, key: str, *arguments: bytes) -> Any:
        from redis import exceptions

        unreachable = (
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.ReadOnlyError,
            exceptions.AskError,
            exceptions.ClusterError,
            exceptions.RedisClusterException,
        )
        try:
            try:
                return self._once(script, key, *arguments)
            except exceptions.MovedError:  # another node of the cluster has the key now; nothing was done
                self._client.nodes_manager.initialize()
                return self._once(script, key, *arguments)
        except unreachable as error:
            if hasattr(self._client, "nodes_manager"):
                with suppress(exceptions.RedisError, exceptions.RedisClusterException):
                    self._client.nodes_manager.initialize()
            raise ConnectionError(f"Redis does not answer: {error}; is the server still running?") from error

    def _once(self, script: str, key: str, *arguments: bytes) -> Any:
        from redis import exceptions

        client = self._client
        if hasattr(client, "nodes_manager"):
            client = client.get_redis_connection(client.get_node_from_key(key))
        pool = client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command("EVAL", script, 1, key, *arguments)
            return connection.read_response(disable_decoding=True)
        except BaseException as error:
            # After an interrupt, the answer may still arrive, and the next request must not get it. And a master that
            # is one no more: a new connection finds the new one.
            if not isinstance(error, exceptions.ResponseError) or isinstance(error, exceptions.ReadOnlyError):
                connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def __reduce__(self) -> tuple[Any, ...]:
        pool = getattr(self._client, "connection_pool", None)
        given = {} if pool is None else pool.connection_kwargs
        if type(pool).__name__ not in ("ConnectionPool", "BlockingConnectionPool") or any(
            given.get(name) is not None for name in ("credential_provider", "redis_connect_func")
        ):
            raise TypeError("this client of Redis cannot be sent to another process: make it there")
        # Only settings: the client adds objects of its own.
        settings = {
            name: value
            for name, value in given.items()
            if isinstance(value, str | bytes | int | float) and not name.startswith("orig_")
        }
        return _of_settings, (type(self._client), pool.connection_class, settings)  # type: ignore[union-attr]


def _of_settings(client: Any, connection_class: Any, settings: dict[str, Any]) -> RedisStore:
    from redis import ConnectionPool

    return RedisStore(client(connection_pool=ConnectionPool(connection_class=connection_class, **settings)))
