"""`orgthink arena`: compares organizations at matched budgets, from one file of settings to one table."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from orgthink.cli import INTERRUPTED
from orgthink.cli.running import again, interruptible, settings_of, written
from orgthink.record.folder import RunFolder, dated, require_vacant
from orgthink.runtime.clock import run_main
from orgthink.util.errors import UserError, pick
from orgthink.util.files import locked
from orgthink.util.install import needing, pip_install
from orgthink.util.terminal import show

if TYPE_CHECKING:
    from orgthink_arena.contest.config import Arena
    from orgthink_arena.contest.plans import Cap


@dataclass(frozen=True, kw_only=True)
class ArenaCommand:
    """Compare organizations at matched budgets.

    Searches and trainings run first, then the reference without a cap, then all methods at the caps. Results go to a
    folder at once: after Ctrl-C, a crash or `kill -9`, `--resume DIR` continues. docs/arena.md explains the file.
    """

    config: Annotated[Positional[Path | None], arg(metavar="CONFIG")] = None
    """TOML file of the comparison."""
    out: Path | None = None
    """New folder; without it one under runs/, named after the file and the time."""
    resume: Path | None = None
    """Folder to continue; it knows all settings."""
    n: int | None = None
    """Number of problems, instead of that of the file."""
    only: tuple[str, ...] = ()
    """Methods to run now, and the reference; the rows of others stay empty."""

    def __call__(self) -> int:
        with needing("local"):
            from orgthink_arena.contest.config import Arena, read_arena
        if self.resume is not None:
            if self.config is not None or self.n is not None or self.out is not None:
                raise UserError("--resume continues a folder with its own settings: leave out CONFIG, --n and --out")
            folder = RunFolder.open(self.resume)
            arena = settings_of(folder, "arena", Arena)
            self._require_methods(arena)
        else:
            if self.config is None:
                raise UserError("name the file of the comparison, or --resume DIR")
            arena = read_arena(self.config, {} if self.n is None else {"n": self.n})
            path = self.out or dated(self.config.stem)
            require_vacant(path)
            self._require_methods(arena)
            folder = begun(path, arena, frozenset(self.only))
        with written(folder):
            return conduct(folder, arena, frozenset(self.only))

    def _require_methods(self, arena: Arena) -> None:
        for name in self.only:
            pick("method", name, arena.methods)


def begun(path: Path, arena: Arena, only: frozenset[str] = frozenset()) -> RunFolder:
    """The new folder of an arena. UserError, and no folder, for a method that cannot run."""
    from orgthink_arena.contest.contest import require_plans

    require_plans(arena, methods_of(arena, only))
    return RunFolder.create(path, "arena", arena)


def methods_of(arena: Arena, only: frozenset[str]) -> list[str]:
    """The methods to run now: these and the reference, or else all."""
    return [name for name in arena.methods if not only or name in {*only, arena.reference}]


def conduct(folder: RunFolder, arena: Arena, only: frozenset[str] = frozenset(), command: str | None = None) -> int:
    """Run what is missing, write the results and print the table. Returns the exit code.

    `command` is shown in the conditions; `None`: the command that resumes the folder. UserError if another process
    writes the folder.
    """
    from orgthink_arena.contest.contest import require_plans
    from orgthink_arena.contest.preparations import prepare_all

    methods, found = methods_of(arena, only), None
    with locked(folder.path), suppress(KeyboardInterrupt):  # the second Ctrl-C, while the event loop is blocked
        require_plans(arena, methods)
        prepared = prepare_all(folder.path, arena, methods)
        found = run_main(interruptible(lambda stop: _contest(folder, arena, prepared, only, stop, command)))
    if found is None:
        show(f"orgthink: stopped; {again(folder)}", error=True)
        return INTERRUPTED
    failed = [row for rows in found["tables"].values() for row in rows if row["status"].startswith("failed")]
    failed_methods = dict.fromkeys(row["method"] for row in failed)
    if failed_methods:
        show(f"orgthink: {', '.join(failed_methods)} failed; {again(folder)}", error=True)
    return int(bool(failed_methods))


async def _contest(
    folder: RunFolder,
    arena: Arena,
    prepared: dict[tuple[str, int], Any],
    only: frozenset[str],
    stop: threading.Event,
    command: str | None,
) -> dict[str, Any] | None:
    """The results, which are written too; `None` if Ctrl-C stopped them."""
    from orgthink_arena.contest.contest import Contest
    from orgthink_arena.contest.evaluations import Evaluations, Stopped
    from orgthink_arena.contest.report import first_cap, results_of

    async with Evaluations(stop) as lab:
        contest = Contest(folder.path, arena, lab, prepared, only)
        try:
            mean, outcomes = await contest.outcomes()
        except Stopped:
            return None
    results = results_of(contest, mean, outcomes, folder, command or again(folder).partition(": ")[2])
    _write(folder, first_cap(arena, mean), results)
    return results


def _write(folder: RunFolder, first: Cap, results: dict[str, Any]) -> None:
    """Write results.json, table.md and the plots; print the first table."""
    from orgthink_arena.contest.tables import blocks, document

    folder.write_json("results.json", results)
    folder.write("table.md", document(results))
    try:
        from orgthink_arena.contest.plots import draw

        draw(results, folder.path)
    except ModuleNotFoundError as error:
        show(f"orgthink: no plots without {error.name}: {pip_install('plots')}", error=True)
    show(blocks(results)[f"at-{first.name}"], "", blocks(results)["conditions"], "")
    show(f"results.json, table.md and plots are in {folder.path}")
