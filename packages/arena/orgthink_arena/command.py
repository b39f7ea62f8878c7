"""`orgthink arena`: organizations side by side at matched budgets, from one file of settings to one table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from orgthink.cli.resuming import INTERRUPTED, again, interruptible, settings_of, written
from orgthink.record.folder import RunFolder, dated, require_vacant
from orgthink.runtime.clock import run_main
from orgthink.util.errors import UserError, pick
from orgthink.util.files import locked
from orgthink.util.terminal import show
from orgthink.util.validation import plain

if TYPE_CHECKING:
    from orgthink_arena.contest.config import Arena
    from orgthink_arena.contest.contest import Contest
    from orgthink_arena.contest.plans import Cap


@dataclass(frozen=True, kw_only=True)
class ArenaCommand:
    """Compare organizations at matched budgets: one pool, one account, caps from a reference, paired intervals.

    Searches and trainings come first, then the reference without a cap, then everybody at the caps. Everything goes to
    a folder as it happens; after Ctrl-C, a crash or `kill -9`, `--resume DIR` goes on. docs/arena.md has the file.
    """

    config: Annotated[Positional[Path | None], arg(metavar="CONFIG")] = None
    """TOML file that says what is compared."""
    out: Path | None = None
    """New folder; without it one under runs/, named after the file and the time."""
    resume: Path | None = None
    """Folder to go on with; it knows everything else. With CONFIG too, which may have other methods: those that are the
    same are not run again."""
    n: int | None = None
    """Number of problems, instead of that of the file."""
    only: tuple[str, ...] = ()
    """Methods to run now, and the reference; the rows of others stay empty."""
    side_by_side: int = 1
    """Number of searches and trainings that run at once, each in a process with its share of the cores."""

    def __call__(self) -> int:
        try:
            from orgthink_arena.contest.config import Arena, read_arena
        except ModuleNotFoundError as error:
            raise UserError(f"an arena needs {error.name}: pip install 'orgthink[local]'") from error
        if self.side_by_side < 1:
            raise UserError(f"--side-by-side is {self.side_by_side}: it must be at least 1")
        if self.config is None and self.n is not None:
            raise UserError("--n replaces a value of CONFIG, and a folder knows its own: leave it out")
        given = None if self.config is None else read_arena(self.config, {} if self.n is None else {"n": self.n})
        if self.resume is None:
            if given is None or self.config is None:
                raise UserError("name the file that says what is compared, or --resume DIR")
            path = self.out or dated(self.config.stem)
            require_vacant(path)
            self._require_methods(given)
            folder, arena = begun(path, given, frozenset(self.only)), given
        else:
            if self.out is not None:
                raise UserError("--resume goes on in its own folder: leave out --out")
            folder = RunFolder.open(self.resume)
            arena = settings_of(folder, "arena", Arena)
            if given is not None:
                self._require_methods(given)
                folder, arena = taking(folder, given), given
            self._require_methods(arena)
        with written(folder):
            return conduct(folder, arena, frozenset(self.only), side_by_side=self.side_by_side)

    def _require_methods(self, arena: Arena) -> None:
        for name in self.only:
            pick("method", name, arena.methods)


def begun(path: Path, arena: Arena, only: frozenset[str] = frozenset()) -> RunFolder:
    """The new folder of an arena. UserError, and no folder, for a method of `only` that cannot run: see `taking`."""
    from orgthink_arena.contest.beforehand import require_plans

    require_plans(arena, methods_of(arena, only))
    return RunFolder.create(path, "arena", arena)


def methods_of(arena: Arena, only: frozenset[str]) -> list[str]:
    """The methods to run now: these and the reference, or else all."""
    return [name for name in arena.methods if not only or name in {*only, arena.reference}]


def taking(folder: RunFolder, given: Arena) -> RunFolder:
    """The folder of an arena with the methods and preparations of `given`, which are written to it.

    UserError if anything else differs, also in a method or a preparation that both have: what has run is of other
    settings then. UserError too for a new method that cannot run, which could not be mended once it is written, and if
    another process has the folder.
    """
    from orgthink.util.references import absolute
    from orgthink_arena.contest.beforehand import require_plans
    from orgthink_arena.contest.config import Arena, with_whole_paths

    stored, wanted = (
        absolute(plain(arena)) for arena in (with_whole_paths(settings_of(folder, "arena", Arena)), given)
    )
    tables = ("methods", "preparations")
    both = [(table, name) for table in tables for name in stored[table] if name in wanted[table]]
    changed = [f"{table}.{name}" for table, name in both if stored[table][name] != wanted[table][name]]
    changed += [name for name in wanted if name not in tables and stored[name] != wanted[name]]
    if changed:
        raise UserError(
            f"{folder.path} holds an arena of other settings, in {', '.join(changed)}: choose another folder, "
            "or another name for a method that has changed"
        )
    require_plans(given, [name for name in given.methods if name not in stored["methods"]])
    return folder if stored == wanted else folder.changed(given)


def conduct(
    folder: RunFolder,
    arena: Arena,
    only: frozenset[str] = frozenset(),
    command: str | None = None,
    side_by_side: int = 1,
) -> int:
    """Run what is missing, write the results and print the table; the exit code. UserError if another process has the
    folder.

    `command` is what the conditions name; without it that of this folder. `side_by_side` preparations run at once.
    """
    with locked(folder.path):
        return _conduct(folder, arena, only, command, side_by_side)


def _conduct(folder: RunFolder, arena: Arena, only: frozenset[str], command: str | None, side_by_side: int) -> int:
    from orgthink_arena.contest.beforehand import require_plans
    from orgthink_arena.contest.side_by_side import prepare_all

    methods = methods_of(arena, only)
    require_plans(arena, methods)
    try:
        prepared = prepare_all(folder.path, arena, methods, side_by_side)
    except KeyboardInterrupt:
        show(f"orgthink: stopped; {again(folder)}", error=True)
        return INTERRUPTED
    try:
        found = run_main(interruptible(lambda stop: _contest(folder, arena, prepared, only, stop, command)))
    except KeyboardInterrupt:  # where the second Ctrl-C found a loop that is blocked
        found = None
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
    stop: asyncio.Event,
    command: str | None,
) -> dict[str, Any] | None:
    """The results, which are written too; `None` if Ctrl-C stopped them."""
    from orgthink_arena.contest.contest import Contest
    from orgthink_arena.contest.on_demand import OnDemand, Stopped
    from orgthink_arena.contest.report import first_cap, results_of

    async with OnDemand(stop) as lab:
        contest = Contest(folder.path, arena, lab, prepared, only)
        try:
            mean, outcomes = await contest.outcomes()
        except Stopped:
            return None
    results = results_of(contest, mean, outcomes, folder, command or again(folder).partition(": ")[2])
    _write(folder, contest, first_cap(arena, mean), results)
    return results


def _write(folder: RunFolder, contest: Contest, first: Cap, results: dict[str, Any]) -> None:
    """results.json, table.md, the plots and the page; print the first table."""
    from orgthink_arena.contest.report import render_page
    from orgthink_arena.contest.tables import blocks, document

    folder.write_json("results.json", results)
    folder.write("table.md", document(results))
    folder.write("view.html", render_page(contest, first, results, folder.path.resolve().name))
    try:
        from orgthink_arena.contest.plots import draw

        draw(results, folder.path)
    except ModuleNotFoundError as error:
        show(f"orgthink: no plots without {error.name}: pip install 'orgthink[plots]'", error=True)
    show(blocks(results)[f"at-{first.name}"], "", blocks(results)["conditions"], "")
    show(f"results.json, table.md, plots and view.html are in {folder.path}")
