"""Random structures are valid, and varied."""

import hashlib
import random
from functools import partial
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.actions import Fork, Join
from orgthink.grammar.asyncthink import Keys
from orgthink.training.coldstart.structures import (
    consistent_structure,
    fixed_structure,
    random_plan,
    random_structure,
    render_plan,
    varied_structure,
)


@pytest.mark.parametrize(("draw", "fewest"), [(random_structure, 1), (varied_structure, 1), (fixed_structure, 2)])
@given(data=st.data(), seed=st.integers(), parts=st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True))
def test_every_structure_keeps_the_protocol_and_covers_every_part(draw, fewest, data, seed, parts):
    capacity = data.draw(st.integers(fewest, 5))
    protocol, done = Keys(capacity), []
    for step in draw(random.Random(seed), parts, capacity):
        done.extend(step.parts)
        match step.action:
            case "fork":
                assert protocol.check(Fork(step.key, "q")) is None
            case "join":
                assert protocol.check(Join(step.key)) is None
    assert not protocol.taken
    assert sorted(done) == sorted(parts)


DRAWS = [
    partial(draw, largest_fork=size)
    for draw in (random_structure, varied_structure, consistent_structure)
    for size in (1, 3)
]


def in_order(steps) -> bool:
    """Whether the oldest fork is always joined first."""
    active = []
    for step in steps:
        if step.action == "fork":
            active.append(step.key)
        elif step.action == "join" and active.pop(0) != step.key:
            return False
    return True


def test_consistent_structures_have_habits():
    """Of forks: one size, until less is left; joined in order, and with those that need them, in half of them."""
    needs = {"b": "a", "d": "c", "f": "e"}
    found = [
        consistent_structure(rng, rng.sample("abcdef", 6), 8, needs=needs) for rng in map(random.Random, range(2_000))
    ]
    sizes = [[len(step.parts) for step in steps if step.action == "fork"] for steps in found]
    assert all(size <= first for first, *others in filter(None, sizes) for size in others)
    assert {max(of_one, default=0) for of_one in sizes} == {0, 1, 2, 3}
    several = [in_order(steps) for steps, of_one in zip(found, sizes, strict=True) if len(of_one) > 3]
    pairs = [step.parts for steps in found for step in steps if step.action == "fork" and len(step.parts) > 1]
    follows = [needs.get(second) == first for first, second, *_ in pairs]
    assert sum(several) / len(several) == pytest.approx(0.5 + 0.5 * 0.19, abs=0.1)
    assert sum(follows) / len(follows) == pytest.approx(0.63, abs=0.1), "some follow by chance"


def test_a_fork_follows_needs_if_it_is_to():
    needs, runs = {"b": "a", "c": "b", "e": "d"}, {"a": ("a", "b", "c"), "b": ("b", "c"), "d": ("d", "e")}
    found = set()
    for rng in map(random.Random, range(200)):
        parts = rng.sample("abcde", 5)
        steps = random_structure(rng, parts, 3, 3, needs=needs, smallest_fork=3, oldest_first=True, follow_needs=True)
        forks = [step.parts for step in steps if step.action == "fork"]
        assert in_order(steps) and all(len(forked) == 3 for forked in forks[:-1])
        for forked in forks:
            run = runs.get(forked[0], forked[:1])
            assert forked[: len(run)] == run
            found.add(run)
    assert found >= {("a", "b", "c"), ("d", "e")}


def test_the_shapes_without_an_order_are_those_from_before_there_was_one():
    """Recorded lessons were drawn with them."""
    keys = "".join(step.key or "-" for seed in range(20) for step in varied_structure(random.Random(seed), "abcd", 4))
    assert hashlib.sha256(keys.encode()).hexdigest()[:12] == "8c0dad50c858"


@pytest.mark.parametrize("draw", [*DRAWS, fixed_structure])
@given(data=st.data(), seed=st.integers(), count=st.integers(1, 8))
def test_a_part_comes_after_the_one_that_it_needs(draw, data, seed, count):
    parts = list("abcdefgh"[:count])
    needs = {
        part: data.draw(st.sampled_from(parts[:i])) for i, part in enumerate(parts) if i and data.draw(st.booleans())
    }
    order = data.draw(st.permutations(parts))
    known, forked = set(), {}
    for step in draw(random.Random(seed), order, 4, needs=needs):
        if step.action == "join":
            known |= forked.pop(step.key)
        taken = set()
        for part in step.parts:
            assert part not in needs or needs[part] in known | taken
            taken.add(part)
        if step.action == "fork":
            forked[step.key] = taken
        else:
            known |= taken
    assert known == set(parts) and not forked


def test_a_teacher_by_itself_has_two_shapes():
    """Every Fork joined at once, or all places taken first (section 3.1)."""
    shapes = {" ".join(step.action for step in fixed_structure(random.Random(seed), "abcd", 3)) for seed in range(20)}
    assert shapes == {" ".join(["fork join"] * 4), "fork fork join join"}


def test_many_shapes_occur():
    shapes = {tuple(step.action for step in random_structure(random.Random(seed), "abcd", 3)) for seed in range(300)}
    assert len(shapes) > 30
    assert ("think",) * 4 in shapes


def test_varied_structures_also_fill_a_large_pool_or_leave_it_empty():
    def most_at_once(draw) -> list[int]:
        """Most forks that were at work at once, of each structure."""
        found = []
        for seed in range(2_000):
            change = {"fork": 1, "join": -1, "think": 0}
            found.append(max(accumulate(change[step.action] for step in draw(random.Random(seed), "abcdef", 8))))
        return found

    usual, varied = most_at_once(random_structure), most_at_once(varied_structure)
    for found in (5, 6):
        assert varied.count(found) > 2 * usual.count(found)
    assert varied.count(0) > 100 > 20 > usual.count(0)


@given(st.integers(), st.integers(2, 6))
def test_every_plan_forks_keeps_the_protocol_and_counts_its_keys_up(seed, capacity):
    plan = random_plan(random.Random(seed), capacity)
    protocol = Keys(capacity)
    for step in plan:
        match step.action:
            case "fork":
                assert protocol.check(Fork(step.key, "q")) is None
            case "join":
                assert protocol.check(Join(step.key)) is None
    assert not protocol.taken
    forks = [step.key for step in plan if step.action == "fork"]
    assert forks == [str(i) for i in range(1, len(forks) + 1)] != []
    assert not any(a.action == b.action == "think" for a, b in pairwise(plan))


def test_plans_are_not_only_the_two_shapes_that_teachers_write():
    plans = {render_plan(random_plan(random.Random(seed), 3)) for seed in range(300)}
    assert len(plans) > 40
    assert "FORK-1, FORK-2, THINK, JOIN-2, JOIN-1, ANSWER" in plans
    with pytest.raises(ValueError, match="capacity is 1"):
        random_plan(random.Random(0), 1)
