"""The sizes against real models, a real backward and a real rollout, and against the recipes' own bounds."""

import asyncio
import math
from collections import Counter
from dataclasses import asdict, replace

import pytest
import torch
from tiny_policy import TINY
from tiny_recipes import ASYNCTHINK, PARAMANAGER

from orgthink.models.decoder import Decoder
from orgthink.record.episode import Origin
from orgthink.training.cluster.sizing.model import QWEN3_4B, Model, config_of, known_models
from orgthink.training.cluster.sizing.plan import Work
from orgthink.training.cluster.sizing.recipe import model_of, work_of
from orgthink.training.recipes import registry as recipes
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.rollout import ProblemStream, roll_out
from orgthink.training.rows import policy_rows

pytestmark = pytest.mark.usefixtures("tiny_policy")


@pytest.mark.parametrize("name", known_models())
@pytest.mark.thorough
def test_parameters_are_those_of_the_model_of_transformers(name):
    from transformers import Qwen3Config as Dense
    from transformers import Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = dict(known_models()[name])
    build, shape = (Qwen3MoeForCausalLM, Qwen3MoeConfig) if "num_experts" in config else (Qwen3ForCausalLM, Dense)
    with torch.device("meta"):
        real = build(shape(**config)).to(torch.bfloat16)
    sizes, model = {key: weight.numel() for key, weight in real.named_parameters()}, Model.of(config)
    share = config.get("num_experts_per_tok", 1) / config.get("num_experts", 1)
    assert model.total == sum(sizes.values())
    assert 2 * model.total == sum(weight.nbytes for weight in real.parameters())
    assert model.active == sum(size * share if ".experts." in key else size for key, size in sizes.items())


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("qwen3-8b", "8.2", "8.2"), ("qwen3-32b", "32.8", "32.8"), ("qwen3-30b-a3b", "30.5", "3.3")],
)
def test_parameters_are_those_of_the_model_cards(name, total, active):
    model = Model.of(known_models()[name])
    assert float(total) == pytest.approx(model.total / 1e9, abs=0.05)
    assert float(active) == pytest.approx(model.active / 1e9, abs=0.06)


@pytest.mark.thorough
def test_activations_are_those_that_a_real_backward_keeps():
    """Two layers of the width of Qwen3-4B: every tensor that autograd holds, but the weights, once each."""
    shape, tokens = replace(QWEN3_4B, num_hidden_layers=2, vocab_size=64, max_position_embeddings=64), 32
    model = Decoder(shape)
    known = {weight.untyped_storage().data_ptr() for weight in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def hold(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        hidden = model.hidden(torch.arange(tokens)[None])
    hidden.sum().backward()
    said = 2 * tokens * Model.of(asdict(shape)).activation_bytes(4)
    assert said == pytest.approx(sum(kept.values()), rel=0.05)


def test_tokens_are_those_of_a_real_rollout():
    """Of each agent the same counts as its row, and within what the recipe's budgets say before."""
    job = replace(ASYNCTHINK, model=str(TINY))
    plan = job.settings.rollout
    engine = job.open_sampler(TINY)
    episodes = asyncio.run(roll_out(plan, ProblemStream(plan, 0).batch(), engine, 0))
    rows = [row for episode in episodes for row in policy_rows(episode, 1.0, plan.trains)]
    tokens = Counter(dict.fromkeys(Origin, 0))
    parts = []
    for trace in (trace for episode in episodes for trace in episode.traces):
        mine = {origin: sum(len(s.token_ids) for s in trace.spans if s.origin is origin) for origin in Origin}
        tokens.update(mine)
        parts.append(Work(1, 1, 1, 1, mine[Origin.PROMPT], mine[Origin.SAMPLED], mine[Origin.INJECTED]))
    assert sum(work.computed for work in parts) == sum(map(len, rows))
    assert sum(work.trained for work in parts) == sum(sum(row.trained) for row in rows)
    assert sum(work.prefilled for work in parts) == tokens[Origin.PROMPT] + tokens[Origin.INJECTED]
    said = work_of(job, config_of(str(TINY)))
    assert len(rows) <= said.sequences
    assert 0 < tokens[Origin.SAMPLED] <= said.decoded
    assert sum(map(len, rows)) <= said.computed
    assert max(map(len, rows)) <= said.longest


def test_a_manager_replies_in_every_round_and_answers():
    """Up to what its context holds beside the prompt."""
    rollout = replace(PARAMANAGER.settings.rollout, roles=("manager",))
    job = replace(PARAMANAGER, settings=replace(PARAMANAGER.settings, rollout=rollout))
    config = config_of(str(TINY))
    assert work_of(job, config | {"max_position_embeddings": 8192}).sampled == (12 + 1) * 24
    small = work_of(job, config)
    assert small.prompt + small.sampled == small.longest == config["max_position_embeddings"]


@pytest.mark.parametrize("name", [name for name, job in recipes.recipes().items() if isinstance(job, Reinforced)])
def test_no_recipe_asks_for_more_than_its_bounds(name):
    job = recipes.RECIPES[name]
    bounds = job.settings.bounds()
    work = work_of(job, config_of(model_of(name, job) if job.model or "qwen3" in name else "qwen3-0.6b"))
    assert work.decoded <= (bounds["sampled_tokens_a_step"] or math.inf)
    assert work.path * work.problems * work.group <= work.decoded
    if "episodes_a_step" in bounds:
        assert work.problems * work.group == bounds["episodes_a_step"]
    else:
        assert work.sequences == work.problems * bounds["outputs_of_a_problem"]
