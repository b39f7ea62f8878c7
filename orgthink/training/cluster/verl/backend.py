"""A `PolicyBackend` whose weights verl holds. verl's workers offer the operations of Tinker.

Rows go to the workers through TransferQueue. Workers compute micro-batches of bounded size, so each minibatch is one
call and one optimizer step.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.engine_workers_tinker import TinkerActorRolloutRefWorker

from orgthink.engines.engine import Engine
from orgthink.models.model_files import ModelFiles
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.folder import RunFolder
from orgthink.training.backend import Signals
from orgthink.training.checkpoint import OtherSetup
from orgthink.training.cluster.verl.attention import register
from orgthink.training.cluster.verl.engine import VerlEngine
from orgthink.training.cluster.verl.launch import FAULT, TRAINER, max_context
from orgthink.training.cluster.verl.rows import fields, padding, row_loss
from orgthink.training.gradients import UNSOUND
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.recipes.registry import training_of
from orgthink.training.rl import train_policy
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError
from orgthink.util.terminal import show

PARTITION = "train"
"""Partition of TransferQueue that holds the rows."""

NODE_CHECK = 2.0
"""Seconds between two checks of the nodes."""

register()


class VerlBackend:
    """Model and optimizer in verl's workers, the sampler in its rollout servers."""

    def __init__(self, trainer: Any, sampler: Engine, base: Path, template: Mapping[str, Any] | None = None) -> None:
        """`trainer` is verl's. `base` is the folder of the starting model; checkpoints get its tokenizer and other
        files, and the arguments `template` of the chat template.

        UserError if that cannot be done.
        """
        self._trainer, self.sampler, self._model_files = trainer, sampler, ModelFiles(base, template)
        self._workers = trainer.actor_rollout_wg
        self._parts = max(self._workers._query_dispatch_info("actor")) + 1
        self._numbers = count()
        self._loss: PolicyLoss | None = None
        self._awake = False

    def logprobs(self, rows: Sequence[PolicyRow]) -> list[tuple[float, ...]]:
        with self._placed(rows) as (batch, keys):
            self._workers.compute_log_prob(batch)
            found = tq.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=["log_probs"])["log_probs"]
            # The output at position t is for token t + 1; 0 for what is not trained.
            return [
                tuple(p if on else 0.0 for on, p in zip(row.trained, [0.0, *logprobs_T.tolist()[:-1]], strict=True))
                for row, logprobs_T in zip(rows, found.unbind(), strict=True)
            ]

    def forward_backward(self, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Signals:
        if loss != self._loss:
            self._workers.set_loss_fn(partial(row_loss, loss=loss))
            self._loss = loss
        with self._placed(rows) as (batch, _):
            if loss.kl > 0:
                self._trainer._compute_ref_log_prob(batch, {})
                batch.extra_info |= {"calculate_entropy": True, "compute_loss": True}
            return _signals(self._workers.forward_backward(batch))

    def optim_step(self, learning_rate: float, clip: float) -> float:
        """The workers clip to the norm in verl's settings, which launch.py takes from the job; `clip` is not read."""
        results = self._workers.optimizer_step({"lr": learning_rate})
        norm = float(next(result["grad_norm"] for result in results if result))
        if norm != norm or norm == float("inf"):
            raise UserError(f"the gradient norm is {norm}: {UNSOUND}")
        return norm

    async def sync_sampler(self, version: str) -> None:
        self._sleep()
        await self._trainer.checkpoint_manager.update_weights(int(version))
        await self._trainer.checkpoint_manager.resume_generation_replicas()
        self._awake = True

    def save(self, folder: Path) -> None:
        self._workers.save_checkpoint(str(folder / "verl"), None, 0, None)
        shutil.rmtree(folder / "model")
        (folder / "verl" / "huggingface").rename(folder / "model")
        self._model_files.write(folder / "model")

    def load(self, folder: Path) -> None:
        if not (folder / "verl").is_dir():
            raise OtherSetup(f"{folder} is not a checkpoint of verl: resume with the backend that wrote it")
        shards, workers = len(list(folder.glob("verl/model_*.pt"))), self._workers.world_size
        if shards != workers:
            raise OtherSetup(
                f"{folder} has shards of {shards} processes, not {workers}: use as many nodes × GPUs as before"
            )
        self._workers.load_checkpoint(str(folder / "verl"))

    def _sleep(self) -> None:
        """Servers return their partial outputs and release their memory. Requests then wait for new weights."""
        if self._awake:
            self._trainer.checkpoint_manager.abort_replicas()
            self._trainer.checkpoint_manager.sleep_replicas()
            self._awake = False

    @contextmanager
    def _placed(self, rows: Sequence[PolicyRow]) -> Iterator[tuple[KVBatchMeta, list[str]]]:
        """Put rows into TransferQueue: yields a batch with equal parts for all workers, and the key of each row."""
        self._sleep()
        placed = [*rows, *[padding(min(rows, key=len))] * (-len(rows) % self._parts)]
        keys = [f"{row.group}_{next(self._numbers)}_0" for row in placed]
        tags = [{"seq_len": len(row), "is_padding": row.episode == "padding"} for row in placed]
        known = list_of_dict_to_tensordict([fields(row) for row in placed])
        tq.kv_batch_put(keys=keys, partition_id=PARTITION, fields=known, tags=tags)
        try:
            extra = {"temperature": rows[0].temperature, "calculate_entropy": True, "compute_loss": False}
            batch = KVBatchMeta(partition_id=PARTITION, keys=keys, tags=tags, extra_info=extra)
            batch.reorder(_balanced([len(row) for row in placed], self._parts))
            yield batch, keys[: len(rows)]
        finally:
            tq.kv_clear(keys=keys, partition_id=PARTITION)


def _balanced(lengths: Sequence[int], parts: int) -> list[int]:
    """An order of the rows such that equal parts have about equal work."""
    if parts == 1:
        return list(range(len(lengths)))
    work = calculate_workload(torch.tensor(lengths))
    return [place for part in get_seqlen_balanced_partitions(work, parts, equal_size=True) for place in part]


def _signals(answer: Any) -> Signals:
    """Sum of the signals of all micro-batches; the answer of each worker has those of all workers."""
    first = ray.get(answer.futures)[0]
    return sum((signals for worker in first.extra_info["metrics"]["signals"] for signals in worker), Signals())


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
        engine = VerlEngine(
            client, Tokenizer(base, job.template), name=base.name, context=max_context(job), stretch=stretch
        )

        def report(line: dict[str, Any]) -> None:
            show(f"step {line['step']}/{job.settings.steps}  {job.settings.progress_text(line)}")

        with _watched_nodes(lambda message: folder.write(FAULT, message)):
            try:
                train_policy(VerlBackend(self, engine, base, job.template), job.source(), job.settings, folder, report)
            except UserError as error:  # Ray would wrap it
                folder.write(FAULT, str(error))
                raise
        self._shutdown_dump_executor()


@contextmanager
def _watched_nodes(report: Callable[[str], object]) -> Iterator[None]:
    """If a node with processes of this job is lost, `report` it and end this process.

    Without this gloo, NCCL and TransferQueue would wait forever. After an error the check continues: verl's shutdown
    waits for lost nodes too.
    """
    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    actors = ray._private.state.actors(job_id=job, actor_state_name="ALIVE")
    ours = {actor["Address"]["NodeID"] for actor in actors.values()}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(NODE_CHECK):
            for node in ray.nodes():
                if node["NodeID"] in ours and not node["Alive"]:
                    report(f"the cluster lost a node, {node['NodeManagerAddress']}")
                    os._exit(1)

    threading.Thread(target=watch, name="nodes", daemon=True).start()
    yield
    ended.set()
