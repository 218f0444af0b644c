"""Enables pytester for the project's own tests."""

import contextlib

# A run of pytester in this process takes out what it imported, and numpy cannot be loaded twice.
with contextlib.suppress(ImportError):
    import numpy  # noqa: F401

pytest_plugins = ["pytester"]
