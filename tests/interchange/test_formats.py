"""Rows in the formats of other trainers. Each is read back as its trainer reads it, and must say what the row says."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from golden.scale import make
from hypothesis import given
from hypothesis import strategies as st

from orgthink.training.interchange import trainers as tinker
from orgthink.training.interchange import trainers as trl
from orgthink.training.interchange.trainers import check
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError

NEWEST = 7
"""Version of the newest weights."""

Reduction = Any
REDUCTIONS: list[Reduction] = ["token-mean", "episode-mean"]


def random_row(rng: random.Random, ages: str = "any") -> PolicyRow:
    """A row whose first token is its prompt. `ages` are `any`, `one` for the whole row, or `fresh`."""
    trained = (False, *(rng.random() < 0.5 for _ in range(rng.randrange(8))), True) + (False,) * rng.randrange(3)
    oldest = 0 if ages == "fresh" else NEWEST
    age = rng.randint(0, oldest)
    return PolicyRow(
        token_ids=tuple(rng.randrange(1 << 20) for _ in trained),
        trained=trained,
        logprobs=tuple(-rng.randrange(1 << 12) / (1 << 9) if on else 0.0 for on in trained),  # exact in 32 bits
        advantage=rng.randint(-32, 32) / 8,
        temperature=1.0,
        episode="e",
        agent="a",
        role="r",
        group="g",
        age=tuple((rng.randint(0, oldest) if ages == "any" else age) if on else 0 for on in trained),
    )


def minibatch(ages: str = "any", *, shared: bool = False) -> st.SearchStrategy[list[PolicyRow]]:
    """Rows of some groups, each of some episodes, each of some rows, which may share an advantage."""

    def made(seed: int) -> list[PolicyRow]:
        rng, rows = random.Random(seed), []
        for group in range(rng.randint(1, 2)):
            for episode in range(rng.randint(1, 3)):
                own = [random_row(rng, ages) for _ in range(rng.randint(1, 3))]
                for agent, row in enumerate(own):
                    named = replace(
                        row,
                        group=f"g{group}",
                        episode=f"g{group}|{episode}",
                        agent=f"agent/{agent}",
                        role=f"role {agent % 2}",
                    )
                    rows.append(replace(named, advantage=own[0].advantage) if shared else named)
        return rows

    return st.integers(0, 1 << 30).map(made)


def one(ages: int = 0, **fields: Any) -> PolicyRow:
    """A plain row: two tokens of a prompt, two sampled, one injected, one sampled."""
    trained = (False, False, True, True, False, True)
    row = PolicyRow(
        (5, 6, 7, 8, 9, 4), trained, (0.0, 0.0, -1.0, -2.0, 0.0, -0.5), 1.0, 1.0, "p|asyncthink|0", "organizer",
        "organizer", "p",
        tuple(ages if on else 0 for on in trained),
    )  # fmt: skip
    return replace(row, **fields)


def told(rows: Sequence[PolicyRow], reduction: Reduction) -> list[float]:
    """What each token of all rows counts: its advantage times its weight, 0 where nothing is trained."""
    each = zip(rows, token_weights(rows, reduction), strict=True)
    return [row.advantage * weight if on else 0.0 for row, weight in each for on in row.trained]


# The check


@given(minibatch())
def test_what_can_be_trained_passes(rows: list[PolicyRow]):
    check(rows)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token_ids": (5, 6, 7, 8, 9)}, r"lengths \[5, 6\]"),
        ({"trained": (False, True)}, r"lengths \[2, 6\]"),
        ({"logprobs": (0.0,) * 7}, r"lengths \[6, 7\]"),
        ({"age": ()}, r"lengths \[0, 6\]"),
        ({"token_ids": (), "trained": (), "logprobs": (), "age": ()}, "nothing in it is trained"),
        ({"trained": (False,) * 6, "logprobs": (0.0,) * 6}, "nothing in it is trained"),
        ({"trained": (True,) * 6}, "first token is trained"),
        ({"token_ids": (5, 6, -7, 8, 9, 4)}, "token id -7"),
        ({"advantage": NAN}, "advantage is nan"),
        ({"advantage": -INF}, "advantage is -inf"),
        ({"advantage": 1e39}, "advantage is 1e\\+39"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": NAN}, "temperature is nan"),
        ({"temperature": INF}, "temperature is inf"),
        ({"logprobs": (0.0, 0.0, -1.0, NAN, 0.0, -0.5)}, "token 3 has log-probability nan"),
        ({"logprobs": (0.0, 0.0, -1.0, -INF, 0.0, -0.5)}, "token 3 has log-probability -inf"),
        ({"logprobs": (0.0, 0.0, -1.0, -2.0, -0.1, -0.5)}, "token 4 is not trained and has log-probability -0.1"),
        ({"age": (0, 0, 0, 0, 3, 0)}, "token 4 is not trained .* age 3"),
        ({"age": (0, 0, -1, 0, 0, 0)}, "token 2 has age -1"),
    ],
)
@pytest.mark.parametrize("target", make.TARGETS)
def test_no_target_takes_what_cannot_be_trained(target: str, fields: dict[str, Any], message: str):
    with pytest.raises(UserError, match=rf"^episode p\|asyncthink\|0, organizer: .*{message}") as caught:
        make.TARGETS[target]([one(), one(**fields)], "token-mean")
    assert "\n" not in str(caught.value)


# What each target reads


@given(minibatch("one"))
def test_trl_has_all_but_names(rows: list[PolicyRow]):
    samples = trl.samples(rows, version=NEWEST, temperature=1.0)
    for sample, row in zip(samples, rows, strict=True):
        assert sample["input_ids"].tolist() == list(row.token_ids)
        assert sample["completion_mask"].tolist() == [int(on) for on in row.trained]
        assert sample["old_log_probs"].tolist() == list(row.logprobs)
        assert sample["advantage"] == row.advantage
        assert sample["model_version"] == NEWEST - max(row.age)
        assert {array.dtype for array in (sample["input_ids"], sample["completion_mask"])} == {np.dtype("int64")}
        assert sample["old_log_probs"].dtype == np.dtype("float32")
    same_number(rows, "group", [sample["group_id"] for sample in samples])


def same_number(rows: Sequence[PolicyRow], field: str, numbers: Sequence[int]) -> None:
    """Rows have one number if, and only if, they have one name."""
    pairs = {(getattr(row, field), number) for row, number in zip(rows, numbers, strict=True)}
    assert len(pairs) == len({name for name, _ in pairs}) == len(set(numbers))
    assert all(0 <= number < 1 << 63 for number in numbers)


@given(minibatch("fresh"), st.sampled_from(REDUCTIONS))
def test_tinker_s_sum_over_targets_is_our_loss(rows: list[PolicyRow], reduction: Reduction):
    data = tinker.data(rows, reduction=reduction)
    for datum, row in zip(data, rows, strict=True):
        inputs = datum["loss_fn_inputs"]
        assert {len(datum["model_input"]), *map(len, inputs.values())} == {len(row) - 1}  # type: ignore[arg-type]
        assert (*datum["model_input"], inputs["target_tokens"][-1]) == row.token_ids
        assert (datum["model_input"][0], *inputs["target_tokens"]) == row.token_ids
        assert (0.0, *inputs["logprobs"]) == row.logprobs
    counted = [value for datum in data for value in (0.0, *datum["loss_fn_inputs"]["advantages"])]
    assert counted == told(rows, reduction)


# Refusals


def test_old_tokens_need_a_field_that_says_so():
    hand_over = make.TARGETS["tinker"]
    with pytest.raises(UserError, match=r"organizer: some of its tokens are 2 updates old"):
        hand_over([one(), one(ages=2)], "token-mean")
    assert hand_over([one()], "token-mean")


# The files


@pytest.mark.parametrize("name", [*(f"{target}.json" for target in make.TARGETS), "verl_problem.json"])
def test_the_golden_files_are_what_the_fixed_episodes_become(name: str):
    """After a change on purpose: `python tests/golden/scale/make.py`."""
    assert (make.HERE / name).read_text() == make.files()[name]
