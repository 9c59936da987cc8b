"""Every fenced block in the README and the documentation runs, and shows what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.docs import pages
from tests.docs.running import run_page


@pytest.mark.timeout(600)  # some pages start Spark, which a busy machine takes its time for
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.spark) if pages.uses_spark(page) else page
        for page in pages.PAGES
    ],
    ids=pages.name,
)
def test_what_a_page_shows_is_what_happens(
    page: Path,
    new_database: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if pages.uses_spark(page):  # it starts here, where neither folder nor settings are the page's
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    database = pages.database(page)
    url = None if database == "embedded" else new_database(database)
    if url:
        monkeypatch.setenv("PENSTOCK_URL", url)

    run_page(page, url, request.getfixturevalue("java") if pages.runs_pipeline(page) else {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\n1 + 1  # -> 3\n```", "line 2 should show\n\n3\n\nand shows\n\n2"),
        ("```python\nx = 1\nprint(x)\n```", "line 3 prints, and the page does not show what"),
        ("```python\n1 / 0\n```", "line 2 raises ZeroDivisionError: division by zero"),
        ("```python\n1 / 1  # raises ZeroDivisionError\n```", "raises nothing"),
        ("```python\n1 / 0  # raises ZeroDivisionError: no\n```", "raises ZeroDivisionError: no"),
        ("```python\nimport asyncio\nawait asyncio.sleep(0, 2)  # -> 3\n```", "shows\n\n2"),
        ("```sql\nselect nothing\n```", 'column "nothing" does not exist'),
        ("```sh\npip install penstock\n```", "mark the block as not run"),
        ("```console\n$ make test\n```", "mark the block as not run"),
        ("```console\n$ penstock nonsense\n...\n```", "`penstock nonsense` ended with 2"),
        ("```cobol\nSTOP RUN.\n```", "nobody knows how to run 'cobol'"),
        ("```python\nprint(1)\n", "has no end"),
    ],
)
def test_a_page_that_is_wrong_fails(
    text: str, complaint: str, tmp_path: Path, database_url: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)

    with pytest.raises((AssertionError, psycopg.Error), match=re.escape(complaint)):
        run_page(page, database_url)


def test_blocks_share_a_namespace_and_marked_blocks_do_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1  # -> 1\n```\n\n"
        "<!-- not run: it never ends -->\n\n```python\nwhile True: pass\n```\n\n"
        "    ```python\n    for n in (x, 2):\n        print(n)\n    # -> 1\n    # -> ...\n    ```\n"
        "\n```python\nif x:\n    x + 1  # -> 2\n    print(x)  # -> 1\n    x + 3\n```\n"
    )

    run_page(page, None)


def test_a_block_with_a_title_is_a_file_for_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="shop.py"\nprint("not run here")\nPRICE = 40\n```\n\n'
        "```python\nfrom pathlib import Path\nlen(Path('shop.py').read_text())  # -> 33\n```\n"
    )

    run_page(page, None)
