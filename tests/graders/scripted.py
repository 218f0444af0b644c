"""Scripted stand-ins for a sample's calls and for a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Said = str | dict[str, Any] | BaseException


class ScriptedScope:
    """Answers model calls from a list and keeps what was asked.

    Args:
        said: For each call a text, a whole reply, or an exception to raise; the last one is repeated.
    """

    def __init__(self, *said: Said) -> None:
        self._said = list(said)
        self.bodies: list[dict[str, Any]] = []
        self.models: list[str] = []
        self.roles: list[str] = []

    def responses(self, model: str, body: dict[str, Any], *, role: str = "judge") -> dict[str, Any]:
        said = self._said[min(len(self.bodies), len(self._said) - 1)]
        self.bodies.append(body)
        self.models.append(model)
        self.roles.append(role)
        if isinstance(said, BaseException):
            raise said
        return reply(said) if isinstance(said, str) else said

    @property
    def users(self) -> list[str]:
        return [body["input"][1]["content"] for body in self.bodies]

    @property
    def systems(self) -> list[str]:
        return [body["input"][0]["content"] for body in self.bodies]


def reply(text: str, *, ended: str | None = None, refusal: str | None = None) -> dict[str, Any]:
    """Make a reply in the form that the gateway gives."""
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text}] if text else []
    if refusal is not None:
        content = [{"type": "refusal", "refusal": refusal}]
    return {
        "id": "resp_1",
        "object": "response",
        "status": "incomplete" if ended else "completed",
        "incomplete_details": {"reason": ended} if ended else None,
        "model": "judge-1",
        "output": [{"type": "message", "role": "assistant", "content": content}],
        "output_text": text,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


class ListRows:
    """A dataset that is a list."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    @property
    def columns(self) -> Sequence[str]:
        return list(dict.fromkeys(key for row in self._rows for key in row))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int, /) -> dict[str, Any]:
        return dict(self._rows[index])

    def where(self, index: int, /) -> str:
        return f"data/d.jsonl:{index + 1}"


class EndpointScope:
    """Answers endpoint calls from a function and keeps what was asked."""

    def __init__(self, answer: Callable[[str, dict[str, Any] | None], Any]) -> None:
        self._answer = answer
        self.calls: list[tuple[str, dict[str, Any] | None]] = []

    def endpoint(
        self,
        endpoint: Any,
        path: str,
        body: dict[str, Any] | None,
        *,
        timeout_s: float | None = None,
        max_retries: int | None = None,
    ) -> Any:
        self.calls.append((path, body))
        said = self._answer(path, body)
        if isinstance(said, BaseException):
            raise said
        return said
