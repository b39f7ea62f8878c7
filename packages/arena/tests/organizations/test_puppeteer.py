"""A policy over tools and models: what it sees, what it takes, and when it stops."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from managed import Toys
from orgthink_arena.organizations.puppet_policy import STOP, PastAction, PuppetPolicy, features, load, size, uniform
from orgthink_arena.organizations.puppeteer import Puppeteer
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.record.episode import Episode, Problem, Sampling, Status
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.util.errors import UserError

PROBLEM = Problem("p", "sums", "sum 3 + 4")
POOL = {"hare": "quick", "tortoise": "careful"}
TOOLS = ("standard_reasoner", "code_reasoner")


@dataclass(frozen=True)
class Pulling(Toys, Puppeteer):
    """The real organization over toy programs."""

    prompts: str = TERSE


def preferring(folder: Path, organization: Puppeteer, **logits: float) -> str:
    """A policy with these logits, whatever it sees; actions by their names with `__` for `:`."""
    actions, file = organization.actions, folder / "policy.safetensors"
    blank = uniform(actions)
    wanted = {name.replace("__", ":"): value for name, value in logits.items()}
    bias = np.array([wanted.get(name, -9.0) for name in actions], dtype=np.float32)
    PuppetPolicy(actions, ((blank.layers[0][0], bias),)).save(file)
    return str(file)


def played(organization: Puppeteer, *turns: Turn, seed: int | None = None) -> Episode:
    engines = {name: ScriptedEngine(turns, model=name) for name in POOL}
    backings = {name: Backing(engine, Sampling(100, seed=seed)) for name, engine in engines.items()}
    return run_virtual(attempt(organization, PROBLEM, backings["hare"], roles=backings))


ANSWER = Turn("so <ANSWER> 7 </ANSWER>", when="sequential")


def test_the_most_probable_action_is_taken_until_the_steps_are_over(tmp_path: Path) -> None:
    organization = Pulling(pool=POOL, tools=TOOLS, steps=3, temperature=0.0)
    policy = preferring(tmp_path, organization, standard_reasoner__tortoise=2.0, stop=1.0)
    episode = played(replace(organization, policy=policy), *[ANSWER] * 3)
    assert [(t.agent, t.role, t.model) for t in episode.traces[1:]] == [
        (f"controller/{n}.1", "standard_reasoner", "tortoise") for n in (1, 2, 3)
    ]
    assert episode.answer == "7"


def test_what_is_drawn_depends_on_the_seed_of_the_sampling(tmp_path: Path) -> None:
    """An arena's seeds would all take the same actions at a problem otherwise."""
    organization = Pulling(pool=POOL, tools=TOOLS[:1], steps=1)
    even = {"standard_reasoner__hare": 1.0, "standard_reasoner__tortoise": 1.0}
    organization = replace(organization, policy=preferring(tmp_path, organization, **even))
    models = [played(organization, ANSWER, seed=seed).traces[1].model for seed in range(12)]
    assert {*models} == {"hare", "tortoise"}
    assert played(organization, ANSWER, seed=3).traces[1].model == models[3]


def test_stop_ends_the_episode(tmp_path: Path) -> None:
    organization = Pulling(pool=POOL, tools=TOOLS)
    policy = preferring(tmp_path, organization, stop=30.0)
    episode = played(replace(organization, policy=policy))
    assert len(episode.traces) == 1 and episode.answer is None


def test_a_failed_action_is_a_status_and_the_answers_of_the_others_vote(tmp_path: Path) -> None:
    organization = Pulling(pool=POOL, tools=TOOLS, steps=2, temperature=0.0, width=2, threshold=0.1)
    policy = preferring(tmp_path, organization, code_reasoner__hare=1.0, standard_reasoner__hare=0.9)
    failing = [Turn("<code>fail here</code>", when="coder"), Turn("<code>print 7</code>", when="coder")]
    episode = played(replace(organization, policy=policy), *failing, ANSWER, Turn("hm", when="sequential"))
    statuses = [trace.status for trace in episode.traces if trace.parent == "controller"]
    assert statuses == [Status.ERROR, Status.OK, Status.OK, Status.NO_RETURN] and episode.answer == "7"


TEXT = st.text(max_size=60)
PAST = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.booleans(), TEXT).map(lambda e: PastAction(*e)))


@given(TEXT, PAST)
def test_every_state_is_a_vector_of_small_numbers(question: str, events: list[PastAction]) -> None:
    state = features(question, events, 5, 4)
    assert state.shape == (size(5),) and state.dtype == np.float32
    assert np.isfinite(state).all() and state.min() >= 0 and state.max() < 10
    assert uniform(("a", "b", "c", "d", STOP)).probabilities(state) == pytest.approx([0.2] * 5)


def test_a_state_tells_kinds_of_questions_apart_and_not_their_numbers() -> None:
    def seen(text: str) -> list[float]:
        return features(text, [], 2, 4).tolist()

    assert seen("sum 3 + 4") == seen("sum 17 + 29") != seen("find 3 + 4")
    after = [PastAction(1, 0, True, "7")]
    assert features("x", after, 2, 4).tolist() != features("x", [after[0]._replace(action=1)], 2, 4).tolist()
    assert features("x", after, 2, 4).tolist() != features("x", [after[0]._replace(ok=False)], 2, 4).tolist()


def test_what_is_no_policy_or_one_of_other_actions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no policy")
    with pytest.raises(UserError, match="not a puppeteer's policy"):
        load(tmp_path / "text")
    with pytest.raises(UserError, match="not a puppeteer's policy"):
        load(tmp_path / "nowhere")
    organization = Pulling(pool=POOL, tools=TOOLS)
    policy = preferring(tmp_path, organization)
    assert load(Path(policy)).actions == organization.actions
    with pytest.raises(UserError, match="was trained for the actions"):
        played(Pulling(pool=POOL, tools=("standard_reasoner",), policy=policy))
    wrong = PuppetPolicy(("a", STOP), ((np.zeros((2, 3), dtype=np.float32), np.zeros(2, dtype=np.float32)),))
    wrong.save(tmp_path / "other")
    with pytest.raises(UserError, match="other states or actions"):
        load(tmp_path / "other")


def zeros(*shape: int, value: float = 0.0) -> Any:
    return np.full(shape, value, dtype=np.float32)


WIDE = size(2)
WHOLE = {"0.w": zeros(3, WIDE), "0.b": zeros(3), "1.w": zeros(2, 3), "1.b": zeros(2)}


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        ({}, "[]"),
        ({}, '"stop"'),
        ({}, '[1, "stop"]'),
        ({}, '["stop", "a"]'),
        ({}, "[" * 100_000),
        ({"0.w": zeros(3)}, None),
        ({"0.w": zeros(3, WIDE, 1)}, None),
        ({"0.b": zeros(4)}, None),
        ({"0.b": zeros(3, 1)}, None),
        ({"0.b": np.array(1, dtype=np.float32)}, None),
        ({"1.w": zeros(2, 4)}, None),
        ({"1.b": zeros(3)}, None),
        ({"1.w": zeros(2, 3, value=np.nan)}, None),
        ({"1.b": zeros(2, value=np.inf)}, None),
        ({"1.b": np.zeros(2, dtype=np.int64)}, None),
    ],
)
def test_a_policy_whose_parts_do_not_fit_is_one_line(
    tmp_path: Path, changes: dict[str, Any], actions: str | None
) -> None:
    from safetensors.numpy import save_file

    file, names = tmp_path / "policy.safetensors", json.dumps(["a", STOP]) if actions is None else actions
    save_file(WHOLE, file, {"actions": json.dumps(["a", STOP])})
    assert load(file).probabilities(zeros(WIDE)) == pytest.approx([0.5, 0.5])
    save_file({**WHOLE, **changes}, file, {"actions": names})
    with pytest.raises(UserError, match=r"not a puppeteer's policy|train it again") as error:
        load(file)
    assert "\n" not in str(error.value)
