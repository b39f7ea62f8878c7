"""`orgthink train`: a recipe → a run folder with checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.errors import UserError, pick, user_input


@dataclass(frozen=True)
class Train:
    """Train a model by a recipe; checkpoints are Hugging Face folders. `--resume DIR` goes on exactly where it was."""

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
            from orgthink.training import main
        except ModuleNotFoundError as error:
            raise UserError(f"training needs {error.name}: pip install 'orgthink[local]'") from error
        with user_input():
            if self.resume is not None:
                print(main.resume(self.resume))
                return 0
            given = {"steps": self.steps, "seed": self.seed}
            settings = pick("recipe", self.recipe, main.RECIPES)
            settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
            print(main.start(self.recipe, self.out or Path("runs") / self.recipe, settings, self.device))
        return 0
