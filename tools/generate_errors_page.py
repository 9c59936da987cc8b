"""Write the generated part of docs/errors.md: the tree of errors and a table per module.

    python tools/generate_errors_page.py

The text comes from the classes in `penstock.errors`: the first paragraph of a docstring describes
what happened, the second what to do; a group of errors has the first only.
"""

from __future__ import annotations

import inspect
import re
import sys
from itertools import groupby
from pathlib import Path

from penstock.errors import PenstockError
from penstock.errors.tree import all_errors, drawn_tree

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
_GENERATED = re.compile(
    r"(?P<begin><!-- generated: (?P<part>\w+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
_HEAD = "| error | what happened | retry | what to do |\n|---|---|---|---|"


def generated(page: str) -> str:
    """Return the page with its generated parts replaced."""
    parts = {"tree": f"```text\n{drawn_tree()}\n```", "tables": _tables()}
    return _GENERATED.sub(
        lambda match: f"{match['begin']}\n{parts[match['part']]}\n\n{match['end']}", page
    )


def _tables() -> str:
    by_module = sorted(all_errors(), key=_module_order)
    return "\n\n".join(
        _table(module, list(errors))
        for module, errors in groupby(by_module, key=lambda error: error.__module__)
    )


def _module_order(error: type[PenstockError]) -> int:
    modules = list(dict.fromkeys(one.__module__ for one in all_errors()))
    return modules.index(error.__module__)


def _table(module: str, errors: list[type[PenstockError]]) -> str:
    heading = (inspect.getdoc(sys.modules[module]) or "").splitlines()[0].rstrip(".")
    title = [] if module == PenstockError.__module__ else [f"### {heading}", ""]
    return "\n".join([*title, _HEAD, *map(_row, errors)])


def _row(error: type[PenstockError]) -> str:
    paragraphs = (inspect.getdoc(error) or "").split("\n\n")
    happened, *advice = (" ".join(one.split()) for one in paragraphs)
    to_do = " ".join(advice) or "See the errors below."
    retry = "yes" if error.retryable else "no"
    return f"| `{error.__name__}` | {happened} | {retry} | {to_do} |"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
