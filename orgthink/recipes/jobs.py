"""Kinds of training, each with everything that decides its result, and what each runs."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from orgthink.engines import ENGINES, EngineSpec, engine_spec
from orgthink.errors import UserError
from orgthink.store import RunFolder
from orgthink.training.embedded import embedded
from orgthink.training.episodes import Episodes, RlSettings
from orgthink.training.marsrl.queue import Queue
from orgthink.training.marsrl.schedule import Chains
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.models import LoraSettings, resolve_device, torch_dtype
from orgthink.training.rl import Optimization, Source, train_policy
from orgthink.training.rows import PolicyRow, Row
from orgthink.training.sft import SftSettings, train

if TYPE_CHECKING:
    from orgthink.coldstart.trajectories import Selection

Report = Callable[[dict[str, Any]], None]
"""Gets the metrics of each step."""


class Job(Protocol):
    """One training: its fields are what config.json remembers."""

    @property
    def steps(self) -> int:
        """How many there are in all."""
        ...

    @property
    def device(self) -> str:
        """`cpu`, `cuda`, or `auto` for whichever is there."""
        ...

    @property
    def settings(self) -> Any:
        """How it trains: a dataclass."""
        ...

    def require(self) -> None:
        """UserError if something it starts from is not there."""
        ...

    def run(self, folder: RunFolder, report: Report) -> Path:
        """Train on from the newest checkpoint to the last step; returns the last checkpoint's folder."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FromModel:
    """What trainings of a model that is there have in common."""

    model: str | None = None
    """Shipped model or folder to start from; a recipe without one needs `--model`."""
    lora: LoraSettings | None = None
    """A low-rank adapter to train in place of the weights."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """In which the weights are held."""
    device: str = "auto"
    """`cpu`, `cuda`, or whichever is there."""
    settings: Any
    """How it trains."""

    @property
    def steps(self) -> int:
        return self.settings.steps

    @property
    def how(self) -> dict[str, Any]:
        """How the model is opened to be trained: arguments of `row_course` and the like."""
        device, dtype = resolve_device(self.device), torch_dtype(self.dtype)
        return {"lora": self.lora, "dtype": dtype, "device": device, "seed": self.settings.seed}

    def require(self) -> None:
        model_folder(self.model)
        resolve_device(self.device)


@dataclass(frozen=True, slots=True)
class Pairs(FromModel):
    """Any causal model, on the query–response pairs that `orgthink synth` writes (section 3.1 of AsyncThink)."""

    settings: SftSettings
    """How."""
    pairs: str | None = None
    """File of pairs, JSON lines or parquet; a recipe without one needs `--pairs`."""

    def require(self) -> None:
        FromModel.require(self)
        if self.pairs is None:
            raise UserError("this recipe learns from pairs of yours: name their file with --pairs")
        if not Path(self.pairs).is_file():
            raise UserError(f"there is no file {self.pairs}: write pairs with orgthink synth")

    def run(self, folder: RunFolder, report: Report) -> Path:
        from orgthink.coldstart.pair_course import sft_course

        assert self.pairs is not None
        course = sft_course(model_folder(self.model), Path(self.pairs), **self.how)
        return train(course, self.settings, folder, report)


@dataclass(frozen=True, slots=True)
class Trajectories(FromModel):
    """Any causal model, on the trajectories of managers that `orgthink eval` records (section 3.2 of ParaManager)."""

    settings: SftSettings
    """How."""
    episodes: str | None = None
    """Run folder with several samples of each problem; a recipe without one needs `--episodes`. Its problems are
    learned from: those of reinforcement learning stay unseen if it draws from another part of the task, such as
    `TASK@1/2` where these are of `TASK@0/2`."""
    most: float = 0.5
    """Largest share of all calls that one tool makes, in (0, 1]."""
    longest: int | None = None
    """Tokens of the longest trajectory; longer ones are left out, and those that the model's context does not hold."""

    def require(self) -> None:
        FromModel.require(self)
        if self.episodes is None:
            raise UserError("this recipe learns from trajectories of yours: name their run folder with --episodes")
        self._rows()

    def run(self, folder: RunFolder, report: Report) -> Path:
        from orgthink.coldstart.pair_course import row_course

        rows, selection = self._rows()
        chosen_before = folder.path / "trajectories.json"
        if chosen_before.is_file() and json.loads(chosen_before.read_text())["ids"] != list(selection.ids):
            raise UserError(f"{self.episodes} has changed since {folder.path} began to learn from it: begin anew")
        folder.write_json("trajectories.json", {"ids": selection.ids, "left_out": selection.left_out})
        print(selection.summary, flush=True)
        return train(row_course(model_folder(self.model), rows, **self.how), self.settings, folder, report)

    def _rows(self) -> tuple[list[Row], Selection]:
        """What is learned from. UserError if it is not there, or nothing is left of it."""
        from orgthink.coldstart.trajectory_course import trajectory_rows

        assert self.episodes is not None
        base = model_folder(self.model)
        known = [length for length in (self.longest, context_of(base)) if length is not None]
        run = RunFolder.open(Path(self.episodes))
        return trajectory_rows(run, base, most=self.most, longest=min(known, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforced(FromModel, ABC):
    """What reinforcement learning has in common, wherever its rows come from."""

    settings: Optimization
    """How."""
    sampler: str = "local"
    """Engine that rolls out, `local`, `vllm` or one of yours; its weights are updated in place."""
    sampler_settings: dict[str, Any] = field(default_factory=dict)
    """Of any but the local one, such as vLLM's `gpu_memory_utilization`: the trainer needs room beside it."""
    pack_tokens: int = 512
    """Tokens that are computed in one go."""

    def require(self) -> None:
        FromModel.require(self)
        ENGINES.named(self.sampler)
        if self.sampler == "vllm" and find_spec("vllm") is None:
            raise UserError(
                "this recipe samples with vLLM, which is not installed: `make vllm`, or --set sampler=local"
            )
        self.settings.require(self.max_context)

    @property
    def max_context(self) -> int | None:
        """Most tokens of a context, by the model's config and the sampler's `max_model_len`; `None` without both."""
        known = (context_of(model_folder(self.model)), self.sampler_settings.get("max_model_len"))
        return min((int(length) for length in known if length is not None), default=None)

    @abstractmethod
    def source(self) -> Source:
        """Where rows come from, as it is before the first step."""

    def run(self, folder: RunFolder, report: Report) -> Path:
        backend = embedded(model_folder(self.model), self)
        try:
            return train_policy(backend, self.source(), self.settings, folder, report)
        finally:
            asyncio.run(backend.sampler.aclose())


@dataclass(frozen=True, slots=True)
class Policy(Reinforced):
    """An organization with one reward an episode: of all its agents (AsyncThink), or of those that are trained beside
    frozen ones (ParaManager)."""

    settings: RlSettings
    """How."""

    def source(self) -> Episodes:
        return Episodes(self.settings)

    def recorded(self, folder: RunFolder) -> list[PolicyRow]:
        """Rows of the episodes that an evaluation recorded, for other trainers. UserError for those of another one."""
        from orgthink.interchange.recorded import recorded_rows

        return recorded_rows(folder, self.settings)


@dataclass(frozen=True, slots=True)
class Mars(Reinforced):
    """Solver, verifier and corrector, each with its own reward (MarsRL)."""

    settings: MarsSettings
    """How."""

    def source(self) -> Chains:
        return Queue(self.settings) if self.settings.rollout.schedule == "queue" else Chains(self.settings)


def context_of(folder: Path) -> int | None:
    """Most tokens that a model reads; `None` if its folder does not tell. UserError if its config cannot be read."""
    try:
        return json.loads((folder / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / 'config.json'} cannot be read: {error}") from error


def model_folder(model: str | None) -> Path:
    """Where a model's files lie; UserError if they do not."""
    if model is None:
        raise UserError("this recipe starts from a model of yours: name its folder with --model")
    spec: EngineSpec = engine_spec(model)
    if spec.url is not None or spec.folder is None:
        whose = "a server's" if spec.url is not None else "no folder"
        raise UserError(f"{model} is {whose}: training needs a model folder")
    if not (spec.folder / "config.json").is_file():
        raise UserError(f"{spec.folder} is no model: it has no config.json")
    return spec.folder
