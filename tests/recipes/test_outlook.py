"""What `--dry-run` promises of MarsRL is what the rollouts keep, whatever the agents write."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings as run
from hypothesis import strategies as st
from mars_words import Habits, WordEngine, problems_file, stepped
from terse import TERSE

from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.recipes.jobs import Mars
from orgthink.training.recipes.registry import RECIPES, outlook

ROLES = (("solver",), ("verifier", "corrector"), ("solver", "verifier", "corrector"))


def job(task: str, **changes: Any) -> Mars:
    return Mars(MarsSettings(MarsRollout(task, TERSE, **changes), steps=1, learning_rate=1e-3))


def rolled_out(job: Mars, habits: Habits, steps: int) -> list[dict[str, int]]:
    """The size of each step, under the names of the bounds."""
    source, engine, taken = job.source(), WordEngine(habits), []
    for number in range(steps):
        engine.requests.clear()
        (step,) = stepped(source, engine, 1, number)
        taken.append(
            {
                "outputs_a_step": len(engine.requests),
                "sampled_tokens_a_step": sum(most for _, _, most in engine.requests),
                "oldest_token_in_updates": step.metrics["age_max"] or 0,
                "context": max(map(len, step.rows), default=0),
            }
        )
    return taken


@given(
    st.fixed_dictionaries(
        {
            "problems": st.integers(1, 3),
            "group": st.integers(2, 4),
            "take": st.integers(1, 6),
            "segment": st.integers(3, 14),
            "max_tokens": st.just(14),
            "live": st.integers(4, 20),
            "strategy": st.sampled_from(["random", "adaptive"]),
            "roles": st.sampled_from(ROLES),
        }
    ),
    st.builds(Habits, solves=st.floats(0, 1), accuses=st.just(1.0), rambles=st.floats(0, 0.3), spellings=st.just(99)),
)
@run(max_examples=15, deadline=None)
def test_no_step_exceeds_the_bounds(tmp_path_factory, plan, habits):
    plan = job(problems_file(tmp_path_factory.mktemp("task"), *range(7, 30)), **plan)
    bounds = outlook(plan)["bounds"]
    for taken in rolled_out(plan, habits, 10):
        assert all(value <= bounds[name] for name, value in taken.items()), (taken, bounds)


def test_the_bounds_of_the_papers_recipe():
    """128 problems enter a step. A chain takes 20 steps at most, 19 of them in its second stage or later."""
    bounds = outlook(RECIPES["marsrl-qwen3"])["bounds"]
    assert bounds["outputs_of_a_problem"] == 8 + 4 * 16
    assert bounds["outputs_a_step"] == 128 * (8 + 19 * 16) == RECIPES["marsrl-qwen3"].settings.rollout.live
    assert bounds["sampled_tokens_a_step"] == bounds["outputs_a_step"] * 16_384
    assert bounds["oldest_token_in_updates"] == 3
    assert bounds["context"] == 32_768 + 65_536
