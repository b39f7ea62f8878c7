"""The evidence of a paper: run its arenas, decide its claims, write both to its pages.

Each folder beside the script of a paper holds an arena. The first one trains; the others use its trainings on other
problems. What is done is not repeated. Tables, plots and claims are written as soon as there are any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.arena.results import Options as ArenaOptions
from experiments.arena.results import make as run_arena
from experiments.shared.claims import Claim, Results, claims_table
from experiments.shared.readme import fill
from experiments.shared.script import run_script
from experiments.shared.times import times_table
from orgthink.arena.config import Arena, read_arena
from orgthink.cli.resuming import INTERRUPTED
from orgthink.errors import UserError
from orgthink.files import write_whole
from orgthink.tabular import json_object
from orgthink.terminal import show


@dataclass(frozen=True)
class Options:
    """Run the arenas of a paper's evidence, and decide its claims."""

    only: tuple[str, ...] = ()
    """Arenas to run now; without it all but those that need a GPU or that a later one repeats or replaces."""


Measure = tuple[str, Callable[[Path, Arena], Results | None]]
"""An arena's name, and a function of the folder of its runs and of what it compares: `None` where nothing can be
measured, such as without a GPU."""


@dataclass(frozen=True)
class Evidence:
    """Arenas of a paper, and the claims that they decide."""

    home: Path
    """Folder of the script, of a folder for each arena, and of README.md with places for `claims` and `times`."""
    arenas: tuple[str, ...]
    """Folders of the arenas, in the order in which they are run."""
    claims: Callable[[Mapping[str, Results]], list[Claim]]
    """Function from the results of the arenas that have some, the first one of `arenas` among them, to claims."""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    """What is measured in the recorded runs of an arena besides: name of the file and of the results → arena and
    function."""
    tables: Callable[[Mapping[str, Results], Mapping[str, Results]], Mapping[str, str]] = lambda found, rows: {}
    """Function from the same results and the rows of the claims, by their id, to other tables of README.md."""
    extra: tuple[str, ...] = ()
    """Arenas that need what others do not, such as a GPU, or that a later one repeats or replaces. They run where
    `--only` names them; their claims are decided with the others."""

    @property
    def paper(self) -> Path:
        """Results of the paper, which have the claims too."""
        return self.home.parent / "results.json"

    def make(self, options: Options) -> int:
        """Run what is missing and write everything. Returns the largest exit code of the arenas, or 130 after
        Ctrl-C.
        """
        worst = 0
        for name in options.only or self.arenas:
            try:
                code = run_arena(ArenaOptions(self.home / name / "arena.toml"))
            except UserError as error:  # such as a model that has to be made first: the other arenas do not need it
                show(f"orgthink: {name}: {error}", error=True)
                code = 2
            self.write()
            worst = max(worst, code)
            if code >= INTERRUPTED:
                break
        return worst

    def write(self) -> None:
        """Decide the claims once the first arena has results, and write them to results.json and README.md."""
        files = {name: self.home / name / "results.json" for name in (*self.arenas, *self.extra)}
        found = {name: json_object(file) for name, file in files.items() if file.exists()}
        if self.arenas[0] not in found:
            return
        times = times_table(found, self.arenas)
        found |= self._measured()
        rows = [claim.row() for claim in self.claims(found)]
        paper: Mapping[str, Any] = json.loads(self.paper.read_text())
        write_whole(self.paper, (json.dumps({**paper, "claims": rows}, indent=1, ensure_ascii=False) + "\n").encode())
        page = self.home / "README.md"
        blocks = {"claims": claims_table(rows), "times": times, **self.tables(found, {row["id"]: row for row in rows})}
        write_whole(page, fill(page.read_text(), blocks).encode())

    def _measured(self) -> dict[str, Results]:
        """The measures, from the runs where these are here, else as they were stored beside the arena."""
        found: dict[str, Results] = {}
        for name, (arena, measure) in self.measures.items():
            options, file = ArenaOptions(self.home / arena / "arena.toml"), self.home / arena / f"{name}.json"
            recorded = (options.folder / "evaluations").is_dir()
            measured = measure(options.folder, read_arena(options.config)) if recorded else None
            if measured is not None:
                write_whole(file, (json.dumps(measured, indent=1) + "\n").encode())
            if file.exists():
                found[name] = json_object(file)
        return found

    def main(self, says: str | None) -> int:
        """Run the script. Returns the exit code: 2 for an error of the user."""
        return run_script(self.make, Options, says)
