"""`orgthink train`: a recipe → a run folder with checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from orgthink.cli.options import REPEATS, FromFile, by_name
from orgthink.cli.running import resumed, settings_of, written
from orgthink.export.trackers import choose_tracker, require_tracker
from orgthink.record.folder import RunFolder, require_vacant
from orgthink.util.errors import UserError, required, user_input
from orgthink.util.install import needing
from orgthink.util.terminal import progress, show

if TYPE_CHECKING:
    from orgthink.training.cluster.verl.launch import Placement
    from orgthink.training.recipes.jobs import Job
    from orgthink.training.recipes.registry import Training


@dataclass(frozen=True)
class Train(FromFile):
    """Train a model by a recipe; checkpoints are Hugging Face folders.

    Ctrl-C finishes the step and saves; a second one stops at once. `--resume DIR` goes on exactly where it was saved.
    With `--backend verl` Ctrl-C stops at once and loses the steps since the last checkpoint. Supervised fine-tuning on
    several GPUs: `torchrun --nproc-per-node 8 -m orgthink train RECIPE …`.
    """

    recipe: Annotated[Positional[str | None], arg(metavar="RECIPE")] = None
    """Recipe, such as `asyncthink` or `marsrl-qwen3`; `orgthink list recipes` lists them."""
    model: str | None = None
    """Model to start from: a folder, or another name as in `orgthink run`; without it the recipe's."""
    task: str | None = None
    """Task of reinforcement learning; of `asyncthink-sft` without --pairs: task whose program writes traces."""
    pairs: Path | None = None
    """File of query–response pairs to learn from, as `orgthink synth` writes them."""
    episodes: Path | None = None
    """Run folder of managers' trajectories to learn from, made by `orgthink eval --samples 8 --split train`."""
    lora: int | None = None
    """Train a low-rank adapter of this rank in place of the weights."""
    steps: int | None = None
    """Optimizer steps of supervised training, rollouts of reinforcement learning; without it as many as the recipe
    says."""
    seed: int | None = None
    """Seed for weights, data and sampling; without it the recipe's."""
    set: Annotated[tuple[str, ...], arg(metavar="SETTING=VALUE")] = ()
    """Settings of the recipe, such as learning_rate=1e-4, rollout.group=16 or sampler=vllm."""
    template: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Arguments of the model's chat template, such as enable_thinking=false. The trained model keeps them."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto`."""
    backend: Literal["embedded", "verl"] = "embedded"
    """`embedded` trains in this process; `verl` on a cluster (docs/your_gpus.md)."""
    cluster: Annotated[tuple[str, ...], arg(metavar="SETTING=VALUE")] = ()
    """Settings of the cluster for verl, such as nodes=2 gpus=8 tensor_parallel=2 address=HOST:6379; other
    settings are verl's own."""
    out: Path | None = None
    """New run folder; without it runs/RECIPE."""
    go_on: bool = False
    """If this training has begun in its run folder, go on with it; if it has ended, do nothing: for scripts that are
    called again."""
    log: str | None = None
    """Log the metrics of each step to `wandb`, `tensorboard`, `trackio`, `mlflow` or your own tracker as well. A
    resumed run goes on there."""
    dry_run: bool = False
    """Train nothing: check the settings, and print them and their consequences as JSON; with `--backend verl` also
    verl's settings and the memory of each part. It fails where the run would fail before a GPU is used."""
    resume: Path | None = None
    """Run folder to go on with. Its settings hold."""

    def __call__(self) -> int:
        with needing("local"):
            from orgthink.training import processes, sft
        return processes.together(self._train, sft.follow) if processes.are_started() else self._train()

    def _train(self) -> int:
        from orgthink.training.cluster.verl import launch
        from orgthink.training.recipes import registry as recipes

        if self.cluster and self.backend != "verl":
            raise UserError("--cluster goes with --backend verl")
        verl = self.backend == "verl"
        if verl and self.log is not None:
            raise UserError(f"verl has trackers of its own: --cluster 'trainer.logger=[{self.log}]' and no --log")
        require_tracker(self.log)
        form = "SETTING=VALUE, such as gpus=8"  # of equal ones the last holds: scripts end with the user's
        cluster = dict(item for one in self.cluster for item in by_name([one], "--cluster", form).items())
        place = launch.placement_of(cluster, "cpu" if self.device == "cpu" else "cuda") if verl else None
        if self.resume is not None:
            device = self.device if verl else "auto"
            folder = resumed(self, backend=self.backend, cluster=self.cluster, device=device, log=self.log)
            settings_of(folder, "train", recipes.Training)
        else:
            recipe = required(self.recipe, "recipe", "RECIPE")
            training, path = recipes.Training(recipe, self._job(recipe)), self.out or recipes.folder_of(recipe)
            if self.dry_run:
                return _look_ahead(training, path, place, self.go_on)
            if place is not None:
                launch.require(training.job, place)
            begun = recipes.held(training, path) if self.go_on else None
            last = path / "checkpoints" / f"step-{training.job.settings.steps:06d}"
            if begun is not None and last.is_dir():
                show(f"{path} has ended: its last checkpoint is {last}")
                return 0
            folder = begun or recipes.start(training, path)
            folder.write(REPEATS, self.repeating("train"))
        if place is not None:
            show(f"the model is in {launch.run(folder, place)}")
            return 0
        choose_tracker(folder, self.log)
        made = self._go_on(folder)
        show(f"the {'model' if made.name == 'model' else 'result'} is in {made}")
        return 0

    def _go_on(self, folder: RunFolder) -> Path:
        from orgthink.training.recipes import registry as recipes

        settings = recipes.training_of(folder).job.settings
        bar = progress(settings.steps, prefix="step ", every=settings.report_every, error=False)
        with user_input(), written(folder), bar as advance:
            try:
                return recipes.go_on(folder, lambda line: advance(int(line["step"]), settings.progress_text(line)))
            except KeyboardInterrupt:
                show(f"orgthink: go on from what is saved with: orgthink train --resume {folder.path}", error=True)
                raise

    def _job(self, recipe: str) -> Job:
        """The recipe's job, as the options set it. Files have their full path, so that a run resumes anywhere. A dry
        run downloads no weights."""
        from orgthink.models.hub import is_hub_id, resolve
        from orgthink.models.lora import LoraSettings
        from orgthink.training.recipes import registry as recipes

        with user_input():
            lora = None if self.lora is None else LoraSettings(self.lora)
        given = {"model": self.model, "task": self.task, "pairs": self.pairs, "episodes": self.episodes, "lora": lora}
        own = {name: value for name, value in {**given, "device": self.device}.items() if value is not None}
        if self.dry_run and self.model and is_hub_id(self.model):
            own["model"] = resolve(self.model, weights=False) or self.model
        numbers = {"steps": self.steps, "seed": self.seed}
        settings = [f"{name}={value}" for name, value in numbers.items() if value is not None]
        settings += [f"template.{one}" for one in self.template]
        with user_input():
            return recipes.adjusted(recipes.recipe_named(recipe), recipes.with_whole_paths(own), (*settings, *self.set))


def _look_ahead(training: Training, path: Path, place: Placement | None, go_on: bool) -> int:
    """Print what a run would do, and what it still needs. UserError for bad settings."""
    from orgthink.training.recipes.registry import is_unused, outlook, unnamed

    verl = {} if place is None else _on_verl(training, path, place)
    needs = unnamed(training.job)
    if not go_on:
        require_vacant(path, overwrite=is_unused(path))
    run = {"recipe": training.recipe, "backend": "embedded" if place is None else "verl", "out": str(path)}
    show(json.dumps({**run, "unnamed": needs, **verl, **outlook(training.job)}, indent=2, ensure_ascii=False))
    if needs:
        show(f"orgthink: a run of this recipe needs {' and '.join(needs)}", error=True)
    return 0


def _on_verl(training: Training, path: Path, place: Placement) -> dict[str, Any]:
    """The cluster, verl's settings, and the size of a step on usual GPUs. UserError where the run would fail."""
    from orgthink.cli.size import measures
    from orgthink.training.cluster.verl.launch import overrides, sizes
    from orgthink.util.settings import plain

    verl, found = overrides(training.job, path, place), {}
    for card, plan in sizes(training.job, verl, place, verl["actor_rollout_ref.model.path"]).items():
        rounded = {name: round(value or 0, 2) for name, value in measures(plan).items()}
        found[card] = {"verdict": plan.verdict, **rounded}
    return {"cluster": plain(place), "verl": verl, "sizes": found}
