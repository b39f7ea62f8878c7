"""`orgthink train`: a recipe → a run folder with checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from orgthink.errors import UserError, pick, user_input
from orgthink.store import RunFolder

if TYPE_CHECKING:
    from orgthink.training.recipes import Report


@dataclass(frozen=True)
class Train:
    """Train a model by a recipe; checkpoints are Hugging Face folders.

    Ctrl-C finishes the step and saves; a second one stops at once. `--resume DIR` goes on exactly where it was saved.
    """

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")] = "pocket"
    """Which recipe."""
    steps: int | None = None
    """Optimizer steps; without it as many as the recipe says."""
    seed: int | None = None
    """Of weights and data; without it the recipe's."""
    device: str = "auto"
    """`cpu`, `cuda`, or whichever is there."""
    out: Path | None = None
    """New run folder; without it runs/RECIPE."""
    resume: Path | None = None
    """Run folder to go on with; it knows everything else."""

    def __call__(self) -> int:
        try:
            from orgthink.training import recipes
        except ModuleNotFoundError as error:
            raise UserError(f"training needs {error.name}: pip install 'orgthink[local]'") from error
        if self.resume is not None:
            if self != Train(resume=self.resume):
                raise UserError("--resume takes everything else from the folder: give it alone")
            folder = RunFolder.open(self.resume)
        else:
            given = {"steps": self.steps, "seed": self.seed}
            with user_input():
                settings = pick("recipe", self.recipe, recipes.RECIPES)
                settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
            training = recipes.Training(self.recipe, settings, self.device)
            folder = recipes.start(training, self.out or Path("runs") / self.recipe)
        with user_input(), _progress(folder, recipes.training_of(folder).settings.steps) as report:
            print(f"the model is in {recipes.go_on(folder, report)}")
        return 0


@contextmanager
def _progress(folder: RunFolder, steps: int) -> Iterator[Report]:
    """A progress bar on a terminal, a line every hundred steps elsewhere; on the way out, how to go on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("train", total=steps, loss=float("nan"))

        def report(line: dict[str, float]) -> None:
            step = int(line["step"])
            bar.update(task, completed=step, loss=line["loss"])
            if not console.is_terminal and (step % 100 == 0 or step == steps):
                rate = line["trained_tokens"] / line["seconds"]
                print(f"step {step}/{steps}  loss {line['loss']:.4f}  {rate:,.0f} tokens/s", flush=True)

        try:
            yield report
        except KeyboardInterrupt:
            print(f"orgthink: go on from what is saved with: orgthink train --resume {folder.path}", file=sys.stderr)
            raise
