"""Train, compare and decide the claims about AsyncThink: `make results-evidence`.

Each folder beside this file holds an arena. That of `countdown` trains; the others use its trainings on other problems.
What is done is not repeated. Tables, plots and claims are written as soon as there are any.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.arena.results import Options as ArenaOptions
from experiments.arena.results import make as run_arena
from experiments.asyncthink.evidence.claims import claims
from experiments.shared.claims import claims_table
from experiments.shared.readme import fill
from experiments.shared.script import run_script
from orgthink.cli.resuming import INTERRUPTED
from orgthink.files import write_whole
from orgthink.tabular import json_object

HERE = Path(__file__).parent
PAPER = HERE.parent / "results.json"
"""Results of the paper, which have the claims too."""
ARENAS = ("countdown", "sudoku", "sums", "parts", "several", "chains")
"""Folders of the arenas, in the order in which they are run."""


@dataclass(frozen=True)
class Options:
    """Run the arenas of AsyncThink's evidence, and decide its claims."""

    only: tuple[str, ...] = ()
    """Arenas to run now; without it all."""


def make(options: Options) -> int:
    """Run what is missing and write everything. Returns the largest exit code of the arenas, or 130 after Ctrl-C."""
    worst = 0
    for name in options.only or ARENAS:
        code = run_arena(ArenaOptions(HERE / name / "arena.toml"))
        write()
        worst = max(worst, code)
        if code >= INTERRUPTED:
            break
    return worst


def write() -> None:
    """Decide the claims of the arenas that have results, and write them to results.json of the paper and README.md."""
    found = {
        name: json_object(HERE / name / "results.json") for name in ARENAS if (HERE / name / "results.json").exists()
    }
    if "countdown" not in found:
        return
    rows = claims(found["countdown"], found)
    paper: Mapping[str, Any] = json.loads(PAPER.read_text())
    write_whole(PAPER, (json.dumps({**paper, "claims": rows}, indent=1, ensure_ascii=False) + "\n").encode())
    page = HERE / "README.md"
    write_whole(page, fill(page.read_text(), {"claims": claims_table(rows)}).encode())


def main() -> int:
    """Run the script. Returns the exit code: 2 for an error of the user."""
    return run_script(make, Options, __doc__)


if __name__ == "__main__":
    sys.exit(main())
