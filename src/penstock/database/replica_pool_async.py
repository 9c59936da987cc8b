"""A pool of connections to a standby, which runs reads at a point of the primary.

A store asks the primary for the point and passes it on. The read is sent with the check that the
standby has replayed that far, in one round trip; if it has not, both are sent again after a pause,
until `max_replica_lag` is over. See `replica.py`.
"""

from __future__ import annotations

from typing import TypeVar, cast

from psycopg.errors import InvalidSchemaName

from penstock.database.execute_async import execute
from penstock.database.interceptor import intercepted
from penstock.database.operation import Operation
from penstock.database.pool_async import AsyncPool, Connection
from penstock.database.replica import (
    ReadPoint,
    Rest,
    Wait,
    at,
    check_cluster,
    cluster,
    flush_to,
    replica_errors,
)
from penstock.errors import IncompatibleVersion, ReplicaUnavailable, WrongReplica, first_line
from penstock.loops.concurrency_async import sleep

Result = TypeVar("Result")


class AsyncReplicaPool(AsyncPool):
    """Connections to the standby of a primary. Each is checked to be one when it is opened."""

    def __init__(self, primary: AsyncPool) -> None:
        super().__init__(primary.settings.of_replica(), primary.edition, primary.interceptors)
        self.primary = primary
        self.rest = Rest()

    async def check(self) -> None:
        """Raise `WrongReplica` if the server is reachable and no standby of the primary."""
        try:
            with replica_errors(self.where):
                self.put(await self.take())
        except ReplicaUnavailable as error:
            self.failed(error)

    def failed(self, error: ReplicaUnavailable) -> None:
        """Let the primary be read for a while, or raise if it must not be."""
        self.drop_idle()
        if not self.settings.replica_fallback:
            raise error
        self.rest.begin()

    async def run_at(self, point: ReadPoint, operation: Operation[Result]) -> Result:
        """Run a read once the standby has replayed to the point."""
        wait, read = Wait(self.settings.max_replica_lag), at(point, operation)
        with (
            intercepted(self.interceptors, operation.name, operation.facts) as call,
            replica_errors(self.where),
        ):
            while True:
                connection = await self.take()
                try:
                    call.result = await execute(connection, read, where=self.where)
                    break
                except ReplicaUnavailable as error:
                    pause = wait.pause_after(error)
                finally:
                    self.put(connection)
                if wait.wants_flush():
                    connection = await self.primary.take()
                    try:
                        await execute(connection, flush_to(point), where=self.primary.where)
                    finally:
                        self.primary.put(connection)
                await sleep(pause)
        self.rest.end()
        return cast(Result, call.result)

    async def _open(self) -> Connection:
        connection = await super()._open()
        try:
            found = await execute(connection, cluster(), where=self.where)
            check_cluster(await self.primary.run(cluster()), found, self.where)
        except BaseException as error:
            connection.pgconn.finish()
            self.put(connection)
            if isinstance(error, IncompatibleVersion | InvalidSchemaName):
                why = first_line(error)
                reason = f"it is another database, or its installation is not replayed: {why}"
                raise WrongReplica(reason, self.where) from None
            raise
        return connection
