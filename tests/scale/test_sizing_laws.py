"""The laws of sizes, and what can be worked out by hand."""

from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orgthink.training.cluster.sizing.model import Model, known_models
from orgthink.training.cluster.sizing.plan import GIB, Plan, fitting, memory, seconds
from orgthink.training.cluster.sizing.step import ACCELERATORS, Cluster, Setup, Work

H100 = ACCELERATORS["h100"]


@st.composite
def models(draw):
    size = st.integers(1, 64)
    experts = draw(st.integers(1, 16))
    return Model(
        *(draw(size) for _ in range(7)),
        tied=draw(st.booleans()),
        experts=experts,
        active_experts=draw(st.integers(1, experts)),
    )


WORKS = st.builds(
    Work,
    problems=st.integers(1, 64),
    group=st.integers(1, 32),
    agents=st.integers(1, 9),
    concurrent=st.floats(0.5, 9),
    prompt=st.integers(0, 4096),
    sampled=st.integers(1, 4096),
    injected=st.integers(0, 4096),
    chain=st.floats(0.1, 3),
    longest=st.integers(0, 20_000),
    segments=st.integers(1, 5),
)
SETUPS = st.builds(
    Setup,
    held=st.sampled_from([2, 4]),
    computed=st.sampled_from([2, 4]),
    checkpointed=st.booleans(),
    pack=st.integers(1, 20_000),
    frozen=st.integers(0, 2),
    reference=st.sampled_from([0, 2, 4]),
    share=st.floats(0.1, 0.9),
    sleeps=st.booleans(),
)


@given(models(), st.sampled_from([item.name for item in fields(Model) if item.name not in ("tied", "active_experts")]))
def test_a_larger_model_is_never_smaller(model, name):
    larger = replace(model, **{name: getattr(model, name) + 1})
    work, setup, cluster = Work(4, 4, 1, 1, 10, 10), Setup(), Cluster()
    before, after = (memory(each, setup, work, H100, cluster) for each in (model, larger))
    assert larger.total >= model.total
    assert larger.kv_bytes(2) >= model.kv_bytes(2)
    for part in ("weights", "gradients", "adam", "gathered", "activations", "sampler", "training"):
        assert getattr(after, part) >= getattr(before, part)
    assert after.cache <= before.cache


@given(models(), SETUPS, WORKS, st.sampled_from(["prompt", "sampled", "injected", "longest"]), st.integers(1, 9999))
def test_longer_work_never_takes_less(model, setup, work, name, more):
    longer = replace(work, **{name: getattr(work, name) + more})
    before, after = (memory(model, setup, each, H100, Cluster()) for each in (work, longer))
    assert after.activations >= before.activations
    assert fitting(model, setup, longer, after, Cluster()) <= fitting(model, setup, work, before, Cluster())
    for count in ("prefilled", "decoded", "trained", "computed"):
        assert getattr(longer, count) >= getattr(work, count)


@given(models(), SETUPS, WORKS, st.integers(2, 64))
def test_sharding_divides_states_and_nothing_else(model, setup, work, n):
    one, many = (memory(model, setup, work, H100, Cluster(gpus=gpus)) for gpus in (1, n))
    for part in ("weights", "gradients", "adam", "reference"):
        assert getattr(many, part) * n == pytest.approx(getattr(one, part))
    for part in ("activations", "sampler", "cache"):
        assert getattr(many, part) == getattr(one, part)
    assert one.gathered == 0 < many.gathered


@given(models(), SETUPS, WORKS)
def test_whole_weights_are_copied_to_another_width_only(model, setup, work):
    used = memory(model, replace(setup, sharded=False), work, H100, Cluster(gpus=1))
    assert used.gathered == (0 if setup.computed == setup.held else model.total * setup.computed)


@given(models(), SETUPS, WORKS, st.sampled_from([2, 4, 8]))
def test_tensor_divides_the_sampler_and_split_the_activations(model, setup, work, n):
    cluster = Cluster(gpus=8)
    whole, cut = (memory(model, replace(setup, tensor=t, split=t), work, H100, cluster) for t in (1, n))
    assert cut.sampler * n == pytest.approx(whole.sampler)
    assert cut.activations * n == pytest.approx(whole.activations)
    assert cut.cache + cut.sampler == pytest.approx(whole.cache + whole.sampler)
    assert model.kv_bytes(2, n) * n >= model.kv_bytes(2)
    if model.kv_heads % n == 0:
        assert model.kv_bytes(2, n) * n == model.kv_bytes(2)


@given(models(), st.floats(1, 1e6), st.floats(1, 1e6))
def test_experts(model, some, others):
    few, many = sorted((some, others))
    assert model.active <= model.total
    assert (model.active == model.total) == (model.active_experts == model.experts)
    assert model.read(1) == pytest.approx(model.multiplied)
    assert model.read(few) <= model.read(many) * (1 + 1e-9)
    assert model.read(many) <= model.total


@given(WORKS, st.integers(2, 9))
def test_tokens_are_linear_in_g(work, times):
    larger = replace(work, group=times * work.group)
    for count in ("sequences", "prefilled", "decoded", "trained", "computed"):
        assert getattr(larger, count) == pytest.approx(times * getattr(work, count))
    assert larger.path == work.path


@given(WORKS)
def test_every_segment_reads_what_was_sampled_before(work):
    each = [work.prompt + part * work.sampled / work.segments for part in range(work.segments)]
    assert work.prefilled == pytest.approx(work.sequences * (sum(each) + work.injected))
    assert replace(work, concurrent=0).prefilled == replace(work, concurrent=0).decoded == 0


@given(models(), SETUPS, WORKS)
def test_more_gpus_of_a_node_are_never_slower(model, setup, work):
    found = [seconds(model, setup, work, H100, Cluster(gpus=gpus)) for gpus in (1, 2, 4, 8)]
    assume(all(found))
    for few, many in pairwise(found):
        assert many.prefill == pytest.approx(few.prefill / 2)
        assert many.decoding <= few.decoding * (1 + 1e-9)
    for each in found:
        assert each.decoding >= work.path * Cluster().overhead
        assert each.step == pytest.approx(each.prefill + each.decoding + each.training + each.push)
        assert min(each.prefill, each.decoding, each.push) >= 0 < each.training


@given(models(), SETUPS, WORKS, st.floats(0.001, 100))
def test_the_verdict_is_what_the_numbers_say(model, setup, work, gigabytes):
    plan = Plan("verl", model, setup, work, replace(H100, memory=gigabytes))
    usable = gigabytes * 1e9 * plan.cluster.usable
    fits = max(plan.memory.training, plan.memory.sampling) <= usable and plan.fitting > 0
    assert plan.verdict.startswith("fits") == fits
    assert fits == (not plan.lacks)
    assert plan.fitting == 0 or plan.seconds is not None


@given(models(), SETUPS, WORKS, st.floats(0.9, 1.1))
def test_training_fits_from_what_it_takes_on(model, setup, work, times):
    """Rows are given, so nothing is sampled: a GPU whose usable memory is `times` what training takes."""
    setup, work = replace(setup, share=0.0), replace(work, concurrent=0)
    taken = memory(model, setup, work, H100, Cluster()).training
    plan = Plan("verl", model, setup, work, replace(H100, memory=times * taken / 1e9 / Cluster().usable))
    assume(abs(times - 1) > 1e-6)
    assert plan.verdict.startswith("fits") == (times > 1)
    if times < 1:
        (lack,) = plan.lacks
        assert f"training lacks {(1 - times) * taken / GIB:.1f} GiB" in lack


@pytest.mark.parametrize(
    ("longest", "remedy"), [(4_096, "a smaller pack"), (20_000, "shorter rows, or shard it, with verl")]
)
def test_a_smaller_pack_helps_where_no_row_is_as_long(longest, remedy):
    model = Model(32, 64, 1, 1, 64, 64, 64, tied=True)
    setup = Setup(sharded=False, checkpointed=False, pack=20_000, share=0.0)
    work = Work(problems=1, group=1, agents=1, concurrent=0, prompt=0, sampled=longest)
    plan = Plan("embedded", model, setup, work, replace(H100, memory=0.1), Cluster(gpus=1))
    (lack,) = plan.lacks
    assert lack.endswith(f"({remedy})")


@given(models(), SETUPS, WORKS, st.floats(0.25, 0.9), st.floats(0.9, 1.1))
def test_sampling_fits_from_what_it_takes_on(model, setup, work, share, times):
    """The trainer's states stay, and the sampler takes its share: the rest of the usable memory must hold them."""
    setup = replace(setup, share=share)
    held = memory(model, setup, work, H100, Cluster())
    stays = held.weights + held.adam + held.reference
    gpu = replace(H100, memory=times * stays / 1e9 / (Cluster().usable - share))
    plan = Plan("verl", model, setup, work, gpu, Cluster())
    assume(plan.memory.cache >= 0 and abs(times - 1) > 1e-6)
    assert any(lack.startswith("sampling lacks") for lack in plan.lacks) == (times < 1)


def test_decoding_by_hand():
    """8 attempts on 2 copies, 4 at once in each: a step reads the weights, and 500 cached tokens of each attempt."""
    model, cluster = Model.of(known_models()["qwen3-4b"]), Cluster(gpus=2, overhead=0, streaming=1)
    work = Work(problems=2, group=4, agents=1, concurrent=1, prompt=0, sampled=1000)
    took = seconds(model, Setup(), work, H100, cluster)
    read = 2 * model.total + 4 * 500 * 2 * 36 * 8 * 128 * 2
    assert took is not None
    assert took.decoding == pytest.approx(1000 * read / 3350e9)


@pytest.mark.parametrize(("chain", "steps"), [(0.5, 1000), (1.0, 1000), (2.0, 2000), (3.5, 3500)])
def test_decoding_takes_the_critical_path_if_that_is_longer(chain, steps):
    """Four agents, all at once, make 1,000 tokens each: a second a step, beside which reading is nothing."""
    work = Work(problems=1, group=1, agents=4, concurrent=4, prompt=0, sampled=1000, chain=chain)
    took = seconds(Model.of(known_models()["qwen3-0.6b"]), Setup(), work, H100, Cluster(gpus=1, overhead=1))
    assert took is not None
    assert took.decoding == pytest.approx(steps, rel=1e-3)


def test_several_nodes_are_held_up_by_the_network():
    model, work = Model.of(known_models()["qwen3-32b"]), Work(8, 8, 1, 1, 100, 1000)
    near, far = (seconds(model, Setup(tensor=8), work, H100, Cluster(gpus=16, node=node)) for node in (16, 8))
    assert near is not None and far is not None
    assert far.push > 2 * near.push
    assert far.training > near.training
