"""Kinds of training. A job has all settings that determine the result, and runs the training."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from orgthink.engines import opener
from orgthink.engines.engine import Engine
from orgthink.models.model_files import context_of, tokens_of
from orgthink.models.trainable import open_trainable, resolve_device, say_made_for
from orgthink.organizations.prompts import STYLES
from orgthink.record.folder import RunFolder
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.coldstart.pairs import pair_rows, read_pairs, row_course
from orgthink.training.coldstart.synthesis import Synthesis, program_pairs
from orgthink.training.coldstart.teachers import program_of
from orgthink.training.coldstart.trajectories import Selection, trajectory_rows
from orgthink.training.episodes import Episodes
from orgthink.training.marsrl.pipeline import Pipeline
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.optimization import Optimization
from orgthink.training.recipes.base_model import (
    WithGradients,
    model_folder,
    require_same_problems,
    require_unchanged,
    sha256,
)
from orgthink.training.rl import Source, train_policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import SLOTS
from orgthink.training.sft import SftSettings, train
from orgthink.util.errors import UserError, user_input
from orgthink.util.settings import lacks
from orgthink.util.terminal import show

Report = Callable[[dict[str, Any]], None]
"""Called with the metrics of each step."""


class Job(Protocol):
    """One training. config.json stores its fields."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda`, or `auto` for whichever is available."""

    @property
    def settings(self) -> Any:
        """Settings of the training, as a dataclass with at least `steps`, `report_every` and `progress_text`."""

    def require(self) -> None:
        """UserError if something that the training needs is missing, such as its model or its data."""

    def run(self, folder: RunFolder, report: Report) -> Path:
        """Train from the newest checkpoint to the last step. Returns the folder of the last checkpoint."""


@dataclass(frozen=True, slots=True)
class Pairs(WithGradients):
    """Supervised fine-tuning on the query–response pairs of `orgthink synth` (section 3.1 of AsyncThink)."""

    settings: SftSettings
    """Settings of the training."""
    pairs: str | None = None
    """File of pairs, JSON lines or parquet; `None`: the user must give `--pairs` or `--task`."""
    longest: int | None = None
    """Largest number of tokens in a pair, at most the model's context; longer pairs are left out."""
    task: str | None = None
    """Without `pairs`: task whose program writes them, into the run folder."""
    traces: int = 2_000
    """Traces that the program writes."""
    capacity: int = 4
    """c of these traces."""

    def require(self) -> None:
        WithGradients.require(self)
        if self.pairs is None and self.task is None:
            raise UserError(
                "this recipe trains on your own pairs: name their file with --pairs, or with --task a task whose "
                "program writes them"
            )
        if self.pairs is None:
            self._synthesis()
            return
        if self.task is not None:
            raise UserError("--task writes pairs, and --pairs names some: give one of them")
        if not Path(self.pairs).is_file():
            raise UserError(f"there is no file {self.pairs}: write pairs with orgthink synth")
        read_pairs(self.pairs)  # before the run folder is made

    def _synthesis(self) -> Synthesis:
        """The plan of the program's traces. UserError if the task has no program."""
        assert self.task is not None
        style = program_of(self.task).prompts
        with user_input():
            return Synthesis(self.task, self.traces, None, self.capacity, style, seed=self.settings.seed)

    def run(self, folder: RunFolder, report: Report) -> Path:
        base = self.start_folder(folder)
        file = program_pairs(self._synthesis(), folder.path / "traces") if self.pairs is None else Path(self.pairs)
        course = row_course(self.open(base), base, pair_rows(base, file, self.longest, self.template), self.template)
        made_for = _made_for(file)
        require_unchanged(folder, "pairs.json", file, {"sha256": sha256(file)})

        def write_folder(model: Path) -> None:
            course.write_folder(model)
            say_made_for(model, made_for)

        return train(replace(course, write_folder=write_folder), self.settings, folder, report)


def _made_for(pairs: Path) -> dict[str, Any]:
    """Style and capacity of the pairs, if they lie in the run folder of `orgthink synth` that wrote them.

    The folder may be untrusted: no name in it is looked up, and another form counts as unknown.
    """
    with suppress(UserError):
        config = RunFolder.open(pairs.parent).config
        match config["kind"], config["settings"]:
            case "synth", {"prompts": str(prompts), "capacity": int(capacity)} if (
                prompts in tuple(STYLES) and capacity >= 2
            ):
                return {"prompts": prompts, "capacity": capacity}
    return {}


@dataclass(frozen=True, slots=True)
class Trajectories(WithGradients):
    """Supervised fine-tuning on managers' trajectories that `orgthink eval` records (section 3.2 of ParaManager)."""

    settings: SftSettings
    """Settings of the training."""
    episodes: str | None = None
    """Run folder with several samples of each problem; `None`: the user must give `--episodes`. To keep the problems of
    reinforcement learning unseen, use different parts of the task, such as `TASK@0/2` here and `TASK@1/2` there."""
    most: float = 0.5
    """Largest share of all calls that one tool may make, in (0, 1]."""
    wrong: bool = False
    """Whether trajectories with a wrong answer are learned, too: those of a teacher that routes at random would
    otherwise teach which calls turn out well."""
    longest: int | None = None
    """Largest number of tokens in a trajectory, at most the model's context; longer trajectories are left out."""

    def require(self) -> None:
        WithGradients.require(self)
        if self.episodes is None:
            raise UserError("this recipe trains on your own trajectories: name their run folder with --episodes")
        self._selected(model_folder(self.model))

    def run(self, folder: RunFolder, report: Report) -> Path:
        base = self.start_folder(folder)
        selection = self._selected(base)
        left_out = {"left_out": selection.left_out}
        require_unchanged(folder, "trajectories.json", self.episodes, {"ids": list(selection.ids)}, left_out)
        show(selection.summary)
        return train(row_course(self.open(base), base, selection.rows, self.template), self.settings, folder, report)

    def _selected(self, base: Path) -> Selection:
        """The trajectories for a model. UserError if the run folder is missing or no trajectory is selected."""
        assert self.episodes is not None
        known = [length for length in (self.longest, context_of(base)) if length is not None]
        run, longest = RunFolder.open(Path(self.episodes)), min(known, default=None)
        return trajectory_rows(run, base, most=self.most, wrong=self.wrong, longest=longest, template=self.template)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforced(WithGradients, ABC):
    """Common fields of all reinforcement learning."""

    settings: Optimization
    """Settings of the training."""
    sampler: str = "local"
    """Engine for rollouts: `local`, `vllm` or your own. Its weights are updated in place."""
    sampler_settings: dict[str, Any] = field(default_factory=dict)
    """Settings of that engine. vLLM and the trainer share a GPU: lower `gpu_memory_utilization`. The local one takes
    `device`, which is `cpu` unless said."""
    pack_tokens: int = 1024
    """Largest number of tokens in a forward pass; a longer row is computed alone."""
    adapters: Literal["one", "roles"] = "one"
    """With `lora`: one adapter for all that is trained, or one for each of the trained roles."""

    def require(self) -> None:
        WithGradients.require(self)
        if self.lora is not None and self.lora.dropout:
            raise UserError("reinforcement learning needs lora.dropout=0: the sampler has no dropout")
        if self.adapters == "roles" and (self.lora is None or self.sampler != "local"):
            raise UserError("adapters=roles needs --lora RANK and sampler=local")
        for role in self.settings.rollout.trained if self.adapters == "roles" else ():
            if not role.replace("-", "_").isidentifier():
                raise UserError(f"adapters=roles: the role {role!r} names a folder: letters, digits, _ and - only")
        opener(self.sampler)  # UserError for an unknown engine
        if self.sampler == "vllm" and find_spec("vllm") is None:
            raise UserError(
                "this recipe samples with vLLM, which is not installed: `make vllm`, or --set sampler=local; "
                "for --backend verl: `make verl-gpu`"
            )
        if self.sampler == "local":
            require_local(self.sampler_settings)
        self.settings.require(self.max_context)

    @property
    def max_context(self) -> int | None:
        """Context length in tokens; `None` if it is not known."""
        return self.context(context_of(model_folder(self.model)))

    def context(self, own: int | None) -> int | None:
        """The lower of a model's `own` context length and of the sampler's `max_model_len`; `None` without both."""
        return min(
            (
                length
                for length in (
                    own,
                    tokens_of(self.sampler_settings.get("max_model_len"), "sampler_settings.max_model_len"),
                )
                if length is not None
            ),
            default=None,
        )

    @abstractmethod
    def source(self) -> Source:
        """The source of rows in its initial state."""

    def run(self, folder: RunFolder, report: Report) -> Path:
        base = self.start_folder(folder)
        require_same_problems(folder, self.settings.rollout.task)
        backend = self.backend(base)
        try:
            return train_policy(backend, self.source(), self.settings, folder, report)
        finally:
            asyncio.run(backend.sampler.aclose())

    def how(self, folder: Path) -> dict[str, Any]:
        roles = self.settings.rollout.trained if self.adapters == "roles" else ()
        return {**WithGradients.how(self, folder), "roles": roles}

    def backend(self, folder: Path) -> EmbeddedBackend:
        """Open the model for training and again for sampling. UserError if the folder has no usable model."""
        reference: dict[str, Any] = {**self.how(folder), "lora": None}
        return EmbeddedBackend(
            self.open(folder),
            self.open_sampler(folder),
            folder,
            pack_tokens=self.pack_tokens,
            reference=open_trainable(model_folder(self.model), **reference) if self.settings.loss.kl > 0 else None,
            template=self.template,
        )

    def open_sampler(self, folder: Path) -> Engine:
        """Open the sampler. `local` decodes on the event loop, so runs are reproducible bit for bit.

        UserError if the engine cannot update its weights.
        """
        settings = self.sampler_settings
        if self.sampler == "local":  # the settings of vLLM in a recipe stay there
            settings = {"slots": SLOTS} | {name: settings[name] for name in LOCAL_SETTINGS & settings.keys()}
            settings["device"] = resolve_device(str(settings.get("device", "cpu")))
        settings = settings | ({"template": self.template} if self.template else {})
        engine = asyncio.run(opener(self.sampler)(str(folder), threaded=False, **settings))
        if not engine.updatable:
            raise UserError(f"sampler {self.sampler}: its weights cannot be updated, so it cannot sample for training")
        return engine


LOCAL_SETTINGS = {"device", "slots"}
"""Settings of the local sampler."""
VLLM_SETTINGS = {
    "attention_backend", "block_size", "cpu_offload_gb", "disable_log_stats", "distributed_executor_backend", "dtype",
    "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager", "gpu_memory_utilization", "hf_overrides",
    "kv_cache_dtype", "load_format", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "quantization", "seed",
    "swap_space", "tensor_parallel_size", "trust_remote_code",
}  # fmt: skip
"""Settings of vLLM. The local sampler ignores them, so that a recipe for vLLM also runs with `sampler=local`."""


def require_local(settings: Mapping[str, Any]) -> None:
    """UserError for unknown settings of the local sampler, and for invalid values."""
    for name in sorted(settings.keys() - LOCAL_SETTINGS - VLLM_SETTINGS):
        raise UserError(f"sampler_settings {lacks(name, sorted(LOCAL_SETTINGS))}")
    slots = settings.get("slots", SLOTS)
    if not isinstance(slots, int) or slots < 1:
        raise UserError(f"sampler_settings.slots is {slots}: it must be a whole number from 1 on")
    resolve_device(str(settings.get("device", "cpu")))


@dataclass(frozen=True, slots=True)
class Policy(Reinforced):
    """Reinforcement learning with one reward per episode.

    It trains all agents of the organization (AsyncThink), or some while others are frozen (ParaManager).
    """

    settings: RlSettings
    """Settings of the training."""

    def source(self) -> Episodes:
        return Episodes(self.settings)


@dataclass(frozen=True, slots=True)
class Mars(Reinforced):
    """Reinforcement learning of solver, verifier and corrector, each with its own reward (MarsRL)."""

    settings: MarsSettings
    """Settings of the training."""

    def source(self) -> Pipeline:
        return Pipeline(self.settings)
