"""The house: no arrow goes up, the wings do not lean on each other, no files import each other in a circle, and no room
has become the whole house."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import orgthink

ROOT = Path(orgthink.__file__).parent

ROOMS = (
    "util", "record", "grammar", "models", "tasks", "engines", "runtime", "tools", "organizations", "measure",
    "rewards", "credit", "view", "export", "evaluation", "training", "serve", "results", "api", "cli", "__main__",
)  # fmt: skip
"""The rooms, the lowest first. A module imports from lower rooms and from its own."""

ACTS = {"engines", "runtime", "tools", "organizations"}
"""The wing that acts."""

JUDGES = {"measure", "rewards", "credit", "view", "export"}
"""The wing that judges."""

LONG = 300
"""Lines from which a file is named in the report."""


def dotted(file: Path, root: Path) -> str:
    """`orgthink.runtime.session` of the file, for the package in the folder `root`."""
    names = (root.name, *file.relative_to(root).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of a package, by its dotted name."""
    return {dotted(file, root): file for file in sorted(root.rglob("*.py"))}


def part(name: str, package: str = "orgthink") -> str | None:
    """`runtime` of `orgthink.runtime.session`; `None` for the package itself and for other packages."""
    names = name.split(".")
    return names[1] if names[0] == package and len(names) > 1 else None


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
    own = part(module)
    found = []
    for other in imported:
        room = part(other)
        if room is None or room in (own, "__version__"):
            continue
        if room not in ROOMS:
            found.append(f"{module} imports {other}, whose room is not in the list of this test")
        elif own is not None and ROOMS.index(room) > ROOMS.index(own):
            found.append(f"{module} imports {other}: {room} is above {own}")
        elif (own in ACTS and room in JUDGES) or (own in JUDGES and room in ACTS):
            found.append(f"{module} imports {other}: the two wings meet in evaluation and training only")
    return found


def arrows(root: Path = ROOT) -> dict[str, set[str]]:
    """Module → modules of the same package that it imports."""
    known = modules(root)
    found: dict[str, set[str]] = {}
    for module, file in known.items():
        names = imports(file.read_text(encoding="utf-8"), module, is_package=file.name == "__init__.py")
        targets = (name if name in known else name.rpartition(".")[0] for name in names)
        found[module] = {target for target in targets if target in known and target != module}
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str] | None:
    """Modules that import each other, in order, the first again at the end; `None` if there are none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for other in sorted(graph[module]):
            if (found := visit(other, [*path, module])) is not None:
                return found
        done.add(module)
        return None

    return next((found for module in sorted(graph) if (found := visit(module, [])) is not None), None)


@pytest.mark.parametrize("module", modules())
def test_no_upward_arrow_and_no_crossing(module):
    file = modules()[module]
    assert part(module) is None or part(module) in ROOMS, f"{module} is in a room that is not in the list of this test"
    if part(module) is not None:
        assert not faults(module, imports(file.read_text(), module, is_package=file.name == "__init__.py"))


def test_no_files_import_each_other_in_a_circle():
    assert circle(arrows()) is None


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("orgthink.runtime.session", "from orgthink.organizations import parallel", "above"),
        ("orgthink.engines.vllm", "import orgthink.runtime.budget", "above"),
        ("orgthink.engines.vllm", "from orgthink import runtime", "above"),
        ("orgthink.engines.vllm", "from ..runtime import session", "above"),
        ("orgthink.engines.vllm", "def f():\n    from orgthink.cli import main", "above"),
        ("orgthink.grammar.verdict", "from orgthink.tasks.task import Task", "above"),
        ("orgthink.measure.latency", "from orgthink.runtime.agent import Agent", "wings"),
        ("orgthink.view.html", "from orgthink.engines.engine import Engine", "wings"),
        ("orgthink.organizations.votes", "from orgthink.nowhere import x", "not in the list"),
        ("orgthink.training.sft", "from orgthink.runtime import x\nfrom orgthink.measure import y", None),
        ("orgthink.runtime.agent", "from orgthink.engines import engine\nimport asyncio\nfrom . import budget", None),
        ("orgthink.cli", "from orgthink import __version__", None),
    ],
)
def test_what_the_test_of_arrows_finds(module, source, wrong):
    found = faults(module, imports(source, module))
    assert not found if wrong is None else len(found) == 1 and wrong in found[0]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "from house import b", "b": "from house.c import x", "c": "import house.a"}, ["house.a", "house.b"]),
        ({"a": "from house import b", "b": "def f():\n    from house import a"}, ["house.a", "house.b"]),
        ({"a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.b", "b": "import house.a"}, []),
        ({"a": "from house import b", "b": "import house.c", "c": "import json"}, None),
    ],
    ids=["three files", "a late import", "an import for types", "none"],
)
def test_a_circle_that_is_put_in_on_purpose_is_found(tmp_path, files, found):
    root = tmp_path / "house"
    root.mkdir()
    for name, source in {"__init__": "", **files}.items():
        (root / f"{name}.py").write_text(source)
    seen = circle(arrows(root))
    assert seen is None if found is None else seen is not None and set(found) <= set(seen)


def test_no_two_test_files_have_the_same_name():
    """pytest refuses the second one."""
    here = Path(__file__).parent
    files = [*here.rglob("test_*.py"), *(here.parent / "packages").glob("*/tests/**/test_*.py")]
    assert not [name for name, times in Counter(file.name for file in files).items() if times > 1]


def test_report_long_files(capsys):
    """Not a limit: a list of files that may have become two."""
    lengths = {file.relative_to(ROOT.parent): len(file.read_text().splitlines()) for file in modules().values()}
    with capsys.disabled():
        for file, lines in sorted(lengths.items(), key=lambda item: -item[1]):
            if lines > LONG:
                print(f"\n{file}: {lines} lines, aim for {LONG}", end="")
    assert lengths
