"""Without `--evals` the plugin costs nothing: none of its modules but the entry point is loaded."""

from __future__ import annotations

from evalkit import Bench, suite, task


def test_without_evals_nothing_is_loaded(bench: Bench) -> None:
    bench.write("suites/s.json", suite(task()))
    bench.write(
        "test_modules.py",
        """
        import sys
        def test_modules():
            assert "pytest_evalgrader.plugin" in sys.modules
            for name in ("pydantic", "openai", "RestrictedPython", "httpx", "regex", "jsonschema"):
                assert name not in sys.modules, name
            ours = {name for name in sys.modules if name.startswith("pytest_evalgrader.")}
            assert ours == {f"pytest_evalgrader.{name}" for name in ("plugin", "hookspecs", "options")}
        """,
    )
    result = bench.pytester.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(passed=1)


def test_recorded_answers_load_no_client(bench: Bench) -> None:
    bench.write("suites/s.json", suite(task()))
    bench.write(
        "conftest.py",
        """
        import sys
        def pytest_evalgrader_run(run):
            for name in ("openai", "httpx", "jsonschema", "datasets", "dotpromptz_handlebars"):
                assert name not in sys.modules, name
        """,
    )
    result = bench.pytester.runpytest_subprocess("--evals", "suites", "-p", "no:randomly")
    assert result.ret == 0, result.stdout.str()
