"""The tree of errors, found from the classes."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors.base import PenstockError


def all_errors(error: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """Yield the error and all its subclasses in this package, in the order of definition."""
    yield error
    for child in _children(error):
        yield from all_errors(child)


def drawn_tree() -> str:
    """Return the tree of all errors, one name per line."""
    return "\n".join([PenstockError.__name__, *_branches(PenstockError, "")])


def _branches(error: type[PenstockError], indent: str) -> Iterator[str]:
    children = _children(error)
    for child in children:
        last = child is children[-1]
        yield f"{indent}{'└── ' if last else '├── '}{child.__name__}"
        yield from _branches(child, indent + ("    " if last else "│   "))


def _children(error: type[PenstockError]) -> list[type[PenstockError]]:
    package = __name__.rpartition(".")[0]
    return [one for one in error.__subclasses__() if one.__module__.startswith(f"{package}.")]
