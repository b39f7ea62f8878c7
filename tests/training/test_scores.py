"""Rewards and credit of plug-ins must return numbers; errors name the plug-in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch

from orgthink.credit import EpisodeCredit
from orgthink.record.episode import Episode, Problem, Trace
from orgthink.rewards import Score
from orgthink.training.scores import advantages_of, score_of
from orgthink.util.errors import UserError

EPISODE = Episode("p|o|0", Problem("p", "t", "?"), "o", 1, (Trace("root", "root", None, ()),))
GROUPS = {"p": {"p|o|0": 1.0, "p|o|1": 0.0}}


class Odd(Score):
    def parts(self) -> dict[str, Any]:
        return {"part": self.total, "unknown": None}


@pytest.mark.parametrize("half", [0.5, numpy.float32(0.5), torch.tensor(0.5)])
def test_scalars_become_plain_numbers(half):
    score = score_of(lambda episode: Odd(half), EPISODE)
    assert json.loads(json.dumps(score)) == {"part": 0.5, "unknown": None, "reward": 0.5}


@pytest.mark.parametrize("value", [None, 0.5, Score("1.5"), Score(float("nan")), Score(None)])  # type: ignore[arg-type]
def test_an_invalid_reward_is_named(value):
    def mine(episode: Episode) -> Any:
        return value

    with pytest.raises(UserError, match=r"^the reward mine of episode p\|o\|0 is "):
        score_of(mine, EPISODE)


@dataclass(frozen=True)
class Given(EpisodeCredit):
    value: Any

    def __call__(self, groups: Any) -> Any:
        return self.value(groups) if callable(self.value) else self.value


@pytest.mark.parametrize(
    "credit",
    [
        Given(None),
        Given([1.0]),
        Given({"p|o|0": None}),
        Given({"p|o|0": "1"}),
        Given({"p|o|0": float("nan")}),
        Given({"nobody": 1.0}),
        Given(lambda groups: groups["q"]),
    ],
)
def test_an_invalid_credit_is_named(credit):
    with pytest.raises(UserError, match=r"^the credit Given "):
        advantages_of(credit, GROUPS)


def test_a_valid_credit():
    assert advantages_of(Given({"p|o|0": torch.tensor(0.5)}), GROUPS) == {"p|o|0": 0.5}
