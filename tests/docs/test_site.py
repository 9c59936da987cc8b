"""The site, as it is built and as it is laid out."""

from __future__ import annotations

import re
import struct
import tomllib

from tests.docs.pages import ROOT

CONFIGURATION = (ROOT / "mkdocs.yml").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_pages_have_a_previous_and_a_next() -> None:
    assert "    - navigation.footer\n" in CONFIGURATION


def test_long_signatures_are_broken_into_lines() -> None:
    assert "separate_signature: true" in CONFIGURATION
    assert re.search(r"line_length: \d+", CONFIGURATION)
    assert "ruff" in EXTRAS["docs"]  # which breaks them: without it mkdocstrings leaves one line


def test_no_code_of_the_home_page_is_cut_off() -> None:
    blocks = re.findall(r"```\w*\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)

    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80


def test_no_image_is_longer_than_a_few_screens() -> None:
    for image in (ROOT / "docs" / "images").glob("*.png"):
        width, height = struct.unpack(">II", image.read_bytes()[16:24])

        assert height < 2500, image
        assert width < 1200, image
