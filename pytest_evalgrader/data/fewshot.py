"""Few-shot examples: which rows, and the text that goes before the prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_evalgrader.data.template import Template, check_fields
from pytest_evalgrader.errors import Problem, SuiteError

if TYPE_CHECKING:
    from pytest_evalgrader.suite.manifest import FewShotSpec

_CACHED_EXAMPLES = 1024


class FewShot:
    """Chooses and renders the examples of a task.

    Args:
        spec: What the suite says.
        rows: The rows that examples come from; after a batch preprocessor, what it returned.
        own_dataset: Whether they are the task's own rows, so that the evaluated one must not be among its examples.
        prompt_template: The task's prompt template, where few-shot has none of its own.
        target_template: The task's target template, likewise.
        where: The place in the suite, such as `suites/s.json: tasks[0].fewshot`.
        extra: What templates can read beside the row, such as the task's `choices`.
        check: Look now whether the templates' fields are there. False where rows still pass a preprocessor; then call
            `check_fields(fewshot.templates, …)` with rows as it returns them.

    Raises:
        SuiteError: There are fewer rows than `count`, no prompt template, a template that is broken, or a field that
            no row has.
    """

    def __init__(
        self,
        spec: FewShotSpec,
        *,
        rows: Sequence[Mapping[str, Any]],
        own_dataset: bool,
        prompt_template: str | None,
        target_template: str | None,
        where: str,
        extra: Mapping[str, Any] | None = None,
        check: bool = True,
    ) -> None:
        self.count: int = spec.count
        self._separator: str = spec.separator
        self._random = spec.strategy == "random"
        self._seed = spec.seed
        self.own_dataset = own_dataset
        self._rows = rows
        self._extra = dict(extra or {})
        self._cache: dict[int, str] = {}
        problems: list[Problem] = []

        def template(source: str, name: str) -> Template:
            try:
                return Template(source, where=f"{where}.{name}")
            except SuiteError as error:
                problems.extend(error.problems)
                return Template("", where=f"{where}.{name}")

        def inherited(own: str | None, task: str | None, name: str) -> Template:
            return Template(task or "", where=where) if own is None else template(own, name)

        if spec.prompt_template is None and prompt_template is None and self.count:
            message = "examples need a prompt_template, here or on the task; rows with `messages` have no examples."
            problems.append(Problem(where, message))
        # The task reports what is wrong with its own templates.
        self._prompt = inherited(spec.prompt_template, prompt_template, "prompt_template")
        self._target = inherited(spec.target_template, target_template, "target_template")
        self._example = template(spec.example_template, "example_template")
        self.templates: tuple[Template, ...] = (self._prompt, self._target)
        if self.count:
            there = len(rows)
            need = self.count + 1 if own_dataset else self.count
            if there < need:
                beside = " beside the one that is asked" if own_dataset else ""
                have = f"{there} row" if there == 1 else f"{there} rows"
                message = (
                    f"{self.count} examples{beside} need {need} rows, but the dataset has {have}. "
                    "Lower count, or give few-shot a dataset of its own."
                )
                problems.append(Problem(where, message))
            if check:
                problems += check_fields(self.templates, rows, self._extra)
                problems += check_fields([self._example], rows, {"prompt": "", "target": "", **self._extra})
        if problems:
            raise SuiteError(problems)

    def examples(self, index: int) -> list[int]:
        """Choose the rows that are the examples of one row; the same in every process and for every model and epoch.

        Args:
            index: The evaluated row, in the task's rows as loaded, whatever the limit.

        Returns:
            Indices into the rows that examples come from, in the order in which they are shown.
        """
        skip = index if self.own_dataset else -1
        if not self._random:
            return [i for i in range(self.count + 1) if i != skip][: self.count]
        # Python may change what random.Random draws from a seed; a hash stays what it is.
        chosen: dict[int, None] = {}
        draw = 0
        while len(chosen) < self.count:
            text = f"{self._seed}:{index}:{draw}".encode("ascii")
            at = int.from_bytes(hashlib.sha256(text).digest()[:16]) % len(self._rows)
            draw += 1
            if at != skip:
                chosen[at] = None
        return list(chosen)

    def prefix(self, index: int, fetch: Callable[[int], Mapping[str, Any]] | None = None) -> str:
        """Render what goes before the prompt: the examples, each followed by the separator.

        Args:
            index: The evaluated row.
            fetch: Returns a row by its index, after preprocessing; by default the row as it is.

        Returns:
            The text; empty where `count` is 0.

        Raises:
            SampleError: What `fetch` raises, or a template whose text grows beyond all bounds.
        """
        return "".join(self._text(i, fetch) + self._separator for i in self.examples(index))

    def _text(self, index: int, fetch: Callable[[int], Mapping[str, Any]] | None) -> str:
        text = self._cache.get(index)
        if text is None:
            row = self._rows[index] if fetch is None else fetch(index)
            context = {**row, **self._extra}
            prompt, target = self._prompt.render(context), self._target.render(context)
            text = self._example.render({**context, "prompt": prompt, "target": target})
            if len(self._cache) < _CACHED_EXAMPLES:
                self._cache[index] = text
        return text
