"""Files that nobody needs: of steps that never committed, of expired snapshots, of dropped tables.

A file is unused if no snapshot of its table names it. It is removed when it has been unused for
long enough: longer than a step takes from its first file to its commit, and longer than a reader
takes that began before the file's last snapshot was expired. How long is known from a file beside
the table's metadata, which says since when each file is seen unused, by the clock of the storage.

A folder is only cleaned by the database that created the table in it. In a copy of a database the
catalog is out of date, and files that are in use would look unused. It is left alone, too, if its
files cannot be recognized in what the storage lists.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from pyarrow import fs

from penstock.extras import from_extra
from penstock.lake.store_catalog import OWNER, StoreCatalog

with from_extra("lake"):
    import sqlalchemy
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

log = logging.getLogger(__name__)

#: longer than a step takes, and than a reader of a snapshot that is expired meanwhile
KEEP_FILES_FOR = timedelta(days=1)
_SEEN = "metadata/_penstock_unused.json"
#: how `create` names the folder of a table
_FOLDER = re.compile(r".+-[0-9a-f]{16}")


@dataclass(frozen=True)
class Removed:
    """What was removed, and what will be if it stays unused."""

    files: int = 0
    size_in_bytes: int = 0
    kept: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(
            self.files + other.files,
            self.size_in_bytes + other.size_in_bytes,
            self.kept + other.kept,
        )


def remove_unused_files(
    catalog: StoreCatalog, name: str, keep_for: timedelta = KEEP_FILES_FOR
) -> Removed:
    """Remove the files of a table that no snapshot has named for this long."""
    table = catalog.load_table(name)
    if table.metadata.properties.get(OWNER) != catalog.database_id():
        return Removed()
    folder = _Folder.of(table.location(), table.io)
    # listed first: a file that is committed meanwhile is named by the metadata read after it
    listed = folder.files()
    if not folder.has(listed, _files_of_now(table)):
        log.warning(
            "unused files of %s are not removed: some of its files are not in %s",
            name, table.location(),
        )  # fmt: skip
        return Removed()
    used = {_path(one) for one in _used_files(catalog.load_table(name))}
    return folder.remove([one for one in listed if one.path not in used], keep_for)


def remove_dropped_tables(
    catalog: StoreCatalog, keep_for: timedelta = KEEP_FILES_FOR
) -> dict[str, Removed]:
    """Remove the files of tables that left the catalog this long ago, by folder."""
    warehouse = str(catalog.properties["warehouse"]).rstrip("/")
    found = {}
    for location in _table_folders(catalog, warehouse):
        folder = _Folder.of(location, catalog._load_file_io(location=location))
        listed = folder.files()
        if not _is_dropped(catalog, location) or folder.owner(listed) != catalog.database_id():
            continue
        found[location] = folder.remove(listed, keep_for)
        if found[location].files and not found[location].kept:
            folder.system.delete_dir(folder.path)
    return found


def _table_folders(catalog: StoreCatalog, warehouse: str) -> Iterator[str]:
    """Yield the folders of tables, dropped or not, in the namespaces of the catalog."""
    query = sqlalchemy.text("select namespace from iceberg_namespace_properties group by namespace")
    with catalog.engine.connect() as connection:
        namespaces = [str(one).replace(".", "/") for (one,) in connection.execute(query)]
    for namespace in sorted(namespaces):
        location = f"{warehouse}/{namespace}"
        folder = _Folder.of(location, catalog._load_file_io(location=location))
        for one in folder.listed(recursive=False):
            if one.type == fs.FileType.Directory and _FOLDER.fullmatch(one.base_name):
                yield f"{location}/{one.base_name}"


def _is_dropped(catalog: StoreCatalog, location: str) -> bool:
    """Whether no catalog in this database, by whatever name, has a table in this folder."""
    query = sqlalchemy.text(
        "select exists (select from iceberg_tables"
        " where starts_with(metadata_location, :folder)"
        " or starts_with(previous_metadata_location, :folder))"
    )
    with catalog.engine.connect() as connection:
        return not connection.execute(query, {"folder": f"{location}/"}).scalar()


def _used_files(table: Table) -> Iterator[str]:
    """Yield every file that some snapshot of a table needs."""
    yield table.metadata_location
    for older in table.metadata.metadata_log:
        yield older.metadata_file
    for statistics in (*table.metadata.statistics, *table.metadata.partition_statistics):
        yield statistics.statistics_path
    manifests: set[str] = set()
    for snapshot in table.snapshots():
        yield from _files(table, snapshot, manifests)


def _files_of_now(table: Table) -> Iterator[str]:
    """Yield the files that readers of the newest snapshot need."""
    yield table.metadata_location
    if snapshot := table.current_snapshot():
        yield from _files(table, snapshot, set())


def _files(table: Table, snapshot: Snapshot, manifests: set[str]) -> Iterator[str]:
    """Yield the files of a snapshot, except for those of manifests that were read before."""
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        if manifest.manifest_path in manifests:
            continue
        manifests.add(manifest.manifest_path)
        yield manifest.manifest_path
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path


def _path(location: str) -> str:
    return PyArrowFileIO.parse_location(location)[2]


@dataclass(frozen=True)
class _Folder:
    """A folder in the storage."""

    system: fs.FileSystem
    path: str

    @classmethod
    def of(cls, location: str, io: object) -> _Folder:
        assert isinstance(io, PyArrowFileIO)
        scheme, host, path = PyArrowFileIO.parse_location(location, io.properties)
        return cls(io.fs_by_scheme(scheme, host), path.rstrip("/"))

    def listed(self, *, recursive: bool = True) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        return list(self.system.get_file_info(selector))

    def files(self) -> list[fs.FileInfo]:
        """Return its files, except for the one that is kept here."""
        own = f"{self.path}/{_SEEN}"
        return [one for one in self.listed() if one.type == fs.FileType.File and one.path != own]

    def has(self, listed: Iterable[fs.FileInfo], locations: Iterable[str]) -> bool:
        """Whether all these files are in the folder, as it was listed."""
        return {_path(one) for one in locations} <= {one.path for one in listed}

    def owner(self, listed: Iterable[fs.FileInfo]) -> str | None:
        """Return the database that created the table whose files these are."""
        newest = max(
            (one for one in listed if one.path.endswith(".metadata.json")),
            key=lambda one: (one.mtime, one.path),
            default=None,
        )
        if newest is None:
            return None
        with self.system.open_input_stream(newest.path) as file:
            properties = json.loads(file.read()).get("properties", {})
        found = properties.get(OWNER)
        return None if found is None else str(found)

    def remove(self, unused: Iterable[fs.FileInfo], keep_for: timedelta) -> Removed:
        """Remove those of the unused files that have been seen unused for this long."""
        now = self._now()
        before = self._seen()
        # who owns the table is read from its metadata: that goes last
        files = sorted(unused, key=lambda one: one.path.endswith(".metadata.json"))
        seen = {one.path: before.get(one.path, now) for one in files}
        going = [one for one in files if now - seen[one.path] >= keep_for]
        for one in going:
            with suppress(FileNotFoundError):  # another process was quicker
                self.system.delete_file(one.path)
            del seen[one.path]
        if seen or before:
            self._write(_SEEN, json.dumps({path: str(at) for path, at in seen.items()}))
        return Removed(len(going), sum(one.size for one in going), len(seen))

    def _now(self) -> datetime:
        """Return the time by the clock that dates the files."""
        name = f"metadata/_penstock_time_{uuid4().hex}"
        self._write(name, "now")
        found: datetime = self.system.get_file_info(f"{self.path}/{name}").mtime
        self.system.delete_file(f"{self.path}/{name}")
        return found

    def _seen(self) -> dict[str, datetime]:
        """Return since when files have been seen unused."""
        with suppress(FileNotFoundError, ValueError):  # ValueError: it was cut short
            with self.system.open_input_stream(f"{self.path}/{_SEEN}") as file:
                found = json.loads(file.read())
            return {path: datetime.fromisoformat(at) for path, at in found.items()}
        return {}

    def _write(self, name: str, text: str) -> None:
        with self.system.open_output_stream(f"{self.path}/{name}") as file:
            file.write(text.encode())
