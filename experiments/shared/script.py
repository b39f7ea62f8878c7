"""The scripts behind `make results-…`: options, training, evaluation, what is written, and how they end."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.shared.laboratory import Laboratory, evaluate_share, share
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


@dataclass(frozen=True)
class SharedOptions(Options):
    """Options of a script whose evaluations several processes can share."""

    evaluate: str | None = None
    """I/N: only evaluate every N-th setting from the I-th on, if it is trained; nothing is trained or written."""


Given = TypeVar("Given", bound=Options)
Lab = TypeVar("Lab", bound=Laboratory[Any])


@dataclass(frozen=True)
class Experiment(Generic[Given, Lab]):
    """The tables and figures of one paper: what they are made of, and how."""

    home: Path
    """Folder of the paper's script, with plots.py, README.md and the published results."""
    laboratory: type[Lab]
    """Evaluates what the tables need."""
    design: Callable[[int], Any]
    """How much is evaluated, by the number of held-out problems."""
    train: Callable[[Path], object]
    """Trains what is missing under the folder of the runs."""
    collect: Callable[[Lab], Awaitable[dict[str, Any]]]
    """Makes all tables and figures but their conditions; evaluates whatever is missing."""
    conditions: Callable[[Given, Lab], dict[str, Any]]
    """Under which all of it was measured."""
    render: Callable[[str, Mapping[str, Any]], str]
    """README.md with its tables filled in anew."""

    def make(self, options: Given, design: Any = None) -> None:
        """Write results.json, the plots and the tables of README.md to `options.out`; or only evaluate a share.

        UserError if results of a stand-in would overwrite the published ones.
        """
        design = design or self.design(options.n)
        if isinstance(options, SharedOptions) and options.evaluate is not None:
            asyncio.run(self._evaluate(options, design, *share(options.evaluate)))
            return
        if options.stand_in and options.out.resolve() == self.home:
            raise UserError("results of a stand-in are no results: give them another --out")
        if not options.stand_in:
            self.train(options.runs)
        self._write(asyncio.run(self._measure(options, design)), options.out)

    def main(self, options: type[Given], says: str | None) -> int:
        """Exit codes: 0; 2 for what the user can put right; 130 after Ctrl-C."""
        import tyro

        set_threads(spare=1)
        given = tyro.cli(options, description=says)
        try:
            self.make(given)
        except UserError as error:
            print(f"results: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("results: stopped; the same command goes on", file=sys.stderr)
            return 130
        return 0

    async def _evaluate(self, options: Options, design: Any, i: int, n: int) -> None:
        async with self.laboratory(options.runs, design, options.stand_in) as lab:
            await evaluate_share(lab, i, n)  # type: ignore[arg-type]  # laboratories with shared options know their needs

    async def _measure(self, options: Given, design: Any) -> dict[str, Any]:
        async with self.laboratory(options.runs, design, options.stand_in) as lab:
            return {**await self.collect(lab), "conditions": self.conditions(options, lab)}

    def _write(self, results: Mapping[str, Any], out: Path) -> None:
        """README.md comes from the home if there is none yet."""
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "results.json", (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode())
        try:
            importlib.import_module(f"experiments.{self.home.name}.plots").draw(results, out)
        except ModuleNotFoundError as error:
            raise UserError(f"the plots need {error.name}: pip install 'orgthink[plots]'") from error
        page = out / "README.md"
        if not page.exists():
            shutil.copy(self.home / "README.md", page)
        write_whole(page, self.render(page.read_text(), results).encode())
        print(f"{out / 'results.json'}, the plots and the tables of README.md are written")
