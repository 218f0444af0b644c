"""Imports point one way; this reads them and holds the picture of docs/architecture.md true."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pytest_evalgrader

PACKAGE = Path(pytest_evalgrader.__file__).parent
LEVELS = {
    "plugin": 9,
    "cli": 9,
    "judge_cli": 9,
    "session": 8,
    "collection": 8,
    "scheduling": 8,
    "reporting": 8,
    "options": 8,
    "hookspecs": 8,
    "plan": 7,
    "pipeline": 7,
    "aggregate": 7,
    "graders": 6,
    "gateway": 5,
    "sandbox": 5,
    "data": 4,
    "metrics": 4,
    "gates": 4,
    "records": 3,
    "suite": 3,
    "errors": 1,
}
MAY_IMPORT_PYTEST = {
    "plugin",
    "cli",
    "judge_cli",
    "session",
    "collection",
    "scheduling",
    "reporting",
    "options",
    "hookspecs",
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, int]]:
    """Absolute names of what a module imports when it runs; type checking blocks are left out."""
    tree = ast.parse(path.read_text("utf-8"))
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    package = ("pytest_evalgrader", *path.relative_to(PACKAGE).parts[:-1])
    out = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            out += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            out.append((module, node.lineno))
            if module == "pytest_evalgrader":
                out += [(f"{module}.{alias.name}", node.lineno) for alias in node.names]
    return out


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(path)
    for name, line in imports(path):
        if name.split(".")[0] in ("pytest", "_pytest", "xdist"):
            assert own in MAY_IMPORT_PYTEST, f"{path.name}:{line} imports {name}"
        if not name.startswith("pytest_evalgrader."):
            continue
        other = name.split(".")[1]
        if other == own or other not in LEVELS or own == "cli":
            continue
        assert LEVELS[other] <= LEVELS[own], f"{path.name}:{line}: {own} imports {other}"
        assert {own, other} != {"gateway", "sandbox"}, f"{path.name}:{line}: gateway and sandbox do not know each other"


def test_every_part_has_a_level() -> None:
    assert {part_of(path) for path in MODULES} <= set(LEVELS)


def test_the_plugin_imports_neither_pydantic_nor_openai() -> None:
    for name in ("plugin", "options", "hookspecs"):
        for module, line in imports(PACKAGE / f"{name}.py"):
            assert module.split(".")[0] not in ("pydantic", "openai"), f"{name}.py:{line}"
