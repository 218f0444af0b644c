"""One sandbox with all layers, and one with plain Python inside the same process and kernel layers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_evalgrader.sandbox.host import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def unguarded() -> Iterator[Sandbox]:
    """Plain Python in the child: what the process and kernel layers hold alone."""
    with Sandbox(language=False) as sandbox:
        yield sandbox
