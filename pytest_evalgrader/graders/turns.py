"""The conversation of a row: its turns, the completion as the last of them, and what judge templates can name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_evalgrader.errors import Problem, SampleError

ROLES = ("system", "document", "user", "assistant")
COLUMNS = ("messages", "turns")
_ALIASES = {"developer": "system"}

Turn = dict[str, str]


class TurnsError(ValueError):
    """A row's `messages` or `turns` column is no conversation; the message says what stands there."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One sample as a judge sees it.

    Args:
        context: The turns before the completion, each `{"role", "content"}` with text as content.
        completion: What the candidate answered.
        metadata: The row's `metadata` column, else the row.
    """

    context: tuple[Turn, ...]
    completion: str
    metadata: Any

    @property
    def turns(self) -> list[Turn]:
        """All turns, the completion as the last one."""
        return [*self.context, {"role": "assistant", "content": self.completion}]

    @property
    def documents(self) -> list[str]:
        """The content of the document turns that hold any text."""
        return [turn["content"] for turn in self.context if turn["role"] == "document" and turn["content"].strip()]

    @property
    def last_user(self) -> str | None:
        """The content of the last user turn, or None where nobody asked."""
        index = self._last_user_index()
        return None if index is None else self.context[index]["content"]

    @property
    def context_without_last_user(self) -> list[Turn]:
        """The context without its last user turn; what follows that turn stays."""
        index = self._last_user_index()
        return [turn for i, turn in enumerate(self.context) if i != index]

    def _last_user_index(self) -> int | None:
        return max((i for i, turn in enumerate(self.context) if turn["role"] == "user"), default=None)


def read_turns(row: Mapping[str, Any]) -> list[Turn] | None:
    """Return the turns in a row's `messages` or `turns` column.

    Args:
        row: A dataset row.

    Returns:
        Each turn as `{"role", "content"}`, or None where both columns are absent, null or empty.

    Raises:
        TurnsError: The column holds something else than turns.
    """
    for column in COLUMNS:
        value = row.get(column)
        if value is None or value == []:
            continue
        if not isinstance(value, list):
            raise TurnsError(
                f"column `{column}` is {_kind(value)}, expected a list of turns such as "
                f'[{{"role": "user", "content": "…"}}]'
            )
        return [_turn(turn, f"{column}[{index}]") for index, turn in enumerate(value)]
    return None


def conversation_of(row: Mapping[str, Any], *, prompt: Any, completion: str) -> Conversation:
    """Put a sample together: the row's turns (else one user turn with the prompt), then the completion.

    A recorded assistant turn that ends the row's turns and says just what the completion says is the completion; any
    other one was shown to the candidate and stays in the context.

    Args:
        row: The row after preprocessing.
        prompt: What the candidate was asked: text, or a list of messages.
        completion: The candidate's answer.

    Raises:
        SampleError: The row's turns cannot be read; at stage `grade`.
    """
    try:
        turns = read_turns(row)
        if turns is None and isinstance(prompt, list):
            turns = read_turns({"messages": prompt})
    except TurnsError as err:
        raise SampleError("grade", f"The conversation cannot be read: {err}.", "TurnsError") from err
    if turns is None:
        turns = [] if prompt is None else [{"role": "user", "content": _text(prompt)}]
    if turns and turns[-1] == {"role": "assistant", "content": completion}:
        turns = turns[:-1]
    return Conversation(tuple(turns), completion, metadata_of(row))


def metadata_of(row: Mapping[str, Any]) -> Any:
    """Return the row's `metadata` column, else the row itself."""
    metadata = row.get("metadata")
    return dict(row) if metadata is None else metadata


def turns_text(turns: Sequence[Turn]) -> str:
    """Return turns as text: each role in brackets, its content below, a blank line between turns."""
    return "\n\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in turns)


def place_of(rows: Iterable[Mapping[str, Any]], index: int) -> str:
    """Say where a row of a dataset stands: `data/d.jsonl:12` where the dataset knows it, else `row 11`."""
    where = getattr(rows, "where", None)
    return str(where(index)) if callable(where) else f"row {index}"


def columns_of(rows: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    """Return the columns of a dataset, in the order in which they appear."""
    columns = getattr(rows, "columns", None)
    return columns if columns is not None else list(dict.fromkeys(key for row in rows for key in row))


def turn_problems(rows: Iterable[Mapping[str, Any]], *, limit: int = 20) -> list[Problem]:
    """List the rows whose `messages` or `turns` column is no conversation.

    Args:
        rows: The dataset, after preprocessing; it is gone through once.
        limit: Problems to list at most.
    """
    columns = getattr(rows, "columns", COLUMNS)
    if not any(column in columns for column in COLUMNS):
        return []
    problems: list[Problem] = []
    for index, row in enumerate(rows):
        try:
            read_turns(row)
        except TurnsError as err:
            problems.append(Problem(place_of(rows, index), f"{err}."))
            if len(problems) == limit:
                break
    return problems


def template_context(
    conversation: Conversation,
    *,
    output_schema: str,
    criteria: str,
    examples: Sequence[Mapping[str, Any]],
    template_variables: Mapping[str, Any],
    delimiter: str,
) -> dict[str, Any]:
    """Return every variable that a judge's template can name.

    Args:
        conversation: The sample.
        output_schema: The JSON schema of the judge's reply, as text.
        criteria: What passes.
        examples: Judged examples, each `input`, `output`, `passes`, `reasoning`, `score`, `input_str`.
        template_variables: The suite's own variables; also there under their own names, where those are free.
        delimiter: A mark that no text of the sample can hold.
    """
    return {
        **template_variables,
        "completion": conversation.completion,
        "last_user_turn_content": conversation.last_user or "",
        "context_str": turns_text(conversation.context),
        "context_str_without_last_user": turns_text(conversation.context_without_last_user),
        "turns": conversation.turns,
        "context_turns": list(conversation.context),
        "context_turns_without_last_user": conversation.context_without_last_user,
        "metadata": conversation.metadata,
        "output_schema": output_schema,
        "template_variables": dict(template_variables),
        "criteria": criteria,
        "examples": list(examples),
        "delimiter": delimiter,
    }


TEMPLATE_VARIABLES = tuple(
    template_context(
        Conversation((), "", {}), output_schema="", criteria="", examples=(), template_variables={}, delimiter=""
    )
)


def _turn(turn: Any, place: str) -> Turn:
    if not isinstance(turn, Mapping):
        raise TurnsError(f"`{place}` is {_kind(turn)}, expected an object with `role` and `content`")
    role = turn.get("role")
    role = _ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise TurnsError(f"`{place}.role` is {_shown(role)}, expected one of {', '.join(ROLES)}")
    return {"role": role, "content": _text(turn.get("content"))}


def _text(content: Any) -> str:
    """Return the text of a turn's content: text, a list of parts, or null."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_parts(content))
    return json.dumps(content, ensure_ascii=False)


def _parts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]
        elif isinstance(part, Mapping) and isinstance(part.get("refusal"), str):
            yield part["refusal"]
        elif isinstance(part, Mapping) and isinstance(part.get("type"), str):
            # An image or a file: a judge of text is told that something stood there.
            yield f"[{part['type']}]"
        else:
            yield json.dumps(part, ensure_ascii=False)


def _kind(value: Any) -> str:
    names = {str: "text", bool: "a boolean", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return names.get(type(value), "null")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
