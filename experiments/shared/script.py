"""What the scripts behind `make results-…` have in common: options, what is written, and how they end."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from orgthink.errors import UserError
from orgthink.store import write_whole
from orgthink.threads import set_threads


@dataclass(frozen=True)
class Options:
    """What is measured, and where it goes."""

    n: int = 200
    """Held-out problems."""
    runs: Path = Path("runs")
    """Where the trained runs are, and the evaluations go."""
    out: Path = Path("results")
    """Where results.json, plots and README.md go."""
    stand_in: str | None = None
    """A model that stands in for every trained one, to try the script; needs another --out."""


Some = TypeVar("Some", bound=Options)


def require_place(options: Options, home: Path) -> None:
    """UserError if results of a stand-in would overwrite the recipe's own."""
    if options.stand_in and options.out.resolve() == home:
        raise UserError("results of a stand-in are no results: give them another --out")


def write(
    results: Mapping[str, Any],
    out: Path,
    home: Path,
    draw: Callable[[Mapping[str, Any], Path], object],
    render: Callable[[str, Mapping[str, Any]], str],
) -> None:
    """results.json, the plots and the tables of README.md, which comes from `home` if there is none."""
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "results.json", (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode())
    try:
        draw(results, out)
    except ModuleNotFoundError as error:
        raise UserError(f"the plots need {error.name}: pip install 'orgthink[plots]'") from error
    page = out / "README.md"
    if not page.exists():
        shutil.copy(home / "README.md", page)
    write_whole(page, render(page.read_text(), results).encode())
    print(f"{out / 'results.json'}, the plots and the tables of README.md are written")


def main(options: type[Some], make: Callable[[Some], object], says: str | None) -> int:
    """Exit codes: 0; 2 for what the user can put right; 130 after Ctrl-C."""
    import tyro

    set_threads(spare=1)
    given = tyro.cli(options, description=says)
    try:
        make(given)
    except UserError as error:
        print(f"results: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("results: stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0
