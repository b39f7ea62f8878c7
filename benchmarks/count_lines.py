"""Lines of code in each room: `python -m benchmarks.count_lines`.

A line is a logical line: one statement, however it is wrapped. Blank lines, comments and docstrings do not count, so a
count does not change when code is formatted or documented.
"""

from __future__ import annotations

import ast
import io
import token
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "orgthink"
APART = ("scale/verl", "scale/sizing")
"""Rooms of the package that do not count as its core."""
INSIDE = (*APART, "engines/local")
"""Rooms that lie inside the folder of another one."""
OUTSIDE = ("pocket", "experiments", "benchmarks", "tests")
"""Folders beside the package."""


def logical_lines(source: str) -> int:
    """Logical lines of a module, its docstrings left out."""
    newlines = sum(item.type == token.NEWLINE for item in tokenize.generate_tokens(io.StringIO(source).readline))
    return newlines - sum(map(_is_docstring, ast.walk(ast.parse(source))))


def _is_docstring(node: ast.AST) -> bool:
    """A statement that is nothing but a string: a docstring, or the line under a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def counted(files: Iterable[Path]) -> int:
    return sum(logical_lines(file.read_text(encoding="utf-8")) for file in files)


def rooms() -> Counter[str]:
    """Logical lines by room of the package: a folder, or `.` for the modules at its top."""
    found: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        folders = file.relative_to(PACKAGE).parts[:-1]
        inner = "/".join(folders[:2])
        found[inner if inner in INSIDE else "".join(folders[:1]) or "."] += counted([file])
    return +found


def table(lines: Mapping[str, int]) -> str:
    """A Markdown table, the largest room first; shares are of the core."""
    core = {name: count for name, count in lines.items() if name not in APART}
    total = sum(core.values())
    rows = [f"| `{name}` | {count:,} | {count / total:.0%} |" for name, count in _largest_first(core)]
    rows += [f"| **core** | **{total:,}** | |"]
    rows += [f"| `{name}` | {count:,} | apart |" for name, count in _largest_first(_apart(lines))]
    return "\n".join(["| room | lines | share |", "|---|--:|--:|", *rows])


def _apart(lines: Mapping[str, int]) -> dict[str, int]:
    outside = {f"{name}/": counted((ROOT / name).rglob("*.py")) for name in OUTSIDE}
    return {name: count for name, count in lines.items() if name in APART} | outside


def _largest_first(lines: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(lines.items(), key=lambda item: -item[1])


if __name__ == "__main__":
    print(table(rooms()))
