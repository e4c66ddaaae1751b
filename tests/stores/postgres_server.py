"""A PostgreSQL server of our own, from the system's programs: started once, on a port of its own, thrown away after.

A pytest plugin, loaded by conftest.py. Tests that use its fixtures are marked `needs("postgres")`.
"""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure._core.values.clock import new_id
from perdure.stores import PostgresStore
from scripts.system_parts import pgbouncer_program, postgres_folder

USER = "perdure"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # a server that crashes loses nothing by that; a machine that loses power would
    "autovacuum": "off",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "wal_writer_delay": "10s",  # what is not waited for stays off the disk for long enough to be lost in a crash
}
GUARD = 'cat; "$0" -D "$1/data" -m immediate stop; rm -rf "$1"'
"""Waits for the end of its input, which comes when we close it, and also when we die."""


def unprivileged() -> dict[str, Any]:
    """As whom to run a server, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        account = pwd.getpwnam("postgres")
    except KeyError:
        account = pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def run_as_server(*command: object) -> None:
    """Run one of the server's programs to its end; its words are shown when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    with tempfile.TemporaryFile() as output:  # not a pipe: the server would keep it open
        done = subprocess.run(
            [str(word) for word in command],
            **unprivileged(),
            cwd="/",
            env={**environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode()


class Server:
    """A running server. Its databases are empty until a store uses them."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self.folder = folder
        self.port = 0

    def make(self) -> None:
        run_as_server(
            self._programs / "initdb", "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync",
            "--no-instructions", "-D", self.folder / "data",
        )  # fmt: skip

    def start(self) -> None:
        """Somebody may take the port between our finding and using it."""
        for last_try in (False, False, True):
            self.port = free_port()
            settings = " ".join(f"-c {name}={value}" for name, value in {**SETTINGS, "port": self.port}.items())
            try:
                return self.control("-l", self.folder / "log", "-o", settings, "start")
            except AssertionError:
                if last_try:
                    raise
        return None

    def restart(self, *, mode: str) -> None:
        self.control("-l", self.folder / "log", "-m", mode, "restart")

    def control(self, *words: object) -> None:
        run_as_server(self._programs / "pg_ctl", "-D", self.folder / "data", "-w", "-t", "30", *words)

    def address(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{database}"

    def ask(self, statement: str, *values: object, database: str = "postgres") -> list[Any]:
        """What a statement gives, its first column; as any other client."""
        import psycopg  # every run of the tests loads this plugin, and few need the server
        from psycopg.rows import scalar_row

        with psycopg.connect(self.address(database), autocommit=True, row_factory=scalar_row) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def new_database(self, options: str = "") -> str:
        name = f"d{new_id()}"
        self.ask(f"CREATE DATABASE {name} {options}")
        return name


@contextlib.contextmanager
def server_folder() -> Iterator[Path]:
    """A folder that belongs to whoever runs the server. Not pytest's own: no other user may look into that."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
    account = unprivileged()
    if account:
        os.chown(folder, account["user"], account["group"])
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server."""
    programs = postgres_folder()
    assert programs, "a test that uses the server is marked needs('postgres')"
    with server_folder() as folder:
        server = Server(programs, folder)
        server.make()
        server.start()
        guard = ["sh", "-c", GUARD, str(programs / "pg_ctl"), str(folder)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(guard, **unprivileged(), cwd="/", stdin=subprocess.PIPE, stdout=quiet, stderr=quiet):
            yield server


@pytest.fixture(scope="session")
def pooled_address(postgres: Server) -> Iterator[str]:
    """The same server behind a pooler that lends its two connections for one transaction at a time."""
    program = pgbouncer_program()
    assert program, "a test that uses the pooler is marked needs('pgbouncer')"
    port = free_port()
    with server_folder() as folder:
        (folder / "users").write_text(f'"{USER}" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={postgres.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder / 'users'}\npool_mode = transaction\ndefault_pool_size = 2\n"
        )
        quiet = subprocess.DEVNULL
        guard = ["sh", "-c", '"$0" "$1" & cat; kill $!', program, str(folder / "pgbouncer.ini")]
        with subprocess.Popen(guard, **unprivileged(), cwd="/", stdin=subprocess.PIPE, stdout=quiet, stderr=quiet):
            yield postgres.address(port=port)


def limit_patience(store: PostgresStore, seconds: float) -> None:
    """Let a store wait no longer than this from now on. It has its connection by then, however slow the machine is."""
    database = store._database
    assert database is not None, "it is connected by its first call"
    database._patience = seconds
    for pool in database._pools.values():
        pool._patience = seconds


@pytest.fixture
def tenant() -> str:
    """Nobody else's, so that each test has the database for itself."""
    return new_id()


@pytest.fixture
async def store_of(postgres: Server, tenant: str) -> AsyncIterator[Callable[..., PostgresStore]]:
    """Makes stores that are closed when the test is over."""
    made: list[PostgresStore] = []

    def make(address: str = "", **options: Any) -> PostgresStore:
        made.append(PostgresStore(address or postgres.address(), **{"tenant": tenant, **options}))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()
