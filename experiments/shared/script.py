"""The scripts of `make results-…`: options, training, evaluation, output and exit codes."""

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
from orgthink.files import write_whole
from orgthink.tabular import json_object
from orgthink.threads import set_threads


@dataclass(frozen=True)
class Options:
    """Size of the evaluations, and folders."""

    n: int = 200
    """Number of held-out problems."""
    runs: Path = Path("runs")
    """Folder of the trained runs and of the evaluations."""
    out: Path = Path("results")
    """Folder for results.json, the plots and README.md."""
    stand_in: str | None = None
    """Name of a model that replaces every trained one, to try the script. It needs another --out."""


@dataclass(frozen=True)
class SharedOptions(Options):
    """Options of a script whose evaluations several processes can share."""

    evaluate: str | None = None
    """I/N: only evaluate every N-th setting, starting at number I, if it is trained. Nothing is trained or written."""


Given = TypeVar("Given", bound=Options)
AnyOptions = TypeVar("AnyOptions")
Lab = TypeVar("Lab", bound=Laboratory[Any])


@dataclass(frozen=True)
class Experiment(Generic[Given, Lab]):
    """The script of one paper: it trains, evaluates, and writes tables and figures."""

    home: Path
    """Folder of the paper's script, with plots.py, README.md and the published results."""
    laboratory: type[Lab]
    """Laboratory that runs the evaluations of the tables."""
    design: Callable[[int], Any]
    """Function from the number of held-out problems to the size of the evaluations."""
    train: Callable[[Path], object]
    """Function that trains all missing runs in the folder of runs."""
    collect: Callable[[Lab], Awaitable[dict[str, Any]]]
    """Function that returns all tables and figures without their conditions. It runs missing evaluations."""
    conditions: Callable[[Given, Lab], dict[str, Any]]
    """Function that returns the conditions of all measurements."""
    render: Callable[[str, Mapping[str, Any]], str]
    """Function from a README.md and the results to the README.md with new tables."""

    def make(self, options: Given, design: Any = None) -> None:
        """Write results.json, the plots and the tables of README.md to `options.out`, or only evaluate a share.

        UserError if results of a stand-in would overwrite the published ones.
        """
        design = design or self.design(options.n)
        if isinstance(options, SharedOptions) and options.evaluate is not None:
            asyncio.run(self._evaluate(options, design, *share(options.evaluate)))
            return
        if options.stand_in and options.out.resolve() == self.home:
            raise UserError("results of a stand-in must not replace the published ones: give another --out")
        if not options.stand_in:
            self.train(options.runs)
        self._write(asyncio.run(self._measure(options, design)), options.out)

    def main(self, options: type[Given], says: str | None) -> int:
        """Run the script. Returns the exit code: 0, 2 for an error of the user, or 130 after Ctrl-C."""
        return run_script(self.make, options, says)

    async def _evaluate(self, options: Options, design: Any, i: int, n: int) -> None:
        async with self.laboratory(options.runs, design, options.stand_in) as lab:
            await evaluate_share(lab, i, n)  # type: ignore[arg-type]  # laboratories with shared options know their needs

    async def _measure(self, options: Given, design: Any) -> dict[str, Any]:
        async with self.laboratory(options.runs, design, options.stand_in) as lab:
            return {**await self.collect(lab), "conditions": self.conditions(options, lab)}

    def _write(self, results: Mapping[str, Any], out: Path) -> None:
        """Write all results. A missing README.md is copied from the home folder first."""
        out.mkdir(parents=True, exist_ok=True)
        file = out / "results.json"
        write_whole(file, (json.dumps(with_claims(results, file), indent=1, ensure_ascii=False) + "\n").encode())
        try:
            importlib.import_module(f"experiments.{self.home.name}.plots").draw(results, out)
        except ModuleNotFoundError as error:
            raise UserError(f"the plots need {error.name}: pip install 'orgthink[plots]'") from error
        page = out / "README.md"
        if not page.exists():
            shutil.copy(self.home / "README.md", page)
        write_whole(page, self.render(page.read_text(), results).encode())
        print(f"{file}, the plots and the tables of README.md are written")


def with_claims(results: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """Results with the claims that a file of earlier results has: they are decided by other runs, so they stay."""
    decided = json_object(file).get("claims") if file.exists() else None
    return results if decided is None else {**results, "claims": decided}


def run_script(make: Callable[[AnyOptions], int | None], options: type[AnyOptions], says: str | None) -> int:
    """Run a script with the options of the command line. Returns the exit code: that of `make` or 0, 2 for an error of
    the user, or 130 after Ctrl-C.
    """
    import tyro

    set_threads(spare=1)
    given = tyro.cli(options, description=says)
    try:
        return make(given) or 0
    except UserError as error:
        print(f"results: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("results: stopped; the same command continues", file=sys.stderr)
        return 130
