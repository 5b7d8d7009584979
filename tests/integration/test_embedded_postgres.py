from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.embedded.postgres import EmbeddedPostgres
from app.embedded.shelter import closed_folder_above, within_reach
from app.errors import ServiceError

DEADLINE_S = 15.0
FAST = {"fsync": "off"}
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run as another user")

KEEPER = """
import signal, sys
from pathlib import Path
from app.embedded.postgres import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1])) as server:
    print(server.url, flush=True)
    signal.pause()
"""


async def _run(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def _postmaster(folder: Path) -> int:
    return int((folder / "cluster" / "postmaster.pid").read_text().splitlines()[0])


def _start_keeper(folder: Path) -> tuple[subprocess.Popen[str], str]:
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    return keeper, keeper.stdout.readline().strip()


@pytest.fixture(scope="module")
def made(service_dir: Path) -> Path:
    """A stopped cluster with one table of one row."""
    return service_dir / "embedded"


async def test_rows_and_address_outlast_a_restart(made: Path) -> None:
    with EmbeddedPostgres(made, settings=FAST) as server:
        first = server.url
        await _run(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    with EmbeddedPostgres(made, settings=FAST) as server:
        assert server.url == first
        assert await _run(server.url, "SELECT answer FROM kept") == 42
        assert await _run(server.url, "SELECT current_setting('fsync')") == "off"


async def test_only_this_machine_and_only_with_the_password(made: Path) -> None:
    with EmbeddedPostgres(made, settings=FAST) as server:
        address = urlsplit(server.url)
        assert address.hostname == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", _port(server.url))):
            pass
        wrong = server.url.replace(str(address.password), "wrong")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await _run(wrong, "SELECT 1")
        assert await _run(server.url, "SELECT current_setting('unix_socket_directories')") == ""
    assert stat.S_IMODE((made / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE((made / "cluster").stat().st_mode) == 0o700


def test_a_second_twincal_on_the_same_folder_is_told_who_has_it(made: Path) -> None:
    keeper, _ = _start_keeper(made)
    try:
        with pytest.raises(ServiceError, match=f"in use by another twincal, process {keeper.pid}"):
            EmbeddedPostgres(made).start()
    finally:
        keeper.kill()
        keeper.communicate()


async def test_a_killed_process_takes_its_postgres_along_and_the_next_start_finds_every_row(made: Path) -> None:
    keeper, url = _start_keeper(made)
    await _run(url, "CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS answer")
    await _run(url, "CREATE TABLE after_kill AS SELECT 7 AS answer")
    keeper.kill()
    keeper.communicate()
    with EmbeddedPostgres(made) as server:
        assert await _run(server.url, "SELECT answer FROM after_kill") == 7


async def test_postgres_killed_outright_recovers_at_the_next_start(made: Path) -> None:
    with EmbeddedPostgres(made) as server:
        await _run(server.url, "CREATE TABLE recovered AS SELECT 8 AS answer")
        os.kill(_postmaster(made), signal.SIGKILL)
    assert (made / "cluster" / "postmaster.pid").exists(), "it had no time to tidy up"
    with EmbeddedPostgres(made) as server:
        assert await _run(server.url, "SELECT answer FROM recovered") == 8


def test_a_stale_lock_file_whose_number_is_another_process_now_is_forgotten(made: Path) -> None:
    with EmbeddedPostgres(made) as server:
        postmaster = made / "cluster" / "postmaster.pid"
        lines = postmaster.read_text().splitlines()
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        postmaster.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        started = time.monotonic()
        with EmbeddedPostgres(made) as server:
            assert asyncio.run(_run(server.url, "SELECT 1")) == 1
        assert time.monotonic() - started < DEADLINE_S
        assert other.poll() is None, "the other process was left alone"
        other.kill()


async def test_a_taken_port_is_exchanged_for_a_free_one(made: Path) -> None:
    with EmbeddedPostgres(made, settings=FAST) as server:
        before = _port(server.url)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", before))
        other.listen()
        with EmbeddedPostgres(made, settings=FAST) as server:
            assert _port(server.url) != before
            assert await _run(server.url, "SELECT 1") == 1


def test_an_interrupted_first_start_is_begun_anew(service_dir: Path) -> None:
    folder = service_dir / "interrupted"
    (folder / "cluster.new" / "base").mkdir(parents=True)
    with EmbeddedPostgres(folder, settings=FAST):
        assert not (folder / "cluster.new").exists()


def test_a_server_that_will_not_start_shows_its_last_words(made: Path) -> None:
    with pytest.raises(ServiceError, match=r"Postgres ended while starting; .*postgres\.log ends: .*no_such_setting"):
        EmbeddedPostgres(made, settings={"no_such_setting": "1"}).start()
    with EmbeddedPostgres(made, settings=FAST):
        pass


def test_a_folder_without_postgres_is_named(service_dir: Path) -> None:
    empty = service_dir / "empty"
    empty.mkdir()
    with pytest.raises(ServiceError, match=f"{empty}: holds no initdb"):
        EmbeddedPostgres(service_dir / "nothing", bin_dir=empty).start()


def test_a_cluster_of_another_version_says_which_one_it_needs(service_dir: Path) -> None:
    folder = service_dir / "other-version"
    with EmbeddedPostgres(folder, settings=FAST):
        pass
    (folder / "cluster" / "PG_VERSION").write_text("12\n")
    with pytest.raises(ServiceError, match=r"was made by PostgreSQL 12.*TWINCAL_POSTGRES_BIN"):
        EmbeddedPostgres(folder).start()


@pytest.mark.skipif(not Path("/usr/lib/postgresql/15/bin/initdb").exists(), reason="NO OTHER POSTGRES ON THIS MACHINE")
async def test_another_postgres_serves_as_well(service_dir: Path) -> None:
    with EmbeddedPostgres(service_dir / "fifteen", Path("/usr/lib/postgresql/15/bin"), FAST) as server:
        version = await _run(server.url, "SHOW server_version")
    assert str(version).startswith("15.")


@NEEDS_ROOT
async def test_under_root_a_closed_folder_is_no_obstacle(service_dir: Path) -> None:
    closed = service_dir / "closed"
    closed.mkdir(mode=0o700)
    try:
        with EmbeddedPostgres(closed / "data", settings=FAST) as server:
            await _run(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        with EmbeddedPostgres(closed / "data", settings=FAST) as server:
            assert await _run(server.url, "SELECT answer FROM kept") == 42
    finally:
        shutil.rmtree((closed / "data" / "cluster").resolve().parent)


@NEEDS_ROOT
def test_under_root_binaries_in_a_closed_folder_are_copied_once(service_dir: Path) -> None:
    hidden = service_dir / "hidden"
    (hidden / "pg" / "bin").mkdir(parents=True)
    (hidden / "pg" / "bin").chmod(0o700)
    (hidden / "pg" / "bin" / "postgres").write_text("a program")
    assert within_reach(hidden / "pg") == hidden / "pg"
    hidden.chmod(0o700)
    copy = within_reach(hidden / "pg")
    try:
        assert closed_folder_above(copy / "bin" / "postgres") is None
        assert (copy / "bin" / "postgres").read_text() == "a program"
        assert within_reach(hidden / "pg") == copy
    finally:
        shutil.rmtree(copy)


@NEEDS_ROOT
def test_under_root_a_chosen_postgres_in_a_closed_folder_is_named(service_dir: Path) -> None:
    shut = service_dir / "shut"
    shut.mkdir(mode=0o700)
    with pytest.raises(ServiceError, match=f"'nobody'.* can't enter {shut} .*TWINCAL_POSTGRES_BIN"):
        EmbeddedPostgres(service_dir / "nothing", bin_dir=shut / "bin").start()


@NEEDS_ROOT
def test_under_root_the_server_runs_as_nobody(made: Path) -> None:
    with EmbeddedPostgres(made, settings=FAST) as server:
        assert asyncio.run(_run(server.url, "SELECT 1")) == 1
        owner = Path(f"/proc/{_postmaster(made)}").stat().st_uid
    assert owner == (made / "cluster").stat().st_uid != 0


@NEEDS_ROOT
def test_a_cluster_of_another_user_is_refused_with_a_way_out(service_dir: Path) -> None:
    folder = service_dir / "foreign"
    (folder / "cluster").mkdir(parents=True)
    with pytest.raises(ServiceError, match=r"belongs to user 0, and Postgres would run as user \d+"):
        EmbeddedPostgres(folder).start()
