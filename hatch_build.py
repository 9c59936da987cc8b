"""The text of the package's page on PyPI: the README, with links that work there.

A link to a file of the repository leads to the address in `project.urls`, under `Source`. While the
repository has no public address, such a link is only its words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"\[(?P<words>[^]]+)\]\((?!https?:|#)(?P<path>[^)]+)\)")


class PackagePage(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field to the README, its links made absolute."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        link = rf"[\g<words>]({source}/blob/main/\g<path>)" if source else r"\g<words>"
        page = _RELATIVE_LINK.sub(link, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
