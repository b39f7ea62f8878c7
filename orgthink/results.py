"""What evaluations and trainings leave in Python: their run folders, as tables, data frames and figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.evaluation.frontier import draw, panels
from orgthink.evaluation.plan import Evaluation
from orgthink.measure.accuracy import all_correct
from orgthink.measure.columns import cells
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import summarise
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.errors import required
from orgthink.util.install import needing
from orgthink.view.picture import grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

MAIN = ("reward", "all_correct", "critical_path_steps", "concurrency_pool", "forks", "loss")
"""Metrics of a training in its short forms, if it logged them."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder and its episodes. Notebooks show its table."""

    path: Path
    """The run folder: `orgthink view PATH` shows it, `evaluate(resume=PATH)` resumes it."""
    episodes: list[Episode]
    """All episodes. Those of `evaluate` are in the order of problems, organizations and samples."""

    @property
    def summary(self) -> dict[str, Any]:
        """Measures with 95 % intervals, by organization: the content of summary.json, or else computed."""
        file = self.path / "summary.json"
        return json.loads(file.read_bytes()) if file.is_file() else summarise(self.episodes)

    def __repr__(self) -> str:
        organizations = ", ".join(dict.fromkeys(episode.organization for episode in self.episodes))
        return f"<Run {self.path}: {len(self.episodes)} episodes of {organizations}>"

    def _repr_html_(self) -> str:
        folder, notes = RunFolder.open(self.path), [f"{self.path}: {len(self.episodes)} episodes [95 % interval]"]
        if folder.config["kind"] == "eval":
            notes += [f"{label} with {how}" for label, how in folder.settings("eval", Evaluation).matched.items()]
        return grid(*cells(self.summary), "; ".join(notes))

    def to_pandas(self) -> DataFrame:
        """A row for each attempt: problem, question, organization, sample, answer, whether it is all correct, score,
        critical path and tokens in decoding steps, agents, forks, seconds. UserError without pandas."""
        with needing("notebooks", "a data frame"):
            from pandas import DataFrame
        return DataFrame(
            {
                "problem": episode.problem.id,
                "question": episode.problem.query,
                "organization": episode.organization,
                "sample": episode.sample,
                "answer": episode.answer,
                "all_correct": all_correct(episode),
                "score": None if episode.grade is None else episode.grade.score,
                "critical_path": critical_path(episode),
                "tokens": sampled_tokens(episode),
                "agents": len(episode.traces),
                "forks": forks(episode),
                "seconds": episode.seconds,
                "stop": str(episode.stop),
                "error": episode.error,
            }
            for episode in self.episodes
        )

    def plot(self) -> Figure:
        """Accuracy against the critical path, a point for each organization, with 95 % intervals. `savefig` of the
        figure writes it to a file. UserError without matplotlib."""
        figure, (axes,) = panels(1)
        for name, row in self.summary.items():
            if row["all_correct"]["mean"] is not None:
                draw(axes, [row], "critical_path_steps", name)
        return figure


@dataclass(frozen=True, slots=True)
class Training:
    """The run folder of a training. Notebooks show its first and its last step. It may be given as a model."""

    path: Path
    """The run folder: `orgthink view --serve PATH` shows it, `train(resume=PATH)` goes on with it."""
    model: Path | None
    """Folder of the newest model, or another result of the recipe; `None` before the first checkpoint."""

    def __fspath__(self) -> str:
        """The path of the model. UserError without one."""
        return str(required(self.model, "model", f"another training: {self.path} has no checkpoint yet"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each step: the lines of metrics.jsonl."""
        return list(RunFolder.open(self.path).metrics())

    def __repr__(self) -> str:
        changes = [f"{name} {first} → {last}" for name, first, last in self._changes()]
        return f"<Training {self.path}: {', '.join(changes)}>"

    def _repr_html_(self) -> str:
        return grid(["", "first", "last"], self._changes(), str(self.path))

    def _changes(self) -> list[list[str]]:
        """The name of each metric that is shown, and its value in the first and in the last step."""
        ends = [line for lines in [self.metrics] for line in (lines[:1] + lines[-1:])]
        names = [name for name in ("step", *MAIN) if all(line.get(name) is not None for line in ends)]
        return [
            [name.replace("_", " "), *(f"{line[name]:{'.4g' if name != 'step' else ''}}" for line in ends)]
            for name in names
            if ends
        ]


def load_run(path: str | Path) -> Run:
    """A stored run. UserError if the path holds no run."""
    folder = RunFolder.open(Path(path))
    return Run(folder.path, list(folder.episodes()))


def load_training(path: str | Path) -> Training:
    """A stored training. UserError if the path holds none."""
    folder = RunFolder.open(Path(path))
    folder.settings("train", dict)
    return Training(folder.path, max(folder.path.glob("checkpoints/step-*/model"), default=None))
