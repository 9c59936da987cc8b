"""The package as others meet it: its name, its extras, its page."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from hatch_build import PackagePage
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples", "src"]


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [
        ("pyspark", "penstock.pipeline", "spark"),
        ("pyarrow", "penstock.pipeline", "spark"),
        ("pyspark", "pyspark_penstock", "spark"),
        ("adbc_driver_postgresql", "penstock.spark.read.arrow", "spark"),
        ("opentelemetry", "penstock.telemetry", "telemetry"),
    ],
)
def test_an_import_that_lacks_a_library_names_the_extra(
    missing: str, module: str, extra: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; import {module}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: {missing} is not installed: pip install 'penstock-log[{extra}]'"
    )


def test_an_import_that_lacks_something_else_says_what() -> None:
    script = "import sys; sys.modules['json'] = None; import penstock.pipeline"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert "penstock-log[" not in done.stderr
    assert "json" in done.stderr.splitlines()[-1]


def test_no_page_names_the_package_that_is_somebody_elses() -> None:
    extras = "|".join(PROJECT["optional-dependencies"])
    found = []
    for name in TEXTS:
        path = ROOT / name
        files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        for file in files:
            text = file.read_bytes().decode(errors="ignore")
            found += re.findall(rf"pip install ['\"]?penstock(?!-log)|penstock\[(?:{extras})", text)

    assert found == []


def test_every_extra_that_a_page_names_exists() -> None:
    text = "".join(
        file.read_text() for name in ("docs", "src") for file in (ROOT / name).rglob("*.[mp][dy]")
    )
    named = {
        one for extras in re.findall(r"penstock-log\[([\w,]+)", text) for one in extras.split(",")
    }

    assert named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_no_link_of_the_packages_page_leads_nowhere() -> None:
    page = ProjectMetadata(str(ROOT), PluginManager()).core.readme

    assert page.startswith("# Penstock")
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", page) == []


def test_its_links_lead_to_the_repository_once_that_has_an_address() -> None:
    metadata = {"urls": {"Source": "https://git.example/penstock"}}

    PackagePage(str(ROOT), {}).update(metadata)

    page = str(metadata["readme"])
    assert "(https://git.example/penstock/blob/main/docs/tutorial.md)" in page
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", page) == []
