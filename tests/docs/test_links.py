"""Links within the documentation lead somewhere: to a file, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import pages

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@pytest.mark.parametrize("page", [*pages.PAGES, pages.ROOT / "CONTRIBUTING.md"], ids=pages.name)
def test_a_link_leads_to_a_page_and_a_heading_that_exist(page: Path) -> None:
    links = [link for link in LINK.findall(pages.prose(page)) if "://" not in link]

    broken = [link for link in links if not _leads_somewhere(page, link)]

    assert broken == []


@pytest.mark.parametrize("page", pages.PAGES[1:], ids=pages.name)
def test_the_documentation_links_to_no_file_outside_of_it(page: Path) -> None:
    """The site that is built from it has none of those."""
    links = [link for link in LINK.findall(pages.prose(page)) if "://" not in link]

    outside = [
        link for link in links if not _target(page, link).is_relative_to(pages.ROOT / "docs")
    ]

    assert outside == []


def test_every_page_has_its_place_in_the_navigation() -> None:
    text = (pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8")

    listed = re.findall(r"[\w/-]+\.md", text[text.index("\nnav:") :])

    docs = pages.ROOT / "docs"
    assert sorted(listed) == [page.relative_to(docs).as_posix() for page in pages.PAGES[1:]]


def _leads_somewhere(page: Path, link: str) -> bool:
    target = _target(page, link)
    _, _, anchor = link.partition("#")
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target)


def _target(page: Path, link: str) -> Path:
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


def _anchors(page: Path) -> set[str]:
    """The headings as GitHub and MkDocs name them in links."""
    return {
        re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
        for heading in HEADING.findall(pages.prose(page))
    }
