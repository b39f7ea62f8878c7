"""verl's trainer: it opens workers and servers, then our loop trains.

VERL_USE_EXTERNAL_MODULES names this module, so that every process of verl registers the trainer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.utils.tracking import Tracking
from verl.workers.engine_workers_tinker import TinkerActorRolloutRefWorker

from orgthink.models.tokenizer import Tokenizer
from orgthink.record.folder import RunFolder
from orgthink.training.cluster.verl.backend import VerlBackend
from orgthink.training.cluster.verl.engine import VerlEngine
from orgthink.training.cluster.verl.launch import FAULT, TRAINER, max_context
from orgthink.training.cluster.verl.nodes import watched
from orgthink.training.recipes.from_model import model_folder
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.recipes.registry import training_of
from orgthink.training.rl import train_policy
from orgthink.util.errors import UserError
from orgthink.util.terminal import show


class Rollouts:
    """verl's `agent_loop_manager_class`: it holds the client of the rollout servers."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @classmethod
    def create(cls, *, llm_client: Any, **others: Any) -> Rollouts:
        """Called by verl; its reward workers and teachers are not used."""
        return cls(llm_client)


@register_trainer(TRAINER)
class OrganizationTrainer(PPOTrainer):
    """Trains the job of a run folder, `orgthink.run` in verl's settings."""

    def _init_dataloader(self) -> None:
        """Our sources draw problems and save their position."""

    def _init_resource_pool_mgr(self) -> None:
        """Use workers with separate calls for gradients and optimizer steps."""
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(TinkerActorRolloutRefWorker)

    def on_sample_end(self) -> None:
        """The backend puts servers to sleep."""

    def on_step_end(self) -> None:
        """The backend pushes weights."""

    def fit(self, agent_loop_manager: Rollouts) -> None:
        """Train to the last step, from the newest checkpoint in the run folder."""
        folder = RunFolder.open(Path(self.config.orgthink.run))
        job = training_of(folder).job
        assert isinstance(job, Reinforced), "launch.py refuses other jobs"
        base, client = model_folder(job.model), agent_loop_manager.client
        stretch = self.config.orgthink.stretch
        engine = VerlEngine(client, Tokenizer(base), name=base.name, context=max_context(job), stretch=stretch)
        tracking = Tracking(
            project_name=self.config.trainer.project_name,
            experiment_name=self.config.trainer.experiment_name,
            default_backend=list(self.config.trainer.logger),
            config={**self.config, "run": folder.config},
        )

        def report(line: dict[str, Any]) -> None:
            show(f"step {line['step']}/{job.steps}  {job.settings.progress_text(line)}")
            tracking.log({name: value for name, value in line.items() if isinstance(value, int | float)}, line["step"])

        with watched(lambda message: folder.write(FAULT, message)):
            try:
                train_policy(VerlBackend(self, engine, base), job.source(), job.settings, folder, report)
            except UserError as error:  # Ray would wrap it
                folder.write(FAULT, str(error))
                raise
        self._shutdown_dump_executor()
