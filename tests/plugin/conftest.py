"""The folders in which the tests run pytest."""

from __future__ import annotations

import pytest
from evalkit import MODES, Bench


@pytest.fixture
def bench(pytester: pytest.Pytester) -> Bench:
    """A folder of its own, run plainly."""
    pytester.makeini("[pytest]\n")
    return Bench(pytester)


@pytest.fixture(params=MODES, ids=lambda mode: mode.replace(" ", "") or "plain")
def each_mode(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """A folder of its own, run plainly, with `-n 0` and with `-n 2`."""
    bench.mode = request.param
    return bench
