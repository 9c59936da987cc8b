"""The lake: Iceberg tables whose commits join transactions of the store's database.

`catalog(store)` is a pyiceberg catalog of them. A pipeline writes them with `pipe.table`. Needs
`pip install 'penstock-log[lake]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.lake.overview import TableSummary, tables
    from penstock.lake.store_catalog import StoreCatalog, catalog
    from penstock.lake.upkeep import Maintained, maintain, maintain_all

_MODULES = {
    "StoreCatalog": "store_catalog",
    "catalog": "store_catalog",
    "TableSummary": "overview",
    "tables": "overview",
    "Maintained": "upkeep",
    "maintain": "upkeep",
    "maintain_all": "upkeep",
}

__all__ = [
    "Maintained",
    "StoreCatalog",
    "TableSummary",
    "catalog",
    "maintain",
    "maintain_all",
    "tables",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is used: a pipeline without tables does without the extra `lake`."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
