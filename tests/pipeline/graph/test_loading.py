"""A pipeline is found in its file, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import GraphError, PipelineNotFound
from penstock.pipeline import load
from tests.pipeline.graph.files import write_file

TWO = """
def make(name):
    made = Pipeline(name)
    @made.source(output="order")
    def orders(spark): ...
    return made

pipe = make("shop")
same = pipe
other = make("books")
"""


def test_the_only_pipeline_of_a_file_is_found_by_the_file(tmp_path: Path) -> None:
    file = write_file(tmp_path, "again = pipe\n")

    assert load(str(file)).name == "shop"


@pytest.mark.parametrize(
    ("name", "found"), [("pipe", "shop"), ("shop", "shop"), ("books", "books"), ("other", "books")]
)
def test_one_of_several_is_found_by_its_variable_or_its_name(
    tmp_path: Path, name: str, found: str
) -> None:
    file = write_file(tmp_path, TWO)

    assert load(f"{file}:{name}").name == found


def test_several_without_a_name_are_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path, TWO)

    with pytest.raises(PipelineNotFound) as caught:
        load(str(file))

    assert str(caught.value) == f"{file}: there are several pipelines, books, shop: say FILE:NAME"


def test_a_name_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path, TWO)

    with pytest.raises(PipelineNotFound) as caught:
        load(f"{file}:toys")

    assert "there is no pipeline toys; there are books, shop" in str(caught.value)


def test_a_file_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("answer = 42\n")

    with pytest.raises(PipelineNotFound, match=r"empty\.py: there is no pipeline in it: define"):
        load(str(file))


@pytest.mark.parametrize("missing", ["missing.py", "", ".", "folder"])
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, missing: str) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(PipelineNotFound, match="there is no such file"):
        load(str(tmp_path / missing))


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.txt"
    file.write_text("pipe")

    with pytest.raises(PipelineNotFound, match=r"shop\.txt: it is not a Python file"):
        load(str(file))


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("def (:\n", "", "SyntaxError"),
        ("\n\nnonsense\n", ":6", "NameError: name 'nonsense' is not defined"),
        ("import no_such_module\n", ":4", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_file_that_fails_is_said_to_and_where(
    tmp_path: Path, text: str, where: str, problem: str
) -> None:
    file = write_file(tmp_path, text)

    with pytest.raises(PipelineNotFound) as caught:
        load(str(file))

    assert str(caught.value).startswith(f"{file}{where}: it cannot be loaded: {problem}")


def test_a_mistake_in_a_declaration_is_reported_as_such(tmp_path: Path) -> None:
    file = write_file(tmp_path, "pipe.schema('order')\npipe.schema('order')\n")

    with pytest.raises(GraphError, match=r"shop\.py:5: the schema of order is declared already"):
        load(str(file))


def test_a_file_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("NAME = 'beside'\n")
    file = write_file(tmp_path, "from beside_it import NAME\npipe = Pipeline(NAME)\n")

    assert load(str(file)).name == "beside"
