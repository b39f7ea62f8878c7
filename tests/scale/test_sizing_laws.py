"""The laws of sizes, and what can be worked out by hand."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.training.cluster.sizing.model import Model, known_models
from orgthink.training.cluster.sizing.plan import ACCELERATORS, Cluster, Plan, Setup, Work

H100, CLUSTER = ACCELERATORS["h100"], Cluster()


def planned(model, setup, work, cluster=CLUSTER):
    return Plan("verl", model, setup, work, H100, cluster)


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
    pack=st.integers(1, 20_000),
    frozen=st.integers(0, 2),
    reference=st.sampled_from([0, 2, 4]),
    share=st.floats(0.1, 0.9),
)


@given(models(), st.sampled_from([item.name for item in fields(Model) if item.name not in ("tied", "active_experts")]))
def test_a_larger_model_is_never_smaller(model, name):
    larger = replace(model, **{name: getattr(model, name) + 1})
    work, setup = Work(4, 4, 1, 1, 10, 10), Setup()
    before, after = (planned(each, setup, work).memory for each in (model, larger))
    assert larger.total >= model.total
    assert larger.kv_bytes(2) >= model.kv_bytes(2)
    for part in ("weights", "gradients", "adam", "gathered", "activations", "sampler", "training"):
        assert getattr(after, part) >= getattr(before, part)
    assert after.cache <= before.cache


@given(models(), SETUPS, WORKS, st.sampled_from(["prompt", "sampled", "injected", "longest"]), st.integers(1, 9999))
def test_longer_work_never_takes_less(model, setup, work, name, more):
    longer = replace(work, **{name: getattr(work, name) + more})
    before, after = (planned(model, setup, each) for each in (work, longer))
    assert after.memory.activations >= before.memory.activations
    assert after.fitting <= before.fitting
    for count in ("prefilled", "decoded", "trained", "computed"):
        assert getattr(longer, count) >= getattr(work, count)


@given(models(), SETUPS, WORKS, st.integers(2, 64))
def test_sharding_divides_states_and_nothing_else(model, setup, work, n):
    one, many = (planned(model, setup, work, Cluster(gpus=gpus)).memory for gpus in (1, n))
    for part in ("weights", "gradients", "adam", "reference"):
        assert getattr(many, part) * n == pytest.approx(getattr(one, part))
    for part in ("activations", "sampler", "cache"):
        assert getattr(many, part) == getattr(one, part)
    assert one.gathered == 0 < many.gathered
    stored = planned(model, replace(setup, checkpointing=False), work, Cluster(gpus=n)).memory
    if setup.held != setup.computed:  # the backward pass uses copies of all weights
        assert stored.gathered == model.total * setup.computed


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


def test_decoding_by_hand():
    """8 attempts on 2 copies, 4 at once in each: a step reads the weights, and 500 cached tokens of each attempt."""
    model, cluster = Model.of(known_models()["qwen3-4b"]), Cluster(gpus=2, overhead=0, streaming=1)
    work = Work(problems=2, group=4, agents=1, concurrent=1, prompt=0, sampled=1000)
    took = planned(model, Setup(), work, cluster).seconds
    read = 2 * model.total + 4 * 500 * 2 * 36 * 8 * 128 * 2
    assert took is not None
    assert took.decoding == pytest.approx(1000 * read / 3350e9)
