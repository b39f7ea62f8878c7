"""The shipped model of three roles in organizations that it was not trained for: it votes, and it refines."""

from __future__ import annotations

from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI
from pocket_solver import solve

from orgthink.engines import engine_spec, open_engine
from orgthink.evaluate.evaluation import OrganizationSpec
from orgthink.record.failures import engine_failed


async def test_the_shipped_model_votes_on_problems():
    engine = await open_engine(engine_spec("pocket-roles"))
    organization = OrganizationSpec("majority-vote", {"prompts": "pocket"}).named("majority-vote")
    episodes = await solve(engine, organization, 5, capacity=4, task=ARITHMETIC_MINI, tokens=128, temperature=1.0)
    await engine.aclose()
    assert not any(engine_failed(episode) for episode in episodes) and all(episode.grade for episode in episodes)
    assert sum(episode.grade.all_correct for episode in episodes) >= 2
    for episode in episodes:
        assert [trace.cost for trace in episode.traces[1:]] == [1] * 8
        assert len({trace.text for trace in episode.traces[1:]}) > 1


async def test_the_shipped_model_refines_its_answers():
    engine = await open_engine(engine_spec("pocket-roles"))
    organization = OrganizationSpec("self-refine", {"prompts": "pocket"}).named("self-refine")
    episodes = await solve(engine, organization, 20, task=ARITHMETIC_MINI, tokens=128, temperature=1.0)
    await engine.aclose()
    assert not any(engine_failed(episode) for episode in episodes) and all(episode.grade for episode in episodes)
    assert sum(episode.grade.all_correct for episode in episodes) >= 5
    lengths = {len(episode.traces) - 1 for episode in episodes}
    assert lengths <= {2, 3, 4, 5} and 2 in lengths and max(lengths) > 2, "some answers pass, others are refined"
