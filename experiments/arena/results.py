"""Tables of an arena's file: `make results-arena` and `make results-evidence` write all of them.

    python -m experiments.arena.results                                                   ParaManager's tables
    python -m experiments.arena.results --config experiments/marsrl/arena/arena.toml      another arena

The command runs `orgthink arena` on the file under runs/, and writes results.json, plots and the tables of README.md
beside it. If it is stopped, the same command continues. A trial: `--n 8 --seeds 0 --runs build/arena --out build/out`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.shared.readme import fill
from experiments.shared.script import run_script
from orgthink.arena.config import Arena, read_arena
from orgthink.arena.tables import blocks
from orgthink.cli.arena import begun, conduct, taking
from orgthink.errors import UserError
from orgthink.files import write_whole
from orgthink.store import RunFolder

HERE = Path(__file__).parent
EVIDENCE = "evidence"
"""Folder of a paper's arenas that share their trainings."""


@dataclass(frozen=True)
class Options:
    """Run an arena of pocket models, and write its tables and plots."""

    config: Path = HERE / "arena.toml"
    """What is compared."""
    n: int | None = None
    """Number of held-out problems, instead of that of the file."""
    seeds: tuple[int, ...] = ()
    """Seeds, instead of those of the file."""
    only: tuple[str, ...] = ()
    """Methods to run now; the rows of others stay empty."""
    runs: Path | None = None
    """Folder of the arena's runs; without it runs/arena, runs/arena-PAPER for that of a paper, or
    runs/evidence-PAPER/NAME for evidence."""
    out: Path | None = None
    """Folder for results.json, the plots and README.md, instead of that of the file."""
    side_by_side: int = 2
    """Number of trainings and searches that run at once, each in a process with its share of the cores."""

    @property
    def folder(self) -> Path:
        """Folder of the arena's runs."""
        above = self.config.parent.parent
        if above.name == EVIDENCE:
            return self.runs or Path(f"runs/{EVIDENCE}-{above.parent.name}") / self.config.parent.name
        own = "" if self.config.parent == HERE else f"-{above.name}"
        return self.runs or Path(f"runs/arena{own}")

    @property
    def command(self) -> str:
        """What runs it."""
        return "make results-evidence" if self.config.parent.parent.name == EVIDENCE else "make results-arena"

    @property
    def target(self) -> Path:
        """Folder of what is written."""
        return self.out or self.config.parent

    @property
    def changes(self) -> dict[str, Any]:
        """Values that replace those of the file."""
        given = {"n": self.n, "seeds": list(self.seeds) or None}
        return {name: value for name, value in given.items() if value is not None}


def make(options: Options) -> int:
    """Run what is missing, then write results.json, the plots and the tables; the exit code of the arena.

    UserError if the folder of runs holds another arena, or if results of a trial would replace the published ones.
    """
    trial = options.changes or options.only
    if trial and options.target.resolve() == options.config.parent.resolve():
        raise UserError("results of a trial must not replace the published ones: give another --out")
    arena = read_arena(options.config, options.changes)
    only = frozenset(options.only)
    folder = _folder(options.folder, arena, only)
    code = conduct(folder, arena, only, options.command, options.side_by_side)
    if (folder.path / "results.json").is_file() and code < 2:
        write(folder.path, options.target, options.config.parent)
    return code


def _folder(path: Path, arena: Arena, only: frozenset[str]) -> RunFolder:
    if not (path / "config.json").is_file():
        return begun(path, arena, only)
    return taking(RunFolder.open(path), arena)


def write(runs: Path, out: Path, published: Path) -> None:
    """Copy the results and the plots, and fill the tables of README.md, which is first copied from the folder of the
    published ones if it is missing. Paths of the results are from the current folder: no machine's own are published.
    """
    out.mkdir(parents=True, exist_ok=True)
    results = (runs / "results.json").read_text()
    here = json.dumps(f"{Path.cwd()}{os.sep}", ensure_ascii=False)[:-1]
    write_whole(out / "results.json", results.replace(here, '"').encode())
    for file in sorted(runs.glob("frontier-*.svg")):
        shutil.copy(file, out / file.name)
    page = out / "README.md"
    if not page.exists():
        own = published / "README.md"
        shutil.copy(own if own.is_file() else HERE / "README.md", page)
    tables = blocks(json.loads(results))
    wanted = {name: block for name, block in tables.items() if f"<!-- {name} -->" in page.read_text()}
    write_whole(page, fill(page.read_text(), wanted).encode())
    print(f"{out / 'results.json'}, the plots and the tables of README.md are written")


def main() -> int:
    """Run the script. Returns the exit code: that of the arena, 2 for an error of the user, or 130 after Ctrl-C."""
    return run_script(make, Options, __doc__)


if __name__ == "__main__":
    sys.exit(main())
