"""`orgthink compare`: two runs on the problems that both attempted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from orgthink.cli.table import conditions, interval, lay_out
from orgthink.measure.comparison import Flip, by_organization, flips, paired
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError, pick
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
"""Heading, factor and digits of each measure."""


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
        differing = _differing(conditions(folders[0]), conditions(folders[1]))
        if self.json:
            found = {name: [asdict(flip) for flip in of_one] for name, of_one in flipped.items()}
            show(json.dumps({"conditions": differing, "compared": compared, "flips": found}))
            return 0
        for name, (old, new) in differing.items():
            show(one_line(f"{name}: {old or '–'} → {new or '–'}"))
        print_comparison(compared, str(self.before), str(self.after))
        for name, of_one in flipped.items():
            _list_flips(name, of_one)
        return 0

    def _pairs(self, before: dict[str, list[Episode]], after: dict[str, list[Episode]]) -> dict[str, Pair]:
        if self.organizations is not None:
            old, new = self.organizations
            pair = pick("organization of the first run", old, before), pick("organization of the second", new, after)
            return {new if old == new else f"{old} → {new}": pair}
        if len(before) == len(after) == 1 and before.keys() != after.keys():
            (old,), (new,) = before, after
            return {f"{old} → {new}": (before[old], after[new])}
        shared = [name for name in before if name in after]
        if not shared:
            raise UserError(
                f"no organization is in both runs: {', '.join(before)} and {', '.join(after)}; "
                "name one of each: --organizations BEFORE AFTER"
            )
        return {name: (before[name], after[name]) for name in shared}


def print_comparison(compared: Mapping[str, Mapping[str, Mapping[str, Any]]], before: str, after: str) -> None:
    """Print each organization's measures in both runs, with paired 95 % intervals and the change in %."""
    header = ["", f"{after} against", before, "difference", "change %", "problems"]
    rows: list[list[str]] = []
    for name, measures in compared.items():
        for measure, found in measures.items():
            label, factor, digits = UNITS[measure]
            mean = {"mean": found["baseline"], "low": None, "high": None}
            change = "–" if found["change"] is None else f"{100 * found['change']:+.0f}"
            gap, n = interval(found["difference"], factor, digits), str(found["difference"]["n"])
            first = excerpt(name) if measure == "all_correct" else ""
            rows.append([first, label, interval(mean, factor, digits), gap, change, n])
    show("", *lay_out(header, rows, shutil.get_terminal_size((120, 24)).columns))


def _differing(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """The conditions in which two runs differ."""
    names = dict.fromkeys([*before, *after])
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


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
