"""Links between the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("*.md", "docs/*.md", "k8s/**/*.md", "benchmarks/**/*.md")
DOCUMENTS = sorted(file for place in PLACES for file in ROOT.glob(place))
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def headings(document: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in _LINK.findall(document.read_text(encoding="utf-8")):
        file = (document.parent / target) if target else document
        assert file.exists(), target
        assert not anchor or anchor in headings(file), f"{target}#{anchor}"
