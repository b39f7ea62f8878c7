"""The simulation of organizations on replicas: laws, and equality with a simulation of every single step."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale.stepwise import Stepwise, critical_path

from orgthink.cli import main
from orgthink.episode import Origin
from orgthink.episode_json import load
from orgthink.errors import UserError
from orgthink.measure import latency as measured
from orgthink.scale.simulation.cluster import simulate
from orgthink.scale.simulation.engine import EngineModel, Roof
from orgthink.scale.simulation.gpu import Serving, estimated
from orgthink.scale.simulation.program import (
    AgentProgram,
    DecodeTokens,
    ForkChild,
    JoinChild,
    ReadTokens,
    WaitSeconds,
)
from orgthink.scale.simulation.recorded import recorded
from orgthink.scale.simulation.synthetic import DividedTask, fork_join, majority_vote, rounds, sequential, tree
from orgthink.scale.sizing.configs import config_of
from orgthink.scale.sizing.hardware import ACCELERATORS, Cluster
from orgthink.scale.sizing.seconds import seconds
from orgthink.scale.sizing.setup import Setup
from orgthink.scale.sizing.shape import Model
from orgthink.scale.sizing.work import Work
from orgthink.store import RunFolder

GOLDEN = Path(__file__).parents[1] / "golden" / "episodes.jsonl"

number = st.integers(0, 5)
roofs = st.builds(Roof, st.integers(1, 60), number, number, number, number)
models = st.builds(
    EngineModel,
    roofs,
    roofs,
    fixed=number,
    prefill=number,
    request=number,
    slots=st.integers(1, 6),
    cache=st.integers(200, 400),
    chunk=st.integers(1, 20),
    block=st.sampled_from([1, 4]),
    turnaround=st.integers(0, 40),
)
"""Seconds are integers, so that two simulations agree on what happens at the same time."""


def drawn(rng: random.Random, depth: int) -> AgentProgram:
    """A program with a few forks, of which some are not joined."""
    operations, forks, joined = [], 0, set[int]()
    for _ in range(rng.randrange(1, 6)):
        kind = rng.choice(["decode", "decode", "fork", "fork", "join", "read", "wait"])
        if kind == "decode":
            operations.append(DecodeTokens(rng.randrange(1, 13)))
        elif kind == "fork" and depth:
            operations.append(ForkChild(drawn(rng, depth - 1)))
            forks += 1
        elif kind == "join" and (open_ := [i for i in range(forks) if i not in joined]):
            joined.add(i := rng.choice(open_))
            operations += [JoinChild(i), *([ReadTokens(rng.randrange(1, 9))] if rng.random() < 0.8 else [])]
        elif kind == "read":
            operations.append(ReadTokens(rng.randrange(1, 9)))
        elif kind == "wait":
            operations.append(WaitSeconds(rng.randrange(1, 100)))
    prompt = rng.randrange(1, 15)
    return AgentProgram(prompt, tuple(operations), rng.randrange(0, prompt + 1))


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 10**9), models, st.integers(1, 4), st.integers(1, 5))
def test_it_equals_a_simulation_of_every_single_step(seed, model, replicas, episodes):
    rng = random.Random(seed)
    programs = [drawn(rng, 2) for _ in range(episodes)]
    fast, slow = simulate(programs, model, replicas), Stepwise(programs, model, replicas).run()
    assert list(fast.episodes) == slow.finished
    assert (fast.busy, fast.sampled, fast.read) == (slow.busy, slow.sampled, slow.read)


def joined(rng: random.Random, depth: int) -> AgentProgram:
    """A program that joins all its forks."""
    operations, forks = [DecodeTokens(rng.randrange(1, 9))], 0
    for _ in range(rng.randrange(0, 5) if depth else 0):
        operations += [ForkChild(joined(rng, depth - 1)), DecodeTokens(rng.randrange(1, 6))]
        forks += 1
    for i in rng.sample(range(forks), forks):
        operations += [JoinChild(i), ReadTokens(rng.randrange(1, 6)), DecodeTokens(rng.randrange(1, 6))]
    return AgentProgram(rng.randrange(1, 9), tuple(operations))


@given(st.integers(0, 10**9), models, st.integers(1, 5))
def test_all_tokens_are_decoded_and_read_once(seed, model, replicas):
    rng = random.Random(seed)
    programs = [joined(rng, 2) for _ in range(3)]
    found = simulate(programs, replace(model, block=1), replicas)
    agents = [agent for program in programs for agent in program]
    joins = sum(isinstance(step, JoinChild) for agent in agents for step in agent.operations)
    injected = sum(step.tokens for agent in agents for step in agent.operations if isinstance(step, ReadTokens))
    assert found.sampled == sum(agent.decoded for agent in agents)
    assert found.read == sum(agent.prompt for agent in agents) + injected + joins  # with the last token before a join
    assert found.busy <= found.seconds * replicas
    assert found.seconds == max(found.episodes)


@given(st.integers(0, 10**9), models, st.integers(1, 12))
def test_nothing_is_faster_than_a_replica_for_each_agent(seed, model, replicas):
    """With fewer replicas steps are longer, and requests wait. It is no law that each further replica helps: it changes
    which agents share one."""
    program = joined(random.Random(seed), 2)
    alone = simulate([program], model, sum(1 for _ in program)).seconds
    least = min(model.decoding(1, 0, 1), model.reading(0, 0, 1, 1, 1))
    assert critical_path(program) * least <= alone <= simulate([program], model, replicas).seconds


def test_a_further_replica_may_be_slower():
    """Of four agents the first and the last are long. On two replicas they lie apart; on three they share one."""
    lengths = (100, 1, 1, 100)
    vote = AgentProgram(
        0, (*(ForkChild(AgentProgram(1, (DecodeTokens(n),))) for n in lengths), *map(JoinChild, range(4)))
    )
    model = EngineModel(Roof(row=1, read=1))
    assert [simulate([vote], model, n).seconds for n in (1, 2, 3, 4)] == [202, 101, 200, 100]


@pytest.mark.parametrize("line", GOLDEN.read_bytes().splitlines())
def test_a_recorded_episode_takes_its_critical_path(line):
    """With a second for each step and nothing else, the wall clock is Eq. 4 of AsyncThink."""
    episode = load(line)
    program = recorded(episode)
    assert sorted(agent.decoded for agent in program) == sorted(trace.steps for trace in episode.traces)
    assert critical_path(program) == measured.critical_path(episode)
    assert simulate([program], EngineModel(Roof(base=1))).seconds == critical_path(program)


@pytest.mark.parametrize("line", GOLDEN.read_bytes().splitlines())
def test_a_recorded_program_has_the_tokens_of_the_record(line):
    episode = load(line)
    spans = [span for trace in episode.traces for span in trace.spans]
    agents = list(recorded(episode))
    read = sum(step.tokens for agent in agents for step in agent.operations if isinstance(step, ReadTokens))
    assert sum(agent.prompt for agent in agents) == sum(s.tokens for s in spans if s.origin is Origin.PROMPT)
    assert read == sum(span.tokens for span in spans if span.origin is Origin.INJECTED)
    assert all(agent.cached <= agent.prompt for agent in agents)


def test_prompts_of_a_vote_are_cached_after_the_first():
    (parallel,) = (e for e in map(load, GOLDEN.read_bytes().splitlines()) if e.organization == "parallel")
    first, *others = (agent for agent in recorded(parallel) if agent.prompt)
    assert (first.cached, {agent.cached for agent in others}) == (0, {first.prompt})


H100 = estimated(Model.of(config_of("qwen3-4b")), ACCELERATORS["h100"], Cluster(), Serving())


def test_a_gpus_step_is_that_of_the_sizing():
    """64 agents that decode 1,000 tokens each after a prompt of 512, on one GPU: `seconds` of a step of such a work."""
    work = Work(problems=64, group=1, agents=1, concurrent=1, prompt=512, sampled=1000)
    model = Model.of(config_of("qwen3-4b"))
    sized = seconds(model, Setup(share=0.92, sharded=False), work, ACCELERATORS["h100"], Cluster(gpus=1))
    found = simulate([AgentProgram(512, (DecodeTokens(1000),))] * 64, H100).seconds
    assert sized is not None
    # the sizing takes half of the length, 756 tokens, for the mean context, which is 1,012 here
    longer = 1000 * 64 * (1012 - 756) * H100.memory.context
    assert found == pytest.approx(sized.prefill + sized.decoding + longer, rel=0.005)


def test_a_mixture_of_experts_and_a_model_that_does_not_fit_are_refused():
    for name, card, why in (("qwen3-30b-a3b", "h200", "dense"), ("qwen3-32b", "l40s", "raise tensor")):
        with pytest.raises(UserError, match=why):
            estimated(Model.of(config_of(name)), ACCELERATORS[card], Cluster(), Serving())


EVEN = DividedTask(work=10_000, serial=0.2, spread=0.0)


@pytest.mark.parametrize(
    ("program", "agents", "path"),
    [
        (sequential(EVEN), 1, 10_000),
        (fork_join(EVEN, 4, random.Random(0)), 5, 1000 + 4 * 30 + 2060 + 1000),
        (tree(EVEN, (2, 2), random.Random(0)), 7, 1000 + 2 * 30 + 2 * 30 + 2060 + 60 + 1000),
        (rounds(EVEN, 4, 2, random.Random(0)), 9, 1000 + 2 * (4 * 30 + 1060) + 1000),
        (majority_vote(EVEN, 4, random.Random(0)), 4, 10_000),
    ],
    ids=["sequential", "fork-join", "tree", "rounds", "vote"],
)
def test_synthetic_organizations_have_the_critical_path_of_their_protocol(program, agents, path):
    """Tokens before, forks, the last worker, tokens after. The last tag is written while that worker decodes."""
    assert sum(1 for agent in program if agent.prompt) == agents
    assert critical_path(program) == path


def test_the_lengths_of_parts_have_the_mean_of_an_even_division():
    task = replace(EVEN, work=1_000_000, spread=1.0)
    lengths = [agent.decoded for agent in fork_join(task, 4000, random.Random(0))][1:]
    assert sum(lengths) / 4000 == pytest.approx(200 + task.result, rel=0.1)
    assert max(lengths) > 5 * 200


def test_the_command_prints_a_row_for_each_organization_and_number_of_gpus(tmp_path, capsys):
    folder = RunFolder.create(tmp_path / "run", "eval", {})
    folder.episodes_file.write_bytes(GOLDEN.read_bytes())
    assert main(["simulate", str(folder.path), "--gpus", "1", "4", "--price", "3.6"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[3]) for row in rows] == [
        (name, n) for name in ("sequential", "parallel", "asyncthink") for n in ("1", "4")
    ]
    alone = simulate([recorded(load(GOLDEN.read_bytes().splitlines()[0]))], H100).seconds
    assert (float(rows[0][4]), float(rows[1][-1])) == pytest.approx((alone, 4 * alone / 1000), abs=0.05, rel=0.05)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--gpus", "3", "--assume", "tensor=2"], "multiple of tensor"),
        (["--assume", "slot=1"], "unknown name"),
        (["--gpu", "h1000"], "h1000"),
    ],
)
def test_the_command_says_what_is_wrong(words, why, tmp_path, capsys):
    assert main(["simulate", str(tmp_path), *words]) == 2
    assert why in capsys.readouterr().err
