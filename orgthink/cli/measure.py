"""`orgthink measure` and `orgthink compare`: the numbers of stored runs, without a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from orgthink.cli.options import read_prices
from orgthink.cli.table import conditions, lay_out, print_table
from orgthink.evaluation.plan import Evaluation, recorded
from orgthink.measure.columns import interval
from orgthink.measure.comparison import Flip, by_organization, flips, paired
from orgthink.measure.summary import summarise
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError, pick
from orgthink.util.registry import registered_only
from orgthink.util.terminal import excerpt, one_line, show

Pair = tuple[list[Episode], list[Episode]]

LISTED = 10
"""Flips of each kind that are listed; `--json` has all."""
UNITS = {
    "all_correct": ("all correct %", 100, 1),
    "critical_path_steps": ("critical path", 1, 1),
    "sampled_tokens": ("tokens", 1, 1),
    "seconds": ("seconds", 1, 2),
}
"""Heading, factor and digits of each measure that is compared."""


@dataclass(frozen=True)
class Measure:
    """Print the table of a stored run again, from its episodes and without a model; of a training, the last recorded
    step."""

    run: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder."""
    json: bool = False
    """Print one JSON object."""
    prices: Path | None = None
    """TOML or JSON file with dollars for a million tokens of each model; without it the prices of the run."""
    trust: bool = False
    """Run the code that a run folder names as `file.py:Name` or `package.module:Name`, and the programs in its answers,
    to measure them again."""

    def __call__(self) -> int:
        folder = RunFolder.open(self.run)
        with nullcontext() if self.trust else registered_only():
            training = folder.config["kind"] == "train"
            summary = _last_step(folder) if training else _evaluated(folder, read_prices(self.prices))
        if self.json:
            show(json.dumps({"summary": summary}))
        else:
            print_table(summary, conditions(folder))
        return 0


def _evaluated(folder: RunFolder, prices: dict[str, Price]) -> dict[str, Any]:
    """The summary of an evaluation, computed again, by these prices or else its own; without an organization's own
    measures, if a name in the run is not installed."""
    with suppress(UserError):
        prices = prices or folder.settings("eval", Evaluation).prices
        resolved = recorded(folder)
        return resolved.summary(resolved.in_order(folder.episodes()), prices)
    return summarise(folder.episodes(), prices=prices)


def _last_step(folder: RunFolder) -> dict[str, Any]:
    """The summary of the last recorded step of a training, without a step whose metrics were not written."""
    steps = {line["step"] for line in folder.metrics() if isinstance(line.get("step"), int)}
    last = list[Episode]()
    for step, group in groupby(folder.episodes(), lambda episode: episode.step):
        last = list(group) if step in steps else last
    if not last:
        raise UserError(f"{folder.path} has no episodes of a whole step")
    return {f"step {last[0].step}": row for row in summarise(last).values()}


@dataclass(frozen=True)
class Compare:
    """Compare two runs, problem by problem: paired differences with 95 % intervals, and the problems that flipped.

    Organizations with the same name in both runs are compared, or the only organizations of both.
    """

    before: Annotated[Positional[Path], arg(metavar="BEFORE")]
    """Run folder."""
    after: Annotated[Positional[Path], arg(metavar="AFTER")]
    """Run folder; it may be the same."""
    organizations: tuple[str, str] | None = None
    """One of each run, if the names differ."""
    json: bool = False
    """Print one JSON object."""

    def __call__(self) -> int:
        folders = RunFolder.open(self.before), RunFolder.open(self.after)
        before, after = (by_organization(folder.episodes()) for folder in folders)
        for path, found in ((self.before, before), (self.after, after)):
            if not found:
                raise UserError(f"{path} has no episodes")
        pairs = self._pairs(before, after)
        compared = {name: paired(*pair) for name, pair in pairs.items()}
        if not any(measures["seconds"]["difference"]["n"] for measures in compared.values()):
            raise UserError(f"{self.before} and {self.after} have no problem in common")
        flipped = {name: flips(*pair) for name, pair in pairs.items()}
        old, new = map(conditions, folders)
        differing = {name: (old.get(name), new.get(name)) for name in old | new if old.get(name) != new.get(name)}
        if self.json:
            found = {name: [asdict(flip) for flip in of_one] for name, of_one in flipped.items()}
            show(json.dumps({"conditions": differing, "compared": compared, "flips": found}))
            return 0
        for name, (one, other) in differing.items():
            show(one_line(f"{name}: {one or '–'} → {other or '–'}"))
        self._print(compared, [name for name in UNITS if name != "seconds" or all(map(_timed_alone, folders))])
        for name, of_one in flipped.items():
            _list_flips(name, of_one)
        return 0

    def _pairs(self, before: dict[str, list[Episode]], after: dict[str, list[Episode]]) -> dict[str, Pair]:
        shared = [name for name in before if name in after]
        if self.organizations is not None:
            old, new = self.organizations
        elif len(before) == len(after) == 1:
            (old,), (new,) = before, after
        elif shared:
            return {name: (before[name], after[name]) for name in shared}
        else:
            raise UserError(
                f"no organization is in both runs: {', '.join(before)} and {', '.join(after)}; "
                "name one of each: --organizations BEFORE AFTER"
            )
        pair = pick("organization of the first run", old, before), pick("organization of the second", new, after)
        return {new if old == new else f"{old} → {new}": pair}

    def _print(self, compared: Mapping[str, Mapping[str, Mapping[str, Any]]], names: Sequence[str]) -> None:
        """Print these measures of each organization in both runs, with paired 95 % intervals and the change in %."""
        rows = [["", f"{self.after} against", str(self.before), "difference", "change %", "problems"]]
        for name, measures in compared.items():
            for measure, found in ((each, measures[each]) for each in names):
                label, factor, digits = UNITS[measure]
                mean = {"mean": found["baseline"], "low": None, "high": None}
                change = "–" if found["change"] is None else f"{100 * found['change']:+.0f}"
                gap, n = interval(found["difference"], factor, digits), str(found["difference"]["n"])
                first = excerpt(name) if measure == "all_correct" else ""
                rows.append([first, label, interval(mean, factor, digits), gap, change, n])
        show("", *lay_out(rows[0], rows[1:], shutil.get_terminal_size((120, 24)).columns))


def _timed_alone(folder: RunFolder) -> bool:
    """Whether one episode ran at a time; otherwise the order of queueing decides the seconds."""
    return folder.config["kind"] == "eval" and folder.settings("eval", Evaluation).concurrency == 1


def _list_flips(name: str, found: list[Flip]) -> None:
    """Print the number of flipped problems, and the first of each kind."""
    gained = [flip for flip in found if flip.gained]
    lost = [flip for flip in found if not flip.gained]
    show("", f"{excerpt(name)}: {len(gained)} problems became right, {len(lost)} became wrong")
    for sign, flipped in (("+", gained), ("-", lost)):
        for flip in flipped[:LISTED]:
            show(f"{sign} {excerpt(flip.problem)}  {flip.before:.2g} → {flip.after:.2g}  {excerpt(flip.text)}")
        if len(flipped) > LISTED:
            show(f"{sign} and {len(flipped) - LISTED} more (--json)")
