"""The tree of errors, found from the classes."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors.base import PenstockError


def all_errors(error: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """Yield the error and all its subclasses in this package, in the order of definition."""
    yield error
    for child in _children(error):
        yield from all_errors(child)


def drawn_tree(error: type[PenstockError] = PenstockError) -> str:
    """Return the tree of the error and all its subclasses, one name per line."""
    lines, children = [error.__name__], _children(error)
    for child in children:
        branch, below = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        first, *rest = drawn_tree(child).splitlines()
        lines += [branch + first, *(below + line for line in rest)]
    return "\n".join(lines)


def _children(error: type[PenstockError]) -> list[type[PenstockError]]:
    package = __name__.rpartition(".")[0]
    return [one for one in error.__subclasses__() if one.__module__.startswith(f"{package}.")]
