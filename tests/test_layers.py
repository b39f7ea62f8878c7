"""No module imports from a floor above its own, the wings do not lean on each other, and files stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import orgthink

ROOT = Path(orgthink.__file__).parent

FLOORS = {
    "engines": 1, "grammar": 1, "episode": 1, "tasks": 1, "errors": 1, "provenance": 1, "threads": 1,
    "runtime": 2, "measure": 2, "store": 2,
    "tools": 3, "rewards": 3, "view": 3, "export": 3,
    "organizations": 4, "credit": 4,
    "training": 5, "evaluate": 5, "serve": 5,
    "cli": 6, "scale": 6, "__main__": 6,
}  # fmt: skip

LEFT = {"engines", "runtime", "tools", "organizations"}
"""The wing that acts."""

RIGHT = {"measure", "rewards", "credit", "view", "export", "store"}
"""The wing that judges."""

LONG = 300
"""Lines from which a file is named in the report."""

MODULES = sorted(ROOT.rglob("*.py"))


def _part(dotted: str) -> str | None:
    """`runtime` of `orgthink.runtime.session`; `None` for the package itself and for other packages."""
    names = dotted.split(".")
    return names[1] if names[0] == "orgthink" and len(names) > 1 else None


def _dotted(file: Path, root: Path = ROOT) -> str:
    names = ("orgthink", *file.relative_to(root).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Dotted names of everything a module imports, lazily or for types only included."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def faults(module: str, imported: Iterator[str]) -> list[str]:
    """What is wrong with the imports of a module."""
    own = _part(module)
    if own is None:
        return [f"{module} imports {other}: the package itself stays light" for other in imported if _part(other)]
    found = []
    for other in imported:
        part = _part(other)
        if part is None or part == own or part == "__version__":
            continue
        if part not in FLOORS:
            found.append(f"{module} imports {other}, which has no floor: give it one in this test")
        elif FLOORS[part] > FLOORS[own]:
            found.append(f"{module} (floor {FLOORS[own]}) imports {other} (floor {FLOORS[part]}): an upward arrow")
        elif {own, part} & LEFT and {own, part} & RIGHT:
            found.append(f"{module} imports {other}: the wings meet in training and evaluate only")
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_upward_arrow_and_no_crossing(file):
    module = _dotted(file)
    assert _part(module) is None or _part(module) in FLOORS, f"{module} has no floor: give it one in this test"
    assert not faults(module, imports(file.read_text(), module, is_package=file.name == "__init__.py"))


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("orgthink.runtime.session", "from orgthink.organizations import parallel", "upward"),
        ("orgthink.engines.local.engine", "import orgthink.runtime.budget", "upward"),
        ("orgthink.engines.local.engine", "from orgthink import runtime", "upward"),
        ("orgthink.engines.local.engine", "from ..runtime import session", "upward"),
        ("orgthink.engines.local.engine", "def f():\n    from orgthink.cli import main", "upward"),
        ("orgthink.measure.latency", "from orgthink.runtime.agent import Agent", "wings"),
        ("orgthink.view.html", "from orgthink.engines.engine import Engine", "wings"),
        ("orgthink.organizations.parallel", "from orgthink.measure.latency import critical_path", "wings"),
        ("orgthink.organizations.parallel", "from orgthink.nowhere import x", "no floor"),
        ("orgthink", "from orgthink.episode import Episode", "light"),
        ("orgthink.training.sft", "from orgthink.runtime import x\nfrom orgthink.measure import y", None),
        ("orgthink.runtime.agent", "from orgthink.engines import engine\nimport asyncio\nfrom . import budget", None),
        ("orgthink.cli", "from orgthink import __version__", None),
    ],
)
def test_what_the_test_finds(module, source, wrong):
    found = faults(module, imports(source, module))
    assert not found if wrong is None else len(found) == 1 and wrong in found[0]


def test_report_long_files(capsys):
    """Not a limit: a list of files that may have become two."""
    lengths = {file.relative_to(ROOT.parent): len(file.read_text().splitlines()) for file in MODULES}
    with capsys.disabled():
        for file, lines in sorted(lengths.items(), key=lambda item: -item[1]):
            if lines > LONG:
                print(f"\n{file}: {lines} lines, aim for {LONG}", end="")
    assert lengths
