"""Finds words and phrases that readers have to read twice: `python tests/words.py`.

It reads Python files, prompts, scripts of the page and documents, and prints each hit with its line. The exit code is 1
if there are any. `--count` prints only the number of each kind, `--documents` the number of words of the documents.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

READ = (
    "orgthink",
    "packages",
    "papers",
    "examples",
    "benchmarks",
    "docs",
    "pocket",
    "README.md",
    "AGENTS.md",
    "CONTRIBUTING.md",
)
"""Folders and files that are read; tests are not."""

KINDS = (".py", ".md", ".toml", ".js", ".html", ".sh")
"""Endings of the files that are read."""

PHRASES = {
    "pronoun without a person": r"\b(?:nobody|whoever|somebody|anybody|everybody)\b",
    "who without a noun": r"(?:\A|(?<=[.;:(]))\s*Who\b(?![^.\n]*\?)|\b(?:of|to|by|from|and|or|than|as) who\b",
    "is none": r"\b(?:is|are|was) (?-i:none)\b(?! of)",
    "anew": r"\banew\b",
    "at hand": r"\bat hand\b",
    "by its letter": r"\bby its letter\b",
    "as much as": r"\bas much as\b",
    "that many": r"\bthat many\b",
    "beside": r"\bbeside\b",
    "for want of": r"\bfor want of\b",
    "sentence without a verb": r"(?:^|(?<=[.!?] ))(?:\"\"\"|# )?Of (?!course\b)[a-z][^.?!,]*\.(?=\s|\"|$)",
}
"""Kind of a phrase → pattern of it, in any case except at the beginning of a sentence."""

NAMES = {"said", "told", "asked", "heard", "shown", "kept", "chosen"}
"""Participles that may not name a function, a class, a parameter or a variable."""


def texts(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Files that are read, with their text."""
    for name in READ:
        place = root / name
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            inside = file.relative_to(root).parts
            if file.suffix in KINDS and file.is_file() and not {"tests", "outcomes", "node_modules"} & set(inside):
                yield file, file.read_text(encoding="utf-8")


def phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind and words of each phrase in a text."""
    for kind, pattern in PHRASES.items():
        flags = re.MULTILINE if kind.startswith(("who", "sentence")) else re.MULTILINE | re.IGNORECASE
        for found in re.finditer(pattern, text, flags):
            yield text.count("\n", 0, found.start()) + 1, kind, found[0].strip()


def names(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind and name of each definition in a Python source that a participle names."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if NAMES & set(name.lower().split("_")):
            yield node.lineno, "participle as a name", name


def hits(root: Path = ROOT) -> Iterator[tuple[Path, int, str, str]]:
    """File, line, kind and words of everything that is found."""
    for file, text in texts(root):
        for line, kind, words in (*phrases(text), *(names(text) if file.suffix == ".py" else ())):
            yield file, line, kind, words


def documents(root: Path = ROOT) -> dict[str, int]:
    """Words of the README, and of the README and the pages of `docs/` together."""
    count = {
        file: len(file.read_text(encoding="utf-8").split())
        for file in [root / "README.md", *(root / "docs").rglob("*.md")]
    }
    return {"README.md": count[root / "README.md"], "README.md and docs/": sum(count.values())}


def main(arguments: list[str]) -> int:
    root = Path(next((one for one in arguments if not one.startswith("-")), ROOT)).resolve()
    if "--documents" in arguments:
        print("\n".join(f"{words:,} words: {place}" for place, words in documents(root).items()))
        return 0
    found = list(hits(root))
    if "--count" in arguments:
        kinds = Counter(kind for _, _, kind, _ in found)
        print("\n".join(f"{count:5} {kind}" for kind, count in kinds.most_common()))
    else:
        print(
            "".join(f"{file.relative_to(root)}:{line}: {kind}: {words}\n" for file, line, kind, words in found), end=""
        )
    print(f"{len(found):5} in all")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
