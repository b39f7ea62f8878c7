"""`orgthink measure`: the measures of texts that did not come from us, and of stored runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from orgthink.cli.prices import read_prices
from orgthink.cli.table import conditions, print_comparison, print_table
from orgthink.evaluate.evaluation import Evaluation, recorded
from orgthink.measure.comparison import against
from orgthink.measure.summary import summarise
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.files import MOST, read_whole
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show

if TYPE_CHECKING:
    from orgthink.training.optimization import Optimization

MOST_DIGITS = 1_000
"""Of a number in a file."""


@dataclass(frozen=True)
class Measure:
    """Measure the text of an organizer and its workers: critical path, concurrency, format errors.

    FILE holds one JSON object: {"capacity": 2, "organizer": "… <FORK-1>q</FORK-1> … <JOIN-1>returned</JOIN-1> …",
    "workers": {"1": ["… <RETURN>r</RETURN>"]}}. Tokens are words, each tag counting as one.

    A run folder is measured again from its episodes, without a model; of a training, each recorded step is rewarded
    again, and the table is that of the last one.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE|DIR")]
    """JSON file, `-` for standard input, or a run folder."""
    json: bool = False
    """Print one JSON object."""
    against: Annotated[str | None, arg(metavar="NAME")] = None
    """Of an evaluation: compare the other organizations with this one, problem by problem."""
    prices: Path | None = None
    """Of an evaluation: TOML or JSON file with dollars for a million tokens of each model; without it those of the
    run."""
    trust: bool = False
    """Run the code that a run folder names as `file.py:Name` or `package.module:Name`, to reward its steps again, and
    the programs in its answers, to grade those again."""

    def __call__(self) -> int:
        if self.file.is_dir():
            return self._run()
        if self.against is not None:
            raise UserError(f"--against compares the organizations of a run folder, and {self.file} is none")
        return self._text()

    def _run(self) -> int:
        folder = RunFolder.open(self.file)
        with nullcontext() if self.trust else registered_only():
            if folder.config["kind"] == "train":
                measured = _training(folder, quiet=self.json)
            else:
                measured = _evaluation(folder, read_prices(self.prices))
        if self.against is not None:
            measured["against"] = against(folder.episodes(), self.against)
            if not measured["against"]:
                raise UserError(f"{self.file} has no other organization than {self.against}")
        if self.json:
            show(json.dumps(measured))
        else:
            print_table(measured["summary"], conditions(folder))
        if self.against is not None and not self.json:
            print_comparison(measured["against"], self.against)
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
    """Standard input; UserError if it has no end in sight."""
    content = sys.stdin.buffer.read(MOST + 1)
    if len(content) > MOST:
        raise UserError(f"standard input has more than {MOST >> 20} MiB: it is no text of an organizer")
    return content


def _whole_number(digits: str) -> int:
    """ValueError for more digits than Python reads, in our words."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _evaluation(folder: RunFolder, prices: dict[str, Price]) -> dict[str, Any]:
    """The summary, computed again, by these prices or else its own; without an organization's own measures, if what the
    run names is not installed."""
    with suppress(UserError):
        prices = prices or folder.settings("eval", Evaluation).prices
        resolved = recorded(folder)
        resolved = replace(resolved, plan=replace(resolved.plan, prices=prices))
        return {"summary": resolved.summary(resolved.in_order(folder.episodes()))}
    return {"summary": summarise(folder.episodes(), prices=prices)}


def _training(folder: RunFolder, *, quiet: bool) -> dict[str, Any]:
    """The metrics of each recorded step, computed again, and the summary of the last one; that alone, if what the
    training names is not installed."""
    from orgthink.training.recipes.registry import training_of

    steps: dict[int, dict[str, Any]] = {}
    last: list[Episode] = []
    try:
        settings: Optimization = training_of(folder).job.settings
        for line, last in _steps(folder):
            steps[line["step"]] = again = settings.measure(last)
            if not quiet:
                show(f"step {line['step']}/{settings.steps}  {_progress_text(settings, {**line, **again})}")
    except (UserError, KeyError) as error:  # KeyError: metrics.jsonl lacks what the recipe writes
        show(f"orgthink: steps are not rewarded again: {error}", error=True)
        for line, episodes in _steps(folder):
            steps[line["step"]], last = {}, episodes
    if not steps:
        raise UserError(f"{folder.path} has no episodes of a whole step: only rollouts are recorded")
    return {"steps": steps, "summary": {f"step {max(steps)}": row for row in summarise(last).values()}}


def _progress_text(settings: Optimization, line: dict[str, Any]) -> str:
    """A step's metrics as text. UserError for those of another type than the recipe writes."""
    try:
        return settings.progress_text(line)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"metrics.jsonl has no numbers of step {line['step']}: {error}") from error


def _steps(folder: RunFolder) -> Iterator[tuple[dict[str, Any], list[Episode]]]:
    """The recorded steps: their metrics and their episodes; not one whose metrics the run did not come to write."""
    lines = {line["step"]: line for line in folder.metrics() if isinstance(line.get("step"), int)}
    for step, group in groupby(folder.episodes(), lambda episode: episode.step):
        if step not in lines:
            return
        yield lines[step], list(group)


def _show(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
