"""The backend over a real worker of verl, with TransferQueue and the calls between processes played in this one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

from verl_worker import packed, worker_of  # noqa: I001  # before everything else of verl

import torch
from safetensors.torch import load_file
from verl.utils import tensordict_utils as tu

from orgthink.engines.local.engine import LocalEngine
from orgthink.util.errors import UserError
from orgthink.training.cluster.verl import backend as module
from orgthink.training.cluster.verl.backend import VerlBackend
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.recipes.registry import adjusted
from orgthink.training.rl import Clock
from orgthink.training.optimization import update
from orgthink.training.rows import PolicyRow

pytestmark = pytest.mark.verl

JOB = adjusted(
    RECIPES["asyncthink-pocket"], {}, ["rollout.problems=2", "rollout.group=4", "minibatches=2", "loss.kl=0.1"]
)
assert isinstance(JOB, Reinforced)
BASE = model_folder(JOB.model)


class Queue:
    """TransferQueue's words, kept in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def kv_batch_put(self, keys: Sequence[str], partition_id: str, fields: Any, tags: Any = None) -> None:
        for i, key in enumerate(keys):
            self.rows.setdefault(key, {}).update({name: fields[name][i] for name in fields.keys()})  # noqa: SIM118

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str] | None = None) -> Any:
        rows = [self.rows[key] for key in keys]
        kept = [{name: row[name] for name in select_fields or row} for row in rows]
        return packed(kept)

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            del self.rows[key]


class Group:
    """A worker group of one, of which every worker is told to be `parts`."""

    def __init__(self, worker: Any, queue: Queue, parts: int) -> None:
        self.worker, self.queue, self.parts = worker, queue, parts

    def _query_dispatch_info(self, mesh: str) -> list[int]:
        return list(range(self.parts))

    def _read(self, batch: Any) -> Any:
        assert len(batch) % self.parts == 0, "every worker gets an equal part"
        data = self.queue.kv_batch_get(batch.keys, "train")
        tu.assign_non_tensor(data, **batch.extra_info)
        return data

    def compute_log_prob(self, batch: Any) -> None:
        found = self.worker.compute_log_prob(self._read(batch))
        self.queue.kv_batch_put(batch.keys, "train", packed([{"log_probs": p} for p in found["log_probs"].unbind()]))

    def forward_backward(self, batch: Any) -> Any:
        metrics = tu.get(self.worker.forward_backward(self._read(batch)), "metrics")
        return SimpleNamespace(futures=[SimpleNamespace(extra_info={"metrics": metrics})])

    def optimizer_step(self, settings: dict[str, float]) -> list[Any]:
        return [self.worker.optimizer_step(settings)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)


class Trainer:
    """What the backend asks of verl's trainer."""

    def __init__(self, group: Group) -> None:
        self.actor_rollout_wg, self.said = group, []
        self.checkpoint_manager = self

    def abort_replicas(self) -> None:
        self.said.append("abort")

    def sleep_replicas(self) -> None:
        self.said.append("sleep")

    async def update_weights(self, version: int) -> None:
        self.said.append(f"push {version}")

    async def resume_generation_replicas(self) -> None:
        self.said.append("resume")

    def _compute_ref_log_prob(self, batch: Any, metrics: Any) -> None:
        self.actor_rollout_wg.compute_log_prob(batch)
        queue = self.actor_rollout_wg.queue
        for key in batch.keys:
            row = queue.rows[key]
            n = len(row["responses"])
            row["ref_log_prob"] = row["log_probs"][-n - 1 : -1]


@pytest.fixture(scope="module")
def worker() -> Any:
    return worker_of(JOB)


@pytest.fixture(scope="module")
def ours() -> EmbeddedBackend:
    return JOB.backend(BASE)


@pytest.fixture(scope="module")
def rows(ours: EmbeddedBackend) -> list[PolicyRow]:
    async def collected() -> list[PolicyRow]:
        source = JOB.source()
        async with source.working():
            await ours.sync_sampler("0")
            return (await source.collect(ours.sampler, 0, Clock(), lambda episode: None)).rows

    return asyncio.run(collected())


@pytest.fixture(params=[1, 3])
def backend(request: pytest.FixtureRequest, worker: Any, monkeypatch: pytest.MonkeyPatch) -> VerlBackend:
    queue = Queue()
    monkeypatch.setattr(module, "tq", queue)
    monkeypatch.setattr(module.ray, "get", lambda futures: futures)
    sampler = LocalEngine.open(BASE, threaded=False)
    return VerlBackend(Trainer(Group(worker, queue, request.param)), sampler, BASE)  # type: ignore[arg-type]


@pytest.mark.numerical
def test_log_probabilities_are_the_embedded_trainer_s(backend, ours, rows):
    for found, expected, row in zip(backend.logprobs(rows), ours.logprobs(rows), rows, strict=True):
        assert found == pytest.approx(expected, abs=5e-5)
        assert all(p == 0 for p, on in zip(found, row.trained, strict=True) if not on)


@pytest.mark.numerical
def test_signals_are_the_embedded_trainer_s_and_nothing_is_left_behind(backend, ours, rows):
    rows = [replace(row, weight=1 / sum(map(len, rows))) for row in rows]
    found = backend.forward_backward(rows, JOB.settings.loss)
    expected = ours.forward_backward(rows, JOB.settings.loss)
    assert (found.tokens, found.fresh, found.clipped) == (expected.tokens, expected.fresh, expected.clipped)
    assert found.loss == pytest.approx(expected.loss, abs=1e-5) and found.kl == 0.0
    assert backend.optim_step(0.0, 1.0) == pytest.approx(ours.optim_step(0.0, 1.0), rel=1e-4)
    assert not module.tq.rows


def steps_taken(worker: Any) -> int:
    return max((int(state["step"]) for state in worker.actor.engine.optimizer.state.values()), default=0)


def test_a_step_takes_as_many_optimizer_steps_for_episodes_with_0_and_with_4_forks(backend, rows, worker):
    """Of both kinds as many episodes: of an organizer alone, and of one with four workers."""
    organizer = next(row for row in rows if row.agent == "organizer")
    alone = [replace(organizer, episode=f"e{i}", group=f"g{i % 2}", advantage=(-1.0) ** i) for i in range(4)]
    forked = [replace(row, agent=f"{row.agent}/{i}") for row in alone for i in range(5)]
    taken = []
    for some in (alone, forked):
        before = steps_taken(worker)
        update(backend, replace(JOB.settings, drift=1e3), some, rate=0.0)
        taken.append(steps_taken(worker) - before)
    assert taken == [JOB.settings.minibatches] * 2


async def test_servers_sleep_while_weights_are_trained(backend, rows):
    await backend.sync_sampler("0")
    backend.logprobs(rows)
    backend.logprobs(rows)
    await backend.sync_sampler("1")
    assert backend._trainer.said == ["push 0", "resume", "abort", "sleep", "push 1", "resume"]


@pytest.mark.parametrize("backend", [1], indirect=True)
def test_a_checkpoint_brings_weights_and_optimizer_back(backend, rows, worker, tmp_path: Path):
    (tmp_path / "one" / "model").mkdir(parents=True)
    update(backend, replace(JOB.settings, drift=1e3), rows, rate=1e-3)
    backend.save(tmp_path / "one")
    saved, taken = load_file(tmp_path / "one" / "model" / "model.safetensors"), steps_taken(worker)
    assert saved.keys() == load_file(BASE / "model.safetensors").keys()
    update(backend, replace(JOB.settings, drift=1e3), rows, rate=1e-3)
    backend.load(tmp_path / "one")
    assert steps_taken(worker) == taken
    for name, weight in worker.actor.engine.module.named_parameters():
        torch.testing.assert_close(weight.full_tensor(), saved[name], rtol=0, atol=0)
    with pytest.raises(UserError, match="not a checkpoint of verl"):
        backend.load(tmp_path)


def test_a_lost_node_of_the_run_ends_it_with_one_line(monkeypatch: pytest.MonkeyPatch):
    """Another job's node may be lost. A lost node of ours is reported, and the process ends."""
    nodes = [{"NodeID": name, "NodeManagerAddress": f"10.0.0.{name}", "Alive": True} for name in "12"]
    context = SimpleNamespace(get_job_id=lambda: "01000000")
    actors = {"a": {"Address": {"NodeID": "1"}}}
    monkeypatch.setattr(module, "NODE_CHECK", 0.01)
    monkeypatch.setattr(module.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(module.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(module.ray._private.state, "actors", lambda **_: actors)
    ended = threading.Event()
    monkeypatch.setattr(module.os, "_exit", lambda code: ended.set())
    reports: list[str] = []
    with module._watched_nodes(reports.append):
        nodes[1]["Alive"] = False
        assert not ended.wait(0.1)
        nodes[0]["Alive"] = False
        assert ended.wait(5)
    assert set(reports) == {"the cluster lost a node, 10.0.0.1"}
