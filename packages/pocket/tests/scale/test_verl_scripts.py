"""Each script in examples/cluster takes two steps for real, on a CPU: torchrun, Ray, verl's trainer, a tiny model.

The same command again finds nothing to do. `make test-verl`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from managed_runs import managed, recorded
from pages import endpoint
from random_model import write_random_model

from orgthink.training.cluster.sizing.model import QWEN3_4B

pytestmark = pytest.mark.verl

ROOT = Path(__file__).parents[4]
SMALL = replace(
    QWEN3_4B,
    vocab_size=300,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
)
REWARDS = '''
"""Rewards that differ: all that a random model writes would earn the same, and teach nothing."""

from dataclasses import dataclass
from itertools import cycle
from zlib import crc32

from orgthink.rewards import EpisodeReward, RoleReward, Score

TURNS = cycle((0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Spread(EpisodeReward):
    def __call__(self, episode):
        return Score(crc32(episode.id.encode()) % 7)


@dataclass(frozen=True, slots=True)
class Turns(RoleReward):
    def solution(self, right):
        return next(TURNS)

    def verdict(self, verdict, truth):
        return next(TURNS)
'''
SHORT = "sampler=local rollout.problems=2 rollout.group=2 rollout.max_tokens=16"
"""What a script does on a CPU: verl's servers there are ours, and few short attempts are enough."""
POOL = ("gpt-oss-20b", "qwen3-30b-a3b", "qwen3-coder-30b-a3b", "summarizer")


@dataclass(frozen=True)
class Case:
    """A script, and what it is told besides to be short."""

    name: str
    arguments: tuple[str, ...]
    runs: tuple[str, ...]
    """The run folders that it makes."""
    settings: str
    cluster: str = ""


CASES = [
    Case(
        "asyncthink",
        ("base", "pairs.jsonl", "countdown"),
        ("asyncthink-qwen3-countdown-sft", "asyncthink-qwen3-countdown"),
        "rollout.limits.max_tokens=32 reward.kind=rewards.py:Spread",
    ),
    Case(
        "marsrl",
        ("base", "math:rows.jsonl"),
        ("marsrl-qwen3",),
        "rollout.max_input=1024 rollout.segment=16 rollout.live=16 reward.kind=rewards.py:Turns",
        "tensor_parallel=1",
    ),
    Case(
        "paramanager",
        ("base", "tries", "math:rows.jsonl"),
        ("paramanager-qwen3-sft", "paramanager-qwen3"),
        "rollout.limits.max_tokens=32 mixed=false reward.kind=rewards.py:Spread",
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, pairs, trajectories, problems and texts."""
    place = tmp_path_factory.mktemp("scripts")
    write_random_model(place / "base", SMALL, layers=1, dtype="float32")
    (place / "pairs.jsonl").write_text('{"query": "Add 2 and 3.", "response": "<ANSWER>5</ANSWER>"}\n' * 8)
    rows = ({"problem": f"What is {n} + 1?", "answer": n + 1} for n in range(40))
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recorded(place / "tries", managed(None))
    (place / "texts").mkdir()
    (place / "texts" / "one.txt").write_text("Nothing is known about it.\n")
    (place / "rewards.py").write_text(REWARDS)
    return place


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    """The environment of a trial. Ray's folder has a short path, because the length of socket paths is limited."""
    ray = tempfile.mkdtemp(prefix="ray")
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_ADDRESS", "NODES"))}
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "GPUS": "2"}
    with endpoint() as url:
        members = (f"rollout.models.{name}.engine" for name in POOL)
        served = " ".join(f"{member}.url={url} {member}.model=tiny" for member in members)
        yield {**known, **own, "SERVED": "1", "RETRIEVER": "texts", "POOL": served, "RAY_FOLDER": ray}
    shutil.rmtree(ray, ignore_errors=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_steps_and_then_nothing_is_left_to_do(case: Case, place: Path, variables: dict[str, str]) -> None:
    told = f"{SHORT} {case.settings}" + (f" {variables['POOL']}" if case.name == "paramanager" else "")
    cluster = f"+ray_kwargs.ray_init._temp_dir={variables['RAY_FOLDER']} {case.cluster}"
    command = ["bash", str(ROOT / "examples" / "cluster" / f"{case.name}.sh"), *case.arguments]
    command += ["--device", "cpu", "--steps", "2"]

    def script() -> str:
        environment = variables | {"SETTINGS": told, "CLUSTER": cluster}
        how: dict[str, Any] = {"cwd": place, "env": environment, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, stderr=subprocess.STDOUT, start_new_session=True, **how)
        try:
            said, _ = process.communicate(timeout=1_200)
        finally:
            with suppress(ProcessLookupError):  # what it has started, such as Ray, would go on
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, said[-9_000:]
        return said

    script()
    for run in case.runs:
        lines = [json.loads(line) for line in (place / "runs" / run / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == [1, 2]
        assert all(line["trained_tokens"] > 0 and line["gradient_norm"] > 0 for line in lines)
        assert (place / "runs" / run / "checkpoints/step-000002/model/config.json").is_file()
    assert script().count("has ended") == len(case.runs)
