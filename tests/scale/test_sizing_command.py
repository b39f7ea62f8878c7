"""`orgthink size`: plans of recipes, assumptions, bad input, and what docs/your_gpus.md says about it."""

import shlex

import pytest
from orgthink_arena.searches.router_bank import BankSettings, RouterBank
from registered import register

from orgthink.cli import main
from orgthink.cli.size import measures
from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import RoleSpec
from orgthink.record.episode import Sampling
from orgthink.training.cluster.sizing.model import config_of
from orgthink.training.cluster.sizing.plan import ACCELERATORS
from orgthink.training.cluster.sizing.recipe import PAPERS, model_of, plans
from orgthink.training.recipes import registry as recipes
from orgthink.training.recipes.evolution import Evolution
from orgthink.training.recipes.jobs import Reinforced
from orgthink.util.errors import UserError

H100 = ACCELERATORS["h100"]
"""Assumption added to MarsRL's example → concurrent sequences, seconds of decoding and of a step on all GPUs."""


def test_every_recipe_has_its_plans():
    for name, job in recipes.recipes().items():
        if not (hasattr(job, "model") or hasattr(job, "shape")):
            with pytest.raises(UserError, match="trains no model"):
                model_of(name, job)
            continue
        if isinstance(job, Evolution):
            with pytest.raises(UserError, match="the work of a step of EvolutionSettings is not known"):
                plans(job, config_of("qwen3-0.6b"), 4, "h100")
            continue
        model = None if getattr(job, "model", "its own") or name in PAPERS else "qwen3-0.6b"
        (first, *_) = found = plans(job, config_of(model or model_of(name, job)), 4, "h100")
        assert [plan.cluster.gpus for plan in found] == [1, 1, 2, 4]
        several = "verl" if isinstance(job, Reinforced) else "torchrun"
        assert [plan.name for plan in found] == ["embedded", *[several] * 3]
        assert first.model.total > 0


def test_a_job_that_trains_nothing_has_no_size(monkeypatch, capsys):
    pool = {"member": RoleSpec(EngineSpec("random"), Sampling(9))}
    register(monkeypatch, recipes.RECIPES, bank=RouterBank(BankSettings(task="countdown", pool=pool)))
    assert main(["size", "bank"]) == 2
    assert "bank trains no model" in capsys.readouterr().err


def test_the_papers_models_are_of_recipes_that_have_none():
    assert set(PAPERS) == {name for name in recipes.recipes() if "qwen3" in name}
    assert all(getattr(recipes.RECIPES[name], "model", "own") is None for name in PAPERS)
    with pytest.raises(UserError, match="--model"):
        model_of("asyncthink-sft", recipes.RECIPES["asyncthink-sft"])


def test_a_recipe_on_verl_is_sized_as_verl_is_told():
    """The settings of `launch.py`: the sampler's share, and micro-batches of the longest context."""
    for name, model in (("asyncthink-qwen3-math", "qwen3-4b"), ("paramanager-qwen3", "qwen3-4b-2507")):
        job, config = recipes.RECIPES[name], config_of(model)
        assert isinstance(job, Reinforced)
        told = recipes.adjusted(job, {"dtype": "bfloat16"}, ["sampler_settings.gpu_memory_utilization=0.7"])
        for one, share, held in ((job, 0.3, 4), (told, 0.7, 2)):
            (*_, plan) = plans(one, config, 8, "h200")
            context = job.sampler_settings.get("max_model_len", config["max_position_embeddings"])
            assert (plan.name, plan.setup.share, plan.setup.pack, plan.setup.held) == ("verl", share, context, held)


def test_no_recipe_of_a_large_model_is_sized_by_the_positions_of_its_config():
    """A row of AsyncThink needs 12K tokens; the models have 40,960 or 262,144 positions."""
    needed = {"asyncthink": 12_288, "marsrl": 98_304, "paramanager": 49_152}
    for name in PAPERS:
        job, config = recipes.RECIPES[name], dict(config_of(model_of(name, recipes.RECIPES[name])))
        assert not isinstance(job, type)
        sizes = {n: plans(job, config | {"max_position_embeddings": n}, 8, "h200")[-1] for n in (131_072, 262_144)}
        packs = {plan.setup.pack for plan in sizes.values()}
        assert packs == {needed[name.partition("-")[0]]}, name
        assert len({(plan.memory, plan.work.reach) for plan in sizes.values()}) == 1, name


def test_gpus_that_share_a_row_share_its_activations():
    told = {"tensor": 4, "share": 0.6}
    (*_, alone), (*_, shared) = (
        plans(recipes.RECIPES["marsrl-qwen3"], config_of("qwen3-30b-a3b"), 64, "h100", told | more)
        for more in ({}, {"split": 8})
    )
    assert alone.memory.activations == pytest.approx(8 * shared.memory.activations, rel=0.01)
    assert (alone.memory.weights, alone.fitting) == (shared.memory.weights, shared.fitting)
    assert alone.lacks and not shared.lacks


def test_processes_of_torchrun_share_the_states_of_fine_tuning():
    job = recipes.adjusted(recipes.RECIPES["paramanager-qwen3-sft"], {}, ["gradient_checkpointing=true"])
    one, *_, eight = plans(job, config_of("qwen3-8b"), 8, "h100")
    assert (one.name, eight.name, one.memory.adam) == ("embedded", "torchrun", 8 * eight.memory.adam)
    assert one.memory.activations == eight.memory.activations
    assert one.lacks and not eight.lacks


def test_gradient_checkpointing_and_mixed_precision_are_sized():
    def memory(*settings):
        job = recipes.adjusted(recipes.RECIPES["asyncthink-qwen3-math-sft"], {}, settings)
        return plans(job, config_of("qwen3-4b"), 1, "h100")[0].memory

    mixed, single, again = memory(), memory("mixed_precision=false"), memory("gradient_checkpointing=true")
    assert again.activations < 0.5 * mixed.activations < 0.5 * single.activations
    assert again.weights == mixed.weights == single.weights


def test_assumptions_reach_every_part():
    told = {"sampled": 7, "share": 0.25, "flops": 0.125, "memory": 96}
    (*_, plan) = plans(recipes.RECIPES["asyncthink-qwen3-math"], config_of("qwen3-4b"), 2, "H100", told)
    assert (plan.work.sampled, plan.setup.share) == (7, 0.25)
    assert (plan.cluster.flops, plan.gpu.memory, plan.gpu.bandwidth) == (0.125, 96, H100.bandwidth)
    divided = plans(None, config_of("qwen3-4b"), 8, "h100", {"tensor": 4})
    assert [(each.name, each.cluster.gpus) for each in divided] == [("verl", 4), ("verl", 8)]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("qwen3-4c", "did you mean qwen3-4b?"),
        ("asyncthink-sft", "--model"),
        ("qwen3-4b --model qwen3-8b", "is a model"),
        ("qwen3-4b --gpu tpu", "unknown GPU"),
        ("qwen3-4b --gpus 0", "at least 1"),
        ("qwen3-4b --gpus 2 --assume tensor=8", "tensor"),
        ("qwen3-4b --assume share=2", "share is 2.0"),
        ("qwen3-4b --assume memory=nan", "memory is nan"),
        ("qwen3-4b --assume group=many", "integer"),
        ("qwen3-4b --assume G=8", "G=8: unknown name"),
        ("qwen3-4b --assume group", "NAME=VALUE"),
        ("marsrl-qwen3 --set rollout.group=1", "at least 2"),
        ("{llama}", "not llama"),
        ("{broken}", "no hidden_size"),
        ("{text}", "text.json"),
    ],
)
def test_what_cannot_be_is_one_line(argv, says, tmp_path, capsys):
    contents = {"llama": '{"model_type": "llama"}', "broken": '{"num_hidden_layers": 2}', "text": "hello"}
    files = {name: tmp_path / f"{name}.json" for name in contents}
    for name, file in files.items():
        file.write_text(contents[name])
    assert main(["size", *shlex.split(argv.format(**files))]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert says in err
    assert err.count("\n") == 1


def test_rows_of_the_table_add_up():
    for plan in plans(recipes.RECIPES["paramanager-qwen3"], config_of("qwen3-4b"), 8, "h200"):
        value = measures(plan)
        states = ("weights", "gradients", "adam", "reference", "gathered", "activations")
        beside = 0.0 if plan.setup.sharded else value["sampler GiB"] + value["cache GiB"]
        assert value["= training GiB"] == pytest.approx(sum(value[f"{name} GiB"] for name in states) + beside)
        parts = ("prefill s", "decoding s", "training s", "push s")
        assert value["= step s"] == pytest.approx(sum(value[name] for name in parts))
