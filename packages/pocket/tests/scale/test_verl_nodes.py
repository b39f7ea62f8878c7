"""A Ray cluster of two nodes on this machine, of which one is killed in the middle of a step. `make test-verl`.

On each a process that trains and a rollout server. The run is started, ends with one line, is refused while the node is
away, and goes on when it is back.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import orgthink.training.cluster.verl.cpu  # noqa: I001, F401  # the platform comes first
import verl_servers

import psutil
import ray
import torch
import torch.distributed.tensor  # so that a checkpoint of shards is read without running anything in it
from safetensors.torch import load_file

from orgthink.util.errors import UserError
from orgthink.training.cluster.verl.backend import VerlBackend
from orgthink.training.cluster.verl.nodes import Placement
from orgthink.training.cluster.verl.nodes import missing
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.recipes.registry import Training
from orgthink.training.recipes.registry import adjusted
from orgthink.training.recipes.registry import go_on
from orgthink.training.recipes.registry import start
from orgthink.training.recipes.registry import training_of

pytestmark = pytest.mark.verl

RECIPE, STEPS = "marsrl-pocket", 3

SETTINGS = [f"steps={STEPS}", "minibatches=1", "save_every=1", "warmup=0"]
SETTINGS += ["rollout.problems=6", "rollout.group=4"]

HANG = 1500.0
"""Seconds after which something hangs, whatever else the machine has to do."""

TRIES = 5
"""Times to start a node: Ray gives the processes beside its raylet 15 seconds, whatever else the machine has to do."""

QUIET = {"RAY_prestart_worker_first_driver": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""For nodes: no processes on the off chance that somebody wants them."""


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        free = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in free:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in free]


class Node:
    """One of the cluster, with a made-up GPU: `ray start`, and what it started."""

    def __init__(self, place: Path, *options: str) -> None:
        names = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port")
        size = ["--num-cpus=6", "--num-gpus=1", "--object-store-memory=200000000", "--include-log-monitor=false"]
        said = ""
        for _ in range(TRIES):
            # Both nodes are on one machine: neither may have the usual ports.
            ports = [f"--{name}={port}" for name, port in zip(names, free_ports(len(names)), strict=True)]
            command = [str(Path(sys.executable).with_name("ray")), "start", "--block", *size, *ports, *options]
            log = place / f"node{time.monotonic_ns()}.log"
            with log.open("w") as output:
                self.process = psutil.Popen(command, stdout=output, stderr=output, env=os.environ | QUIET)
            while self.process.poll() is None:
                if "Ray runtime started" in (said := log.read_text()):
                    return
                time.sleep(0.1)
        raise RuntimeError(said)

    def kill(self) -> None:
        """As if the power went."""
        every = [*self.process.children(recursive=True), self.process]
        for one in every:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(every)


def until(done: Callable[[], bool], going: Callable[[], bool], said: Callable[[], str] = str) -> None:
    """Wait, as long as what is to do it goes on."""
    end = time.monotonic() + HANG
    while not done():
        assert going() and time.monotonic() < end, said()
        time.sleep(0.1)


@dataclass(frozen=True)
class Server:
    """What a rollout server says of itself."""

    node: str
    version: int
    sampled: int
    """Tokens it has sampled."""
    sums: dict[str, float]
    """Of its weights, by their name."""


@dataclass(frozen=True)
class Ended:
    """A command that has come to its end."""

    code: int
    error: list[str]
    """Lines of its standard error."""


@dataclass(frozen=True)
class Story:
    """What happened."""

    folder: RunFolder
    servers: list[Server]
    pushed: dict[str, float]
    """Sums of the weights in the checkpoint of the version that the servers had."""
    before: list[bytes]
    """Lines of metrics.jsonl when the run had ended, up to the newest checkpoint."""
    kept: list[str]
    """Checkpoints then."""
    lost: Ended
    refused: Ended
    resumed: Ended

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in metrics(self.folder)]

    @property
    def last(self) -> Path:
        return checkpoint.saved(self.folder.path)[-1]


def metrics(folder: RunFolder) -> list[bytes]:
    return (folder.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)


def command(folder: RunFolder, address: str) -> list[str]:
    """The run from wherever it is: the same each time."""
    run = [sys.executable, "-m", "orgthink", "train", "--resume", str(folder.path)]
    return [*run, "--backend", "verl", "--device", "cpu", "--cluster", "nodes=2", "gpus=1", f"address={address}"]


@contextmanager
def started(said: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as errors, subprocess.Popen(said, stdout=subprocess.DEVNULL, stderr=errors) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes], log: Path) -> Ended:
    return Ended(process.wait(HANG), log.read_text().splitlines())


def went(said: list[str], log: Path) -> Ended:
    with started(said, log) as process:
        return ended(process, log)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ray"))  # short: paths of sockets are
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def story(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = start(Training(RECIPE, adjusted(RECIPES[RECIPE], {}, SETTINGS)), tmp_path_factory.mktemp("verl") / "run")
    nodes: list[Node] = []
    (port,) = free_ports(1)
    try:
        options = ["--head", f"--port={port}", f"--temp-dir={place}", "--include-dashboard=false"]
        nodes.append(Node(place, *options))
        address = f"{ray.util.get_node_ip_address()}:{port}"
        nodes.append(Node(place, f"--address={address}"))
        log = place / "run.log"
        with started(command(folder, address), log) as run:
            servers = seen(address, run, log)
            newest = folder.path / "checkpoints" / f"step-{servers[0].version:06d}"
            until(newest.is_dir, lambda: run.poll() is None, log.read_text)
            pushed = {
                name: float(w.double().sum()) for name, w in load_file(newest / "model/model.safetensors").items()
            }
            nodes.pop().kill()
            lost = ended(run, log)
        kept = [path.name for path in checkpoint.saved(folder.path)]
        before = metrics(folder)[: int(kept[-1].removeprefix("step-"))]
        refused = went(command(folder, address), log)
        nodes.append(Node(place, f"--address={address}"))
        resumed = went(command(folder, address), log)
    finally:
        for node in nodes:
            node.kill()
    yield Story(folder, servers, pushed, before, kept, lost, refused, resumed)


def seen(address: str, run: subprocess.Popen[bytes], log: Path) -> list[Server]:
    """The servers, looked at by a process of its own: a node that is killed takes along who is connected to it."""
    with subprocess.Popen([sys.executable, verl_servers.__file__, address], stdout=subprocess.PIPE) as looking:
        try:
            until(lambda: looking.poll() is not None, lambda: run.poll() is None, log.read_text)
        finally:
            looking.kill()
        assert looking.stdout is not None
        return [Server(**server) for server in json.load(looking.stdout)]


def test_both_nodes_serve_the_weights_that_both_trained(story: Story):
    """Both sample, with the weights of the newest checkpoint, to the last bit."""
    assert len({server.node for server in story.servers}) == 2
    assert all(server.sampled > 0 for server in story.servers)
    for server in story.servers:
        assert story.pushed.items() <= server.sums.items()


def test_a_run_that_loses_a_node_ends_with_one_line(story: Story):
    assert story.lost.code == 2
    said = story.lost.error[-1]
    assert said.startswith("orgthink: the cluster lost a node: the run needs 2 × 1 GPUs")
    assert said.endswith(f"continue with --resume {story.folder.path}") and said.count("--resume") == 1
    assert len(story.before) < STEPS, "it was killed before the end"


def test_too_few_nodes_are_one_line_before_anything_starts(story: Story):
    assert story.refused.code == 2
    (said,) = story.refused.error
    assert "ray start --address=" in said and "1 × 1" in said


def test_it_goes_on_from_the_newest_checkpoint_and_nothing_that_was_saved_is_lost(story: Story):
    assert story.kept and story.before
    assert story.resumed.code == 0, story.resumed.error
    assert metrics(story.folder)[: len(story.before)] == story.before
    assert [line["step"] for line in story.lines] == list(range(1, STEPS + 1))
    assert checkpoint.state(story.last)["step"] == STEPS


def test_both_workers_took_every_step(story: Story):
    shards = sorted(story.last.glob("verl/optim_*.pt"))
    taken = [{int(state["step"]) for state in torch.load(shard)["state"].values()} for shard in shards]
    assert taken == [{STEPS}] * 2
    assert all(line["trained_tokens"] > 0 for line in story.lines)
    assert all(line["logprob_difference"] <= 1e-5 for line in story.lines)


def test_two_workers_compute_what_the_embedded_trainer_does(story: Story, tmp_path: Path):
    told = training_of(story.folder)
    ours = start(Training(told.recipe, adjusted(told.job, {}, ["steps=1"])), tmp_path / "embedded")
    lines: list[dict[str, Any]] = []
    go_on(ours, lines.append)
    (expected,), found = lines, story.lines[0]
    same = ["groups", "flat_groups", "rewards", "trained_tokens", "clip_fraction", "masked_tokens", "learning_rate"]
    assert {name: found[name] for name in same} == {name: expected[name] for name in same}
    for name in ("loss", "gradient_norm", "entropy", "sampled_entropy"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name
    assert found["kl"] == 0.0


def test_a_checkpoint_of_two_workers_is_not_for_one(story: Story):
    group = SimpleNamespace(world_size=1, _query_dispatch_info=lambda mesh: [0])
    alone: Any = SimpleNamespace(actor_rollout_wg=group)
    sampler: Any = None
    with pytest.raises(UserError, match="of 2 processes, not 1"):
        VerlBackend(alone, sampler, story.last / "model").load(story.last)


def test_an_address_at_which_nobody_answers():
    (port,) = free_ports(1)
    found = missing(Placement(device="cpu", address=f"127.0.0.1:{port}"))
    assert found is not None and "no Ray cluster answers at 127.0.0.1" in found and "\n" not in found
