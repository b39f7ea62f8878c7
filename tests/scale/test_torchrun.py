"""Fine-tuning by two processes that torchrun starts, on a CPU: losses, gradients and checkpoints are those of one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from random_model import write_random_experts, write_random_model
from safetensors.torch import load_file
from test_sft import SETTINGS, course, folder

from orgthink.cli import main
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import open_decoder
from orgthink.training import checkpoint, sft
from orgthink.training.cluster.sizing.model import QWEN3_4B
from orgthink.training.coldstart.pairs import Pair, pair_rows, write
from orgthink.training.recipes import base_model
from orgthink.training.recipes.any_model import ASYNCTHINK
from orgthink.training.recipes.jobs import Job
from orgthink.training.recipes.papers import ASYNCTHINK_SFT
from orgthink.util.errors import UserError

BEGUN = " <FORK-1> scan + </FORK-1> 3 + 4 <JOIN-1> ! 1 + 2 ; </JOIN-1>"
PAIRS = [
    Pair("organizer countdown 1 2 = 3", " <FORK-1> scan + </FORK-1> 3 + 4 <JOIN-1>", "organizer", last=False),
    Pair(f"organizer countdown 1 2 = 3{BEGUN}", " <ANSWER> 1 + 2 </ANSWER>", "organizer", written=len(BEGUN)),
    Pair("worker countdown 1 2 = 3 subtask scan +", " <RETURN> ! 1 + 2 ; </RETURN>", "worker"),
    Pair("a question that is much longer than " * 3, "yes", "worker"),
    Pair("short", "an answer that is longer than its question", "worker"),
]
"""The first two are one row, whose injected text is masked."""
HOW = ["batch_tokens=200", "pack_tokens=100", "save_every=1", "keep=none", "warmup=1", "learning_rate=1e-2"]
SMALL = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "num_attention_heads": 4}
EXPERTS = {"num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


@dataclass(frozen=True)
class Runs:
    """The same training by one process and by two."""

    base: Path
    one: Path
    two: Path


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TRAIN = (*TORCHRUN, "-m", "orgthink", "train")


def together(*words: str) -> subprocess.CompletedProcess[str]:
    """`torchrun --nproc-per-node 2 -m orgthink train …`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*TRAIN, *words], env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module", params=["decoder", pytest.param("experts", marks=pytest.mark.thorough)])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Six steps of a model that our decoder computes, or that transformers computes, with layers computed twice."""
    place = tmp_path_factory.mktemp(request.param)
    if request.param == "decoder":
        architecture = replace(QWEN3_4B, **SMALL, num_key_value_heads=2)
        base, further = write_random_model(place / "base", architecture, layers=2, dtype="float32"), []
    else:
        base = write_random_experts(place / "base", SMALL | EXPERTS | {"num_key_value_heads": 2}, dtype="float32")
        further = ["gradient_checkpointing=true"]
    write(place / "pairs.jsonl", PAIRS)
    words = ["asyncthink-sft", "--model", str(base), "--pairs", str(place / "pairs.jsonl"), "--device", "cpu"]
    words += ["--steps", "6", "--set", *HOW, *further]
    assert main(["train", *words, "--out", str(place / "one")]) == 0
    done = together(*words, "--out", str(place / "two"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the model is in") == 1  # the first process alone says so
    return Runs(base, place / "one", place / "two")


def metrics(run: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def require_same(run: Path, other: Path) -> None:
    for here, there in zip(metrics(run), metrics(other), strict=True):
        assert here == pytest.approx(there, rel=1e-5)


@pytest.mark.numerical
def test_loss_and_gradient_are_those_of_one_process(runs: Runs) -> None:
    """Adam's first moment after a step is the clipped gradient, times a constant. Some batches have one row, which two
    processes cannot share; others have several."""
    require_same(runs.two, runs.one)
    lengths = {len(row) for row in pair_rows(runs.base, runs.base.parent / "pairs.jsonl")}
    computed = {line["computed_tokens"] for line in metrics(runs.one)}
    assert computed & lengths and computed - lengths
    one, two = (
        torch.load(run / "checkpoints" / "step-000001" / "trainer.pt", weights_only=True)["state"]
        for run in (runs.one, runs.two)
    )
    assert one.keys() == two.keys()
    for place in one:
        here, there = one[place]["exp_avg"].double(), two[place]["exp_avg"].double()
        assert here.norm() > 0 and (here - there).norm() <= 1e-5 * here.norm(), place


@pytest.mark.numerical
def test_a_checkpoint_is_the_model_folder_of_one_process(runs: Runs) -> None:
    one, two = (run / "checkpoints" / "step-000006" / "model" for run in (runs.one, runs.two))
    assert sorted(file.name for file in two.iterdir()) == sorted(file.name for file in one.iterdir())
    here, there = (load_file(folder / "model.safetensors") for folder in (one, two))
    assert here.keys() == there.keys()
    assert all(torch.allclose(here[name], there[name], rtol=1e-3, atol=1e-4) for name in here)
    open_decoder(two)


@pytest.mark.numerical
@pytest.mark.parametrize("first", ["one", "two"])
def test_another_number_of_processes_goes_on(runs: Runs, first: str, tmp_path: Path) -> None:
    shutil.copytree(getattr(runs, first), tmp_path / "run")
    for step in (5, 6):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step:06d}")
    if first == "one":
        done = together("--resume", str(tmp_path / "run"))
        assert done.returncode == 0 and "continuing from step 4" in done.stderr, done.stderr
    else:
        assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    require_same(tmp_path / "run", runs.one)


@pytest.mark.thorough
def test_a_dry_run_ends_all_processes(runs: Runs, tmp_path: Path) -> None:
    """Nothing is opened, so that the others do nothing."""
    words = ["--model", str(runs.base), "--pairs", str(runs.base.parent / "pairs.jsonl"), "--device", "cpu"]
    done = together("asyncthink-sft", *words, "--dry-run", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["unnamed"] == []


@pytest.mark.thorough
def test_ctrl_c_saves_the_step(runs: Runs, tmp_path: Path) -> None:
    """torchrun passes the signal on to all processes. The first one finishes its step, and the others with it."""
    shutil.copytree(runs.two, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["settings"]["job"]["settings"] |= {"steps": 100_000, "save_every": 100_000}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    process = subprocess.Popen([*TRAIN, "--resume", str(tmp_path / "run")], env=os.environ | {"OMP_NUM_THREADS": "1"})
    while len(metrics(tmp_path / "run")) < 8:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) != 0
    *_, last = checkpoint.saved(tmp_path / "run")
    assert last.name == f"step-{len(metrics(tmp_path / 'run')):06d}" > "step-000007"
    open_decoder(last / "model")


@pytest.mark.parametrize("job", [ASYNCTHINK, replace(ASYNCTHINK_SFT, lora=LoraSettings(2))], ids=["rl", "lora"])
def test_what_several_processes_do_not_train(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_model, "count", lambda: 2)
    monkeypatch.setattr(base_model.WithGradients, "how", lambda self, folder: {"mixed_precision": False})
    with pytest.raises(UserError, match=r"without it.*--backend verl"):
        job.open(tmp_path)  # type: ignore[attr-defined]


def test_a_model_from_scratch_needs_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sft, "count", lambda: 2)
    with pytest.raises(UserError, match="without torchrun"):
        sft.train(course(), SETTINGS, folder(tmp_path), lambda line: None)
