"""Counts lines of code by room: `python tests/lines.py`; with `--write` the table goes into AGENTS.md.

A line is a logical one: a statement, however long it is when it is written out. Blank lines, comments and docstrings do
not count. What an extra is needed for, a cluster (`scale/`) and a server (`serve/`), is no part of the core.
Neither are `baselines/` and `arena/`, what organizations are compared with and how.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent / "orgthink"

APART = ("scale", "serve", "baselines", "arena")
"""Rooms of the package that are no part of the core."""

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def logical_lines(source: str) -> int:
    """Statements of a Python source that are not bare strings."""
    count, statement = 0, list[tokenize.TokenInfo]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _LAYOUT:
            continue
        if token.type != tokenize.NEWLINE:
            statement.append(token)
            continue
        count += not all(part.type == tokenize.STRING for part in statement)
        statement = []
    return count


def room(file: Path, root: Path = ROOT) -> str:
    """The folder of the package that a file lies in; files at the top are a room of their own."""
    parts = file.relative_to(root).parts
    return parts[0] if len(parts) > 1 else "(top)"


def rooms(root: Path = ROOT) -> Mapping[str, int]:
    """Logical lines of each room of the core, the largest first."""
    counts: Counter[str] = Counter()
    for file in root.rglob("*.py"):
        if room(file, root) not in APART:
            counts[room(file, root)] += _lines(file)
    return dict(counts.most_common())


def table(root: Path = ROOT) -> str:
    """The rooms of the core with their shares, and what is counted apart, in Markdown."""
    found = rooms(root)
    beside = (
        *(root / name for name in APART),
        *(root.parent / name for name in ("pocket/orgthink_pocket", "experiments", "tests")),
    )
    core = sum(found.values())
    apart = {folder.name: sum(map(_lines, folder.rglob("*.py"))) for folder in beside}
    rows = [f"| `{name}` | {lines:,} | {lines / core:.0%} |" for name, lines in found.items()]
    rows += [f"| **core** | **{core:,}** | |", *(f"| `{name}` | {lines:,} | apart |" for name, lines in apart.items())]
    return "\n".join(["| room | lines | share |", "|---|--:|--:|", *rows])


def _lines(file: Path) -> int:
    return logical_lines(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    print(table())
    if sys.argv[1:] == ["--write"]:
        page = ROOT.parent / "AGENTS.md"
        between = re.compile(r"(?<=<!-- lines -->\n\n).*?(?=\n\n<!-- /lines -->)", re.DOTALL)
        page.write_text(between.sub(table(), page.read_text(encoding="utf-8")), encoding="utf-8")
