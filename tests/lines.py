"""Counts lines of code by room: `python tests/lines.py`; with `--write` the table goes into AGENTS.md.

A line is a logical one: a statement, however long it is when it is written out. Blank lines, comments and docstrings do
not count.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent

CEILINGS = {
    # settings of AsyncThink in issue 49, issue 48, evolution and traces in issue 49, shared helpers, stored prompts,
    # picture of inherited contexts, a model for each Fork, names of calls and the budget in issue 49,
    # contradictory models, prices and frontiers in issue 49, the second round of trust and the soak in issue 50
    "orgthink": 20_212 + 182 + 72 + 278 + 18 + 6 + 7 + 130 + 49 + 25 + 81 + 40 + 4,
    "packages/arena/orgthink_arena": 4_500,
    "packages/pocket/orgthink_pocket": 2_500,
    "papers": 2_000 + 124 + 60,  # the question, evolution strategies against GRPO in issue 49
}
"""Most lines of each part of the repository. A part that needs more finds it by removing something else."""

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


def part(name: str, root: Path = ROOT) -> int:
    """Logical lines of a folder of the repository, without its tests."""
    files = (file for file in (root / name).rglob("*.py") if "tests" not in file.relative_to(root / name).parts)
    return sum(logical_lines(file.read_text(encoding="utf-8")) for file in files)


def rooms(root: Path = ROOT) -> Mapping[str, int]:
    """Logical lines of each room of the package, the largest first; `api` and other single files are rooms too."""
    counts: Counter[str] = Counter()
    for file in (root / "orgthink").rglob("*.py"):
        counts[file.relative_to(root / "orgthink").parts[0]] += logical_lines(file.read_text(encoding="utf-8"))
    return dict(counts.most_common())


def table(root: Path = ROOT) -> str:
    """Lines of each part with its ceiling, and of the rooms, in Markdown."""
    rows = [f"| **`{name}/`** | **{part(name, root):,}** | {most:,} |" for name, most in CEILINGS.items()]
    rows += [f"| `orgthink/{name}` | {lines:,} | |" for name, lines in rooms(root).items()]
    return "\n".join(["| part | lines | at most |", "|---|--:|--:|", *rows])


def with_table(page: str, new: str) -> str:
    """A page with this table between its marks."""
    return re.sub(r"(?<=<!-- lines -->\n).*?(?=<!-- /lines -->)", lambda _: f"\n{new}\n\n", page, flags=re.DOTALL)


if __name__ == "__main__":
    print(table())
    if sys.argv[1:] == ["--write"]:
        page = ROOT / "AGENTS.md"
        page.write_text(with_table(page.read_text(encoding="utf-8"), table()), encoding="utf-8")
