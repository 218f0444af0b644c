"""The pytest entry point. It imports the rest of the package only under `--evals`."""

from __future__ import annotations

import pytest

from pytest_evalgrader import hookspecs
from pytest_evalgrader.options import add_options, evals_enabled, read_settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register our hooks; without `--evals` too, since pytest refuses unknown hooks in a conftest."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the eval session where it was asked for."""
    if not evals_enabled(config):
        return
    from pytest_evalgrader.sandbox.host import Sandbox, SandboxError

    settings = read_settings(config)
    sandbox = Sandbox(settings.sandbox)
    try:
        # Its process loads while this one does.
        sandbox.begin()

        from pytest_evalgrader.session import start

        start(config, settings, sandbox)
    except SandboxError as error:
        sandbox.close()
        raise pytest.UsageError(str(error)) from None
    except BaseException:
        sandbox.close()
        raise
