"""The README claims what the runs found whose data the repository keeps."""

from __future__ import annotations

from tests.docs.evidence import README, filled


def test_the_evidence_in_the_readme_is_generated_from_the_runs() -> None:
    text = README.read_text(encoding="utf-8")

    assert "<!-- evidence -->" in text
    assert filled(text) == text
