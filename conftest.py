"""Enables pytester for the project's own tests."""

import contextlib
import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and so would be the runs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A run of pytester in this process takes out what it imported, and numpy cannot be loaded twice.
with contextlib.suppress(ImportError):
    import numpy  # noqa: F401

pytest_plugins = ["pytester"]
