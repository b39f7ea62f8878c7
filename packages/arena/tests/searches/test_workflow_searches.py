"""Searches over workflows as jobs: what they find, what they take, and that they go on exactly where they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import searched
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.organizations.evoflow import read_population
from orgthink_arena.organizations.workflow import ALONE as NO_GRAPH
from orgthink_arena.organizations.workflow_json import read_graph
from orgthink_arena.searches import costs
from orgthink_arena.searches.evoflow import EvoFlowSearch, EvoFlowSettings, selected
from orgthink_arena.searches.meta_agent_search import MetaAgentSearch, MetaAgentSettings
from orgthink_arena.searches.proposer import graph_in
from orgthink_arena.searches.search import ArchiveEntry
from search_state import designs, interrupts
from searched import ALONE, CHECKED, DESIGNER, fenced, settings

from orgthink.api import evaluate
from orgthink.cli import main
from orgthink.measure.usage import sampled_tokens
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import Training, go_on, start
from orgthink.util.errors import UserError

Job = MetaAgentSearch | EvoFlowSearch


def meta(**more: Any) -> MetaAgentSearch:
    return MetaAgentSearch(MetaAgentSettings(**settings(**more)))


def evo(**more: Any) -> EvoFlowSearch:
    return EvoFlowSearch(EvoFlowSettings(**settings(**{"size": 3, "children": 2, "niche": 2, **more})))


META, EVO = meta(), evo()
RECIPES = {"meta": f"{Path(__file__).resolve()}:META", "evo": f"{Path(__file__).resolve()}:EVO"}


def run(job: Job, path: Path) -> Path:
    folder = RunFolder.open(path) if path.exists() else start(Training("a-search", job), path)
    return go_on(folder, lambda line: None)


Whole = dict[type[Job], Path]
"""Run folders of searches that nothing interrupted."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    found = {type(job): tmp_path_factory.mktemp("searches") / type(job).__name__ for job in (META, EVO)}
    for job in (META, EVO):
        run(job, found[type(job)])
    return found


def archive(path: Path) -> list[dict[str, Any]]:
    return json.loads((path / "archive.json").read_bytes())["entries"]


def without_seconds(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.parametrize("name", ["meta", "evo"])
def test_a_search_is_a_training_whose_result_an_organization_takes(name: str, tmp_path: Path, capsys):
    path = tmp_path / "run"
    assert main(["train", RECIPES[name], "--out", str(path)]) == 0
    file = path / ("best.json" if name == "meta" else "population.json")
    said = capsys.readouterr()
    assert f"the result is in {file}" in said.out and "step 3/3  best" in said.out
    entries = archive(path)
    if name == "meta":
        best = max(entries, key=lambda one: (one["accuracy"], -one["tokens"]))
        assert read_graph(str(file)) == read_graph(best["graph"])
        assert len(entries) == 2 + 3 and all(one["change"].startswith("mutator: ") for one in entries[2:])
    else:
        assert len(read_population(str(file)).individuals) == 3 and len(entries) == 3 + 3 * 2
    assert all(0 <= one["low"] <= one["accuracy"] <= one["high"] <= 1 and one["low"] < one["high"] for one in entries)
    setting, organization = ("graph", "workflow") if name == "meta" else ("population", "evoflow")
    own = {**META.settings.workflow, setting: str(file)}
    roles = {role: one.engine for role, one in META.settings.models.items()}
    task = META.settings.task
    found = evaluate(task, [organization], n=4, model=searched.spec("even"), roles=roles, settings={organization: own},
                     out=tmp_path / "held-out")  # fmt: skip
    assert len(found.episodes) == 4 and all(episode.grade is not None for episode in found.episodes)


@pytest.mark.parametrize("job", [META, EVO], ids=["meta", "evo"])
def test_equal_seeds_give_equal_searches_and_others_do_not(job: Job, whole: Whole, tmp_path: Path):
    run(job, tmp_path / "again")
    assert archive(tmp_path / "again") == archive(whole[type(job)])
    other = meta(seed=1) if isinstance(job, MetaAgentSearch) else evo(seed=1)
    run(other, tmp_path / "other")
    assert archive(tmp_path / "other") != archive(tmp_path / "again")


@pytest.mark.parametrize("job", [META, EVO], ids=["meta", "evo"])
@pytest.mark.parametrize("requests", [1, 17])
def test_ctrl_c_keeps_what_is_complete_and_resume_gives_the_same_archive(
    job: Job, requests: int, whole: Whole, tmp_path: Path
):
    interrupts["left"] = requests
    with pytest.raises(KeyboardInterrupt):
        run(job, tmp_path / "cut")
    assert not (tmp_path / "cut" / "best.json").exists() and not (tmp_path / "cut" / "population.json").exists()
    run(job, tmp_path / "cut")
    same(tmp_path / "cut", whole[type(job)])


@pytest.mark.parametrize("job", [META, EVO], ids=["meta", "evo"])
def test_a_killed_search_goes_on_from_its_last_episode(job: Job, whole: Whole, tmp_path: Path):
    """A kill may come between any two writes: the last generation has no entry yet, and half of its episodes."""
    cut = shutil.copytree(whole[type(job)], tmp_path / "cut")
    (cut / ("best.json" if job is META else "population.json")).unlink()
    entries = [one for one in archive(cut) if one["generation"] < 3]
    (cut / "archive.json").write_text(json.dumps({"entries": entries}))
    lines = (cut / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "metrics.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:10])
    episodes = cut / "evaluations" / "3" / "episodes.jsonl"
    stored = episodes.read_bytes().splitlines(keepends=True)
    episodes.write_bytes(b"".join(stored[:2]) + stored[2][:50])
    run(job, cut)
    same(cut, whole[type(job)])


def same(cut: Path, whole: Path) -> None:
    """Both searches came to the same, and took the same."""
    assert archive(cut) == archive(whole)
    lines = [without_seconds(list(RunFolder.open(path).metrics())) for path in (cut, whole)]
    assert lines[0] == lines[1]
    for name in ("best.json", "population.json"):
        assert (cut / name).exists() == (whole / name).exists()
        assert not (cut / name).exists() or (cut / name).read_bytes() == (whole / name).read_bytes()
    took = [costs.read(path) for path in (cut, whole)]
    assert (took[0].episodes, took[0].sampled_tokens) == (took[1].episodes, took[1].sampled_tokens)


def test_engines_that_fail_are_one_line(tmp_path: Path):
    models = {**META.settings.models, "even": searched.RoleSpec(searched.spec("broken"), searched.Sampling(20))}
    alone = {"nodes": {"one": {"kind": "agent", "template": "sequential", "model": "even"}}, "output": "one"}
    with pytest.raises(UserError, match=r"of 4 episodes failed \(the server is gone\)"):
        run(meta(models=models, seeds=(read_graph(alone),)), tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"seeds": ()}, "a search needs a workflow to begin with"),
        ({"seeds": (read_graph({"nodes": {"a": {"kind": "agent", "template": "nope"}}, "output": "a"}),)}, "'nope'"),
        ({"task": "nonsense"}, "unknown task"),
    ],
)
def test_bad_settings_are_one_line(more: dict[str, Any], why: str, tmp_path: Path):
    with pytest.raises(UserError, match=why):
        run(meta(**more), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# A model designs.

BETTER = {
    "nodes": {
        "even": {"kind": "agent", "prompt": "say {question}", "model": "even"},
        "small": {"kind": "agent", "prompt": "say {question}", "model": "small"},
        "end": {"kind": "vote", "of": ["even", "small"]},
    },
    "output": "end",
}


def designing(*replies: Any) -> list[str]:
    """The designer says these; the prompts that it got."""
    seen: list[str] = []

    def saying(reply: Any) -> Any:
        def say(text: str) -> str:
            seen.append(text)
            return reply if isinstance(reply, str) else fenced(reply)

        return say

    designs[:] = [saying(reply) for reply in replies]
    return seen


def test_a_model_proposes_reflects_twice_and_repairs(tmp_path: Path):
    seen = designing(ALONE, CHECKED, "import os; os.system('touch hacked')", {"nodes": {}, "output": "x"}, BETTER)
    run(meta(steps=1, proposer=DESIGNER), tmp_path / "run")
    assert designs == [] and "accuracy" in seen[0] and "even" in seen[0] and "sum " in seen[0]
    assert "no JSON object with nodes" in seen[3] and "its output 'x' is none of its nodes" in seen[4]
    made = archive(tmp_path / "run")[-1]
    assert read_graph(made["graph"]) == read_graph(BETTER)
    assert made["change"].startswith("proposer: ") and sorted(made["parents"]) == ["g0-1", "g0-2"]
    (design,) = RunFolder.open(tmp_path / "run").episodes()
    assert costs.read(tmp_path / "run").sampled_tokens > sampled_tokens(design) > 0
    assert not Path("hacked").exists()


def test_a_design_that_is_never_valid_is_left_out_and_paid_for(tmp_path: Path):
    designing(*["no graph"] * 5)
    run(meta(steps=1, proposer=DESIGNER, repairs=2), tmp_path / "run")
    assert len(archive(tmp_path / "run")) == 2
    (design,) = RunFolder.open(tmp_path / "run").episodes()
    assert design.answer is None and design.root.turns == 5


def test_a_resumed_search_takes_the_designs_that_it_has(tmp_path: Path):
    designing(*[BETTER] * 3, *[CHECKED] * 3)
    run(meta(steps=2, proposer=DESIGNER), tmp_path / "whole")
    designing(*[BETTER] * 3)
    interrupts["left"] = 15  # in the evaluation of the first design
    with pytest.raises(KeyboardInterrupt):
        run(meta(steps=2, proposer=DESIGNER), tmp_path / "cut")
    assert len(list(RunFolder.open(tmp_path / "cut").episodes())) == 1
    designing(*[CHECKED] * 3)
    run(meta(steps=2, proposer=DESIGNER), tmp_path / "cut")
    same(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize("reply", ["", "{", "{{{{", '{"a": 1}', "```json\n{]\n```", "[" * 10_000, '{"nodes":' * 3000])
def test_a_reply_without_a_graph(reply: str):
    with pytest.raises(UserError, match="no JSON object with nodes"):
        graph_in(reply)


def test_the_last_graph_of_a_reply_counts():
    assert graph_in(f"<think>{fenced(ALONE)}</think> {fenced(CHECKED)} or rather {fenced(BETTER)} {{}}") == BETTER


# Niches.

PROBLEMS = ("a", "b")
ENTRIES = st.builds(
    lambda accuracy, tokens, solved: ArchiveEntry(
        "x", NO_GRAPH, accuracy / 4, tokens, {}, dict(zip(PROBLEMS, solved, strict=True))
    ),
    st.integers(0, 4),
    st.integers(1, 3),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)


@given(st.lists(ENTRIES, min_size=1, max_size=8), ENTRIES, st.integers(1, 9))
def test_selection_keeps_the_size_and_what_nothing_beats(
    population: list[ArchiveEntry], child: ArchiveEntry, niche: int
):
    after = selected(population, child, niche)
    assert len(after) == len(population)
    assert all(any(one is other for other in (*population, child)) for one in after)
    assert max(one.accuracy for one in after) >= max(one.accuracy for one in population)
    (gone,) = [one for one in (*population, child) if not any(one is other for other in after)]
    if niche >= len(population):  # the niche is everybody
        beaten = [o for o in after if o.accuracy >= gone.accuracy and o.tokens <= gone.tokens]
        assert beaten or gone.accuracy == min(one.accuracy for one in (*population, child))


def test_a_child_takes_the_place_of_one_like_it():
    def one(name: str, accuracy: float, tokens: float, **solved: float) -> ArchiveEntry:
        return ArchiveEntry(name, NO_GRAPH, accuracy, tokens, {}, solved)

    sums, others = one("sums", 0.5, 10, a=1.0, b=0.0), one("others", 0.25, 99, a=0.0, b=0.5)
    better = one("better", 0.5, 5, a=1.0, b=0.0)
    assert [o.id for o in selected([sums, others], better, 1)] == ["others", "better"], "the niche is that of `sums`"
    worse = one("worse", 0.4, 20, a=0.9, b=0.0)
    assert [o.id for o in selected([sums, others], worse, 1)] == ["sums", "others"]
