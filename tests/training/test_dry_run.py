"""A model of random weights in the shape of a real one takes a step."""

import asyncio
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen3ForCausalLM

from orgthink.engines.qwen3 import Qwen3, Qwen3Config
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Message
from orgthink.store import RunFolder
from orgthink.training.dry_run import QWEN3_4B, write_random_model
from orgthink.training.embedded import embedded
from orgthink.training.models import LoraSettings
from orgthink.training.pair_course import sft_course
from orgthink.training.pairs import Pair, write
from orgthink.training.policy_loss import token_weights
from orgthink.training.recipes import RECIPES, adjusted
from orgthink.training.rl import require_no_drift
from orgthink.training.rollout import batches_of_problems, roll_out
from orgthink.training.rows import policy_rows
from orgthink.training.sft import SftSettings, train

SMALL = replace(
    QWEN3_4B,
    vocab_size=400,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
)
PAIRS = [Pair("Numbers: 1, 2, 3. Target: 6.", " <ANSWER> 1 + 2 + 3 </ANSWER>")]


def step(folder, tmp_path, lora, dtype):
    """One step of supervised fine-tuning; its metrics."""
    write(tmp_path / "rows.jsonl", PAIRS)
    course = sft_course(folder, tmp_path / "rows.jsonl", lora, dtype=dtype)
    settings = SftSettings(steps=1, warmup=1, learning_rate=1e-6, batch_tokens=200)
    lines = []
    train(course, settings, RunFolder.create(tmp_path / "run", "train", settings), lines.append)
    return lines[0]


def test_the_folder_is_one_that_everybody_opens(tmp_path):
    folder = write_random_model(tmp_path, SMALL, layers=2)
    assert Qwen3Config.load(folder) == replace(SMALL, num_hidden_layers=2)
    theirs = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.allclose(Qwen3.load(folder)(ids), theirs(ids).logits, atol=1e-5)
    assert all(
        weight.dtype is torch.bfloat16 for file in folder.glob("*.safetensors") for weight in load_file(file).values()
    )


def test_the_same_seed_writes_the_same_weights(tmp_path):
    folders = [write_random_model(tmp_path / str(i), SMALL, layers=2, seed=seed) for i, seed in enumerate((0, 0, 1))]
    a, b, c = (torch.cat([w.flatten() for w in Qwen3.load(folder).to_hf().values()]) for folder in folders)
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_every_id_has_a_text_and_the_template_is_that_of_transformers(tmp_path):
    folder = write_random_model(tmp_path, SMALL, layers=1)
    tokenizer = Tokenizer(folder)
    assert len(tokenizer.texts) == SMALL.vocab_size and all(tokenizer.texts)
    turns = [{"role": "user", "content": "1 + 2 = ü?"}]
    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        turns, add_generation_prompt=True, return_dict=False
    )
    assert list(tokenizer.prompt((Message("user", turns[0]["content"]),)).token_ids or ()) == theirs
    assert tokenizer.decode(tokenizer.encode("ü")) == "ü"


@pytest.mark.parametrize(("lora", "dtype"), [(None, torch.float32), (LoraSettings(rank=2), torch.bfloat16)])
def test_a_step_of_supervised_fine_tuning(tmp_path, lora, dtype):
    line = step(write_random_model(tmp_path / "model", SMALL, layers=2), tmp_path, lora, dtype)
    assert 0 < line["loss"] < 10 and line["gradient_norm"] > 0


def learn(folder, tmp_path, capacity=2):
    """One step of the paper's reinforcement learning, on advantages that differ: random text earns nothing."""
    small = ("rollout.problems=2", "rollout.group=2", "rollout.max_tokens=12", "minibatches=1")
    job = replace(adjusted(RECIPES["asyncthink-qwen3-countdown"], {"model": str(folder)}, small), sampler="local")
    backend = embedded(folder, job)
    plan, loss = job.settings.rollout, job.settings.loss
    assert plan.limits.capacity == capacity

    async def step():
        episodes = await roll_out(plan, next(batches_of_problems(plan, 0)), backend.sampler, 0)
        rows = [row for i, episode in enumerate(episodes) for row in policy_rows(episode, (-1.0) ** i)]
        signals = backend.forward_backward(rows, token_weights(rows, loss.reduction), loss)
        require_no_drift(signals, job.settings.drift)
        norm = backend.optim_step(job.settings.learning_rate, job.settings.clip)
        await backend.sync_sampler("1")
        again = await roll_out(plan, next(batches_of_problems(plan, 0)), backend.sampler, 0)
        return norm, {span.policy_version for e in again for t in e.traces for span in t.spans if span.logprobs}

    norm, versions = asyncio.run(step())
    assert norm > 0 and versions == {"1"}
    (tmp_path / "saved" / "model").mkdir(parents=True)
    backend.save(tmp_path / "saved")
    assert Qwen3Config.load(tmp_path / "saved" / "model") == Qwen3Config.load(folder)


def test_a_step_of_reinforcement_learning(tmp_path):
    learn(write_random_model(tmp_path / "model", SMALL, layers=2), tmp_path)


def test_the_architecture_has_four_billion_weights():
    with torch.device("meta"):
        model = Qwen3(replace(QWEN3_4B, max_position_embeddings=8))
    assert sum(weight.numel() for weight in model.parameters()) == 4_022_468_096


@pytest.mark.slow
def test_a_step_of_supervised_fine_tuning_at_the_real_width(tmp_path):
    """Two of the 36 layers, by LoRA in bfloat16."""
    folder = write_random_model(tmp_path / "model", QWEN3_4B, layers=2)
    line = step(folder, tmp_path, LoraSettings(rank=8), torch.bfloat16)
    assert 0 < line["loss"] < 20 and line["gradient_norm"] > 0


@pytest.mark.slow
def test_a_step_of_reinforcement_learning_at_the_real_width(tmp_path):
    """Two of the 36 layers: trainer and sampler hold float32 weights of their own."""
    learn(write_random_model(tmp_path / "model", QWEN3_4B, layers=2), tmp_path)
