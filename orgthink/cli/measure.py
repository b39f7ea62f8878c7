"""`orgthink measure`: measures of transcripts, and of stored runs without a model."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from orgthink.cli.options import read_prices
from orgthink.cli.table import conditions, print_table
from orgthink.evaluation.plan import Evaluation, recorded
from orgthink.measure.summary import summarise
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.files import MOST, read_whole
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show

MOST_DIGITS = 1_000
"""Most digits of a number in a file."""


@dataclass(frozen=True)
class Measure:
    """Measure the text of an organizer and its workers: critical path, concurrency, format errors.

    FILE holds one JSON object: {"capacity": 2, "organizer": "… <FORK-1>q</FORK-1> … <JOIN-1>returned</JOIN-1> …",
    "workers": {"1": ["… <RETURN>r</RETURN>"]}}. Tokens are words, each tag counting as one.

    A run folder is measured again from its episodes, without a model; of a training, the last recorded step.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE|DIR")]
    """JSON file, `-` for standard input, or a run folder."""
    json: bool = False
    """Print one JSON object."""
    prices: Path | None = None
    """TOML or JSON file with dollars for a million tokens of each model; without it the prices of the run."""
    trust: bool = False
    """Run the code that a run folder names as `file.py:Name` or `package.module:Name`, and the programs in its answers,
    to measure them again."""

    def __call__(self) -> int:
        return self._run() if self.file.is_dir() else self._text()

    def _run(self) -> int:
        folder = RunFolder.open(self.file)
        with nullcontext() if self.trust else registered_only():
            training = folder.config["kind"] == "train"
            summary = last_step(folder) if training else evaluated(folder, read_prices(self.prices))
        if self.json:
            show(json.dumps({"summary": summary}))
        else:
            print_table(summary, conditions(folder))
        return 0

    def _text(self) -> int:
        from orgthink.measure.text import measure_text

        piped = str(self.file) == "-"
        name = "standard input" if piped else str(self.file)
        if piped and sys.stdin is None:
            raise UserError("standard input is closed: pipe a text to it, or name a file")
        try:
            text = (_piped() if piped else read_whole(self.file)).decode("utf-8-sig")
            measures = measure_text(json.loads(text, parse_int=_whole_number))
        except UserError:
            raise
        except RecursionError as error:
            raise UserError(f"{name}: nested too deeply") from error
        except ValueError as error:
            raise UserError(f"{name}: {error}") from error
        if self.json:
            show(json.dumps(measures))
        else:
            width = max(map(len, measures))
            for key, value in measures.items():
                show(f"{key:<{width}}  {_show(value)}")
        return 0


def _piped() -> bytes:
    """Standard input; UserError if it is too long."""
    content = sys.stdin.buffer.read(MOST + 1)
    if len(content) > MOST:
        raise UserError(f"standard input has more than {MOST >> 20} MiB")
    return content


def _whole_number(digits: str) -> int:
    """ValueError for more digits than Python reads."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def evaluated(folder: RunFolder, prices: dict[str, Price]) -> dict[str, Any]:
    """The summary of an evaluation, computed again, by these prices or else its own; without an organization's own
    measures, if a name in the run is not installed."""
    with suppress(UserError):
        prices = prices or folder.settings("eval", Evaluation).prices
        resolved = recorded(folder)
        resolved = replace(resolved, plan=replace(resolved.plan, prices=prices))
        return resolved.summary(resolved.in_order(folder.episodes()))
    return summarise(folder.episodes(), prices=prices)


def last_step(folder: RunFolder) -> dict[str, Any]:
    """The summary of the last recorded step of a training, without a step whose metrics were not written."""
    steps = {line["step"] for line in folder.metrics() if isinstance(line.get("step"), int)}
    last = list[Episode]()
    for step, group in groupby(folder.episodes(), lambda episode: episode.step):
        last = list(group) if step in steps else last
    if not last:
        raise UserError(f"{folder.path} has no episodes of a whole step")
    return {f"step {last[0].step}": row for row in summarise(last).values()}


def _show(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
