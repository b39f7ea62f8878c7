"""What a preparation has spent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from orgthink_arena.searches import spent
from orgthink_arena.searches.spent import Spent
from random_episodes import episode_of, random_program

from orgthink.measure.usage import replies, sampled_tokens
from orgthink.util.errors import UserError


def costing(cost: float | None):
    """A random episode whose root spent so much."""
    import random

    episode = episode_of(random_program(random.Random(3)))
    traces = tuple(replace(trace, cost=None) for trace in episode.traces)
    return replace(episode, traces=(replace(traces[0], cost=cost), *traces[1:]))


def test_a_sum_of_episodes_and_its_file(tmp_path):
    assert spent.read(tmp_path) == Spent()
    one, two = costing(1.5), costing(2.0)
    both = spent.of([one], 1.0).plus(spent.of([two], 2.0))
    assert both == spent.of(iter([one, two]), 3.0)
    expected = (2, 2 * sampled_tokens(one), 2 * replies(one), 3.5)
    assert (both.episodes, both.sampled_tokens, both.replies, both.cost_units) == expected
    spent.write(tmp_path, both)
    assert spent.read(tmp_path) == both


def test_an_unknown_cost_stays_unknown():
    unknown = spent.of([costing(None), costing(1.0)], 0.0)
    assert unknown.cost_units is None
    assert Spent(cost_units=1.0).plus(unknown).cost_units is None
    assert Spent().plus(spent.of([], 0.0)) == Spent()


@pytest.mark.parametrize("text", ["", "[]", '{"episodes": "many"}'])
def test_a_broken_file_is_one_line(tmp_path, text):
    (tmp_path / "spent.json").write_text(text)
    with pytest.raises(UserError, match=r"spent\.json"):
        spent.read(tmp_path)
