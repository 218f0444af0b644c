"""The suites and parts of suites that the pages show are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_evalgrader.suite.manifest import parse_suite

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
JSON = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```json\n(.*?)```", page.read_text("utf-8"), re.S))
]


@pytest.mark.parametrize("block", JSON)
def test_what_is_shown_as_json_is_json(block: str) -> None:
    shown = json.loads(block)
    if isinstance(shown, dict) and "tasks" in shown:
        parse_suite(shown, "shown.json")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link
