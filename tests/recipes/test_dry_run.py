"""A model of random weights in the shape of a real one takes a step."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
import torch
from dictated import Dictated
from random_model import write_random_experts, write_random_model
from safetensors.torch import load_file
from terse import TERSE
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM, Qwen3MoeConfig

from orgthink.grammar.solution import Proposal
from orgthink.grammar.verdict import Report, Verdict
from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import StopReason
from orgthink.record.folder import RunFolder
from orgthink.runtime import Agent
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.cluster.sizing.model import QWEN3_4B, QWEN3_30B_A3B
from orgthink.training.coldstart.pairs import Pair, pair_rows, row_course, write
from orgthink.training.marsrl import chain
from orgthink.training.marsrl.rollout import STREAMS
from orgthink.training.marsrl.segments import Segments
from orgthink.training.optimization import require_no_drift
from orgthink.training.policy_loss import weighted
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, go_on, start
from orgthink.training.rl import train_policy
from orgthink.training.rollout import ProblemStream, roll_out
from orgthink.training.rows import policy_rows
from orgthink.training.sft import SftSettings, train

SMALL = replace(
    QWEN3_4B,
    vocab_size=400,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
)
SMALL_EXPERTS = QWEN3_30B_A3B | {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 4096,
}
PAIRS = [Pair("Numbers: 1, 2, 3. Target: 6.", " <ANSWER> 1 + 2 + 3 </ANSWER>")]


def step(folder, tmp_path, lora, dtype):
    """One step of supervised fine-tuning; its metrics."""
    write(tmp_path / "rows.jsonl", PAIRS)
    course = row_course(open_trainable(folder, lora, dtype), folder, pair_rows(folder, tmp_path / "rows.jsonl"))
    settings = SftSettings(steps=1, warmup=1, learning_rate=1e-6, batch_tokens=200)
    lines = []
    train(course, settings, RunFolder.create(tmp_path / "run", "train", settings), lines.append)
    return lines[0]


def test_the_folder_is_one_that_everybody_opens(tmp_path):
    folder = write_random_model(tmp_path, SMALL, layers=2)
    assert DecoderConfig.load(folder) == replace(SMALL, num_hidden_layers=2)
    theirs = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.allclose(Decoder.load(folder)(ids), theirs(ids).logits, atol=1e-5)
    assert all(
        weight.dtype is torch.bfloat16 for file in folder.glob("*.safetensors") for weight in load_file(file).values()
    )


@pytest.mark.parametrize(("lora", "dtype"), [(None, torch.float32), (LoraSettings(rank=2), torch.bfloat16)])
def test_a_step_of_supervised_fine_tuning(tmp_path, lora, dtype):
    line = step(write_random_model(tmp_path / "model", SMALL, layers=2), tmp_path, lora, dtype)
    assert 0 < line["loss"] < 10 and line["gradient_norm"] > 0


def learn(folder, tmp_path, capacity=2):
    """One step of the paper's reinforcement learning, on advantages that differ: random text earns nothing."""
    small = ("rollout.problems=2", "rollout.group=2", "rollout.max_tokens=12", "minibatches=1")
    job = replace(adjusted(RECIPES["asyncthink-qwen3-countdown"], {"model": str(folder)}, small), sampler="local")
    backend = job.backend(folder)
    plan, loss = job.settings.rollout, job.settings.loss
    assert plan.limits.capacity == capacity

    async def step():
        episodes = await roll_out(plan, ProblemStream(plan, 0).batch(), backend.sampler, 0)
        rows = [row for i, episode in enumerate(episodes) for row in policy_rows(episode, (-1.0) ** i)]
        signals = backend.forward_backward(weighted(rows, loss.reduction), loss)
        require_no_drift(signals, job.settings.drift)
        norm = backend.optim_step(job.settings.learning_rate, job.settings.clip)
        await backend.sync_sampler("1")
        again = await roll_out(plan, ProblemStream(plan, 0).batch(), backend.sampler, 0)
        return norm, {span.policy_version for e in again for t in e.traces for span in t.spans if span.logprobs}

    norm, versions = asyncio.run(step())
    assert norm > 0 and versions == {"1"}
    (tmp_path / "saved" / "model").mkdir(parents=True)
    backend.save(tmp_path / "saved")
    assert DecoderConfig.load(tmp_path / "saved" / "model") == DecoderConfig.load(folder)


def test_a_step_of_reinforcement_learning(tmp_path):
    learn(write_random_model(tmp_path / "model", SMALL, layers=2), tmp_path)


def test_the_architecture_has_four_billion_weights():
    with torch.device("meta"):
        model = Decoder(replace(QWEN3_4B, max_position_embeddings=8))
    assert sum(weight.numel() for weight in model.parameters()) == 4_022_468_096


def role_work(seen: str, luck: Random) -> str:
    """A role's work, well or badly; problems name their answer."""
    answer = re.findall(r"\d+", seen)[0]
    if "verifier" in seen:
        return f" </think> so correctness : {luck.choice(['correct', 'wrong', 'wrong'])}"
    return f" </think> <ANSWER> {int(answer) + luck.randrange(2)} </ANSWER>"


def marsrl(model: Path, problems: Path, *more: str):
    """The paper's MarsRL with tiny numbers and short prompts; a drift that would hardly be seen ends it."""
    file = problems / "problems.jsonl"
    file.write_text("".join(json.dumps({"problem": n, "answer": n}) + "\n" for n in (7, 12, 5)))
    small = ("problems=2", "group=2", "max_tokens=40", "segment=20", "max_input=512", f"prompts={TERSE}")
    plan = (f"rollout.{one}" for one in (*small, f"task=math:{file}"))
    given = (*plan, "learning_rate=1e-3", "drift=1e-4", "steps=12", *more)
    return adjusted(RECIPES["marsrl-qwen3"], {"model": str(model)}, given)


def require_learned(lines, segments: int) -> None:
    """All streams were seen, some outputs outlived an update, and enough steps had something to learn."""
    for stream in STREAMS:
        assert any(line["right"][stream] is not None for line in lines), stream
    assert max(line["age_max"] or 0 for line in lines) == segments - 1
    assert sum((line["gradient_norm"] or 0) > 0 for line in lines) > len(lines) // 3
    assert any((line["logprob_difference"] or 0) > 0 for line in lines), "the drift was measured"


@pytest.mark.thorough
def test_marsrl_of_a_mixture_of_experts(tmp_path):
    """Packed rows train it, experts and router, and its weights reach the sampler."""
    folder = write_random_experts(tmp_path / "model", SMALL_EXPERTS, dtype="float32")
    job, lines = marsrl(folder, tmp_path), []
    backend = EmbeddedBackend(
        open_trainable(folder), Dictated(folder, tmp_path / "copy", role_work), folder, pack_tokens=job.pack_tokens
    )
    run = RunFolder.create(tmp_path / "run", "train", Training("marsrl-qwen3", job))
    saved = train_policy(backend, job.source(), job.settings, run, lines.append) / "model"
    require_learned(lines, segments=2)
    assert AutoModelForCausalLM.from_pretrained(saved).config.num_experts == 8
    before, after = (load_file(at / "model.safetensors") for at in (folder, saved))
    assert before.keys() == after.keys()
    for part in ("mlp.gate.weight", "mlp.experts.0.gate_proj.weight", "self_attn.q_proj.weight"):
        assert not torch.equal(before[f"model.layers.1.{part}"], after[f"model.layers.1.{part}"]), part


@pytest.mark.vllm
def test_marsrl_in_segments_on_vllm(tmp_path, monkeypatch):
    """A random model does not say what a role says: every report finds an error, and a hash answers.

    A dense one: on a CPU, vLLM 0.32 opens a mixture of experts, but cannot take new weights of its experts.
    """

    def graded(text: str, ended: bool) -> Proposal:
        return Proposal(text, ("7", "12", "5")[crc32(text.encode("utf-8", "surrogatepass")) % 3])

    decode = Segments._segment

    async def whole(self: Segments, agent: Agent) -> str:
        """Such a model hardly ever ends a text, and what is cut off is handed on to nobody."""
        await decode(self, agent)
        if agent.stop is StopReason.BUDGET:
            agent.stop = StopReason.DONE
        return agent.text

    monkeypatch.setattr(chain, "report_of", lambda style, text, whole: Report(Verdict.WRONG, text))
    monkeypatch.setattr(chain, "read_proposal", graded)
    monkeypatch.setattr(Segments, "_segment", whole)
    folder = write_random_model(tmp_path / "model", SMALL, layers=2, dtype="float32")
    job = replace(marsrl(folder, tmp_path, "rollout.max_tokens=24", "rollout.segment=12"), sampler_settings={})
    lines = []
    go_on(start(Training("marsrl-qwen3", job), tmp_path / "run"), lines.append)
    require_learned(lines, segments=2)


@pytest.mark.thorough
def test_the_architecture_of_experts_has_thirty_billion_weights():
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**QWEN3_30B_A3B))
    assert sum(weight.numel() for weight in model.parameters()) == 30_532_122_624
