"""PostgreSQL whose connections may be cut: by a restart, an administrator, a router that forgets."""

import logging
import time
from typing import Any

import peewee
from playhouse.db_url import parse
from playhouse.pool import MaxConnectionsExceeded, PooledPostgresqlDatabase

from stackmem.exceptions import TransientError

log = logging.getLogger(__name__)

# A live turn holds one while its model thinks: one for each of waitress's threads, and some for what runs beside them.
CONNECTIONS = 48
WAIT = 10  # seconds for a connection of the pool
CONNECT = 5  # seconds for a server to answer at all
AWAY = 5.0  # seconds that a server may take to start again, once it has answered
POLL = 0.1  # seconds
STALE = 300  # seconds after which an idle connection is not trusted

_UNDONE = {"57P01", "57P02", "57P03"}  # the server ended the connection itself: what it was sent is not done
_DEADLOCK = {"40P01", "40001"}
_Broken = (peewee.OperationalError, peewee.InterfaceError)


def postgres(url: str) -> "Postgres":
    """Return the database at an address, not connected yet. Raises ValueError where the address is none."""
    given: dict[str, Any] = parse(url, unquote_password=True, unquote_user=True)
    name = given.pop("database", "")
    if not name:
        raise ValueError("it names no database, as in postgresql://user@host/stackmem")
    options = {
        "max_connections": CONNECTIONS, "timeout": WAIT, "stale_timeout": STALE, "connect_timeout": CONNECT,
        "prefer_psycopg3": True,
    }  # fmt: skip
    return Postgres(name, **(options | given), autoconnect=False)


class Postgres(PooledPostgresqlDatabase):
    """A pool that replaces a connection which was cut, wherever nothing can have been lost or done twice."""

    _met = False  # it has answered once: the address is right

    def connect(self, reuse_if_open: bool = False) -> bool:
        """Take a connection; wait a little for a server that is being started again. Raises OperationalError."""
        end = time.monotonic() + AWAY
        while True:
            try:
                opened = super().connect(reuse_if_open)
                self._met = True
                return bool(opened)
            except MaxConnectionsExceeded:
                raise TransientError(f"All {self._max_connections} connections to the database are in use.") from None
            except _Broken:
                if not self._met or time.monotonic() > end or not self.is_closed():
                    raise
            time.sleep(POLL)

    def begin(self, isolation_level: Any = None) -> None:
        """Begin a transaction, on another connection where this one was cut."""
        self._come_back()
        try:
            super().begin(isolation_level)
        except _Broken as exc:
            self._replace(exc)
            super().begin(isolation_level)

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Run a statement; once more where its connection was cut before it can have done anything."""
        if self.in_transaction():
            return super().execute_sql(sql, params)
        self._come_back()
        was_cut = not self.is_closed() and self._state.conn.closed
        try:
            return super().execute_sql(sql, params)
        except _Broken as exc:
            if not (was_cut or code_of(exc) in _UNDONE or sql.lstrip("( ").startswith("SELECT")):
                raise
            self._replace(exc)
            return super().execute_sql(sql, params)

    def is_cut(self) -> bool:
        """Tell whether this thread's connection is no longer one."""
        return self.is_closed() or bool(self._state.conn.closed)

    def _come_back(self) -> None:
        """Connect again inside a ``connection_context`` whose last try found no server."""
        if self.is_closed() and self._state.ctx:
            self._connect_inside()

    def _replace(self, exc: Exception) -> None:
        """Take another connection; raise the error again where that was not the fault."""
        if self.is_closed() or not self._state.conn.closed:
            raise exc
        log.warning("a connection to the database was cut: %s", " ".join(str(exc).split()))
        contexts = self._state.ctx
        self.manual_close()
        self._state.ctx = contexts
        self._connect_inside()

    def _connect_inside(self) -> None:
        contexts = self._state.ctx  # closing and connecting drop them, and those who are inside would miss them
        try:
            self.connect()
        finally:
            self._state.ctx = contexts


def code_of(exc: BaseException) -> str | None:
    """Return the server's code of an error (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""
    return getattr(getattr(exc, "orig", None), "sqlstate", None)


def is_deadlock(exc: BaseException) -> bool:
    """Tell whether a transaction was undone only because of another one: the same may work at once."""
    return code_of(exc) in _DEADLOCK
