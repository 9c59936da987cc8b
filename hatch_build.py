"""The text of the package's page on PyPI: the README, without links that lead nowhere there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackagePage(MetadataHookInterface):
    """Takes the README as it is, but for links to files of the repository: of those, the words."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        words = re.sub(r"\[([^]]+)\]\((?!https?:|#)[^)]+\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": words}
