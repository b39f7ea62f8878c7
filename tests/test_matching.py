"""Baselines at the same mean cost: which setting is chosen, on which problems, and what is told about it."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from rule_engine import RuleEngine
from small import TASK_OF_SUMS, TASK_OF_THREE
from terse import TERSE

import orgthink
import orgthink.engines
from orgthink.cli import main
from orgthink.engines import Engines
from orgthink.evaluation.matching import PROBLEMS, closest, matched
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.util.errors import UserError


def long_or_short(text: str) -> str:
    """Between 10 and 29 words, by the question."""
    return " w" * (9 + zlib.crc32(text.encode()) % 20) + " 7"


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuleEngine:
    """Every model is this one."""
    made = RuleEngine(long_or_short)

    async def opened(spec) -> RuleEngine:
        return made

    monkeypatch.setattr(orgthink.engines, "open_engine", opened)
    monkeypatch.chdir(tmp_path)
    return made


def plan(task: str = TASK_OF_SUMS, **specs: OrganizationSpec) -> Evaluation:
    terse = {label: replace(spec, settings={"prompts": TERSE, **spec.settings}) for label, spec in specs.items()}
    return Evaluation(task, terse, n=3, sampling=Sampling(100), limits=Limits(8, max_tokens=100))


def vote(samples: int) -> OrganizationSpec:
    return OrganizationSpec("majority-vote", {"samples": samples})


ONE = OrganizationSpec("sequential")


async def test_votes_get_the_tokens_of_the_reference():
    found = await matched(plan(ours=vote(6), theirs=vote(2), one=ONE), "tokens", Path("dev"))
    assert (
        found.organizations["theirs"].settings["samples"] == 6 and found.organizations["ours"].settings["samples"] == 6
    )
    assert found.organizations["one"].max_tokens == 100, "no number of tokens makes one thinker as expensive"
    assert found.matched["theirs"].startswith("samples = 6: ") and "(+0%)" in found.matched["theirs"]
    assert found.matched["one"].startswith("max_tokens = 100: ") and "(-83%)" in found.matched["one"]
    assert "warning" not in "".join(found.matched.values())
    assert "ours" not in found.matched and found.n == 3


async def test_a_cap_gives_the_path_of_the_reference():
    short = replace(ONE, max_tokens=14)
    found = await matched(plan(ours=short, theirs=ONE, votes=vote(4)), "path", Path("dev"))
    assert 12 <= (found.organizations["theirs"].max_tokens or 0) <= 16
    assert found.organizations["votes"].settings["samples"] == 4, "more votes take no longer path"
    assert (found.organizations["votes"].max_tokens or 100) < 100


async def test_a_reference_that_is_too_cheap_is_told():
    asked = "so name the most expensive organization first"
    found = await matched(plan(one=ONE, votes=vote(4)), "tokens", Path("dev"))
    assert found.matched["votes"].startswith("samples = 1: ")
    assert found.matched["votes"].endswith(f"on other problems; warning: one vote is no vote, {asked}")
    found = await matched(plan(one=ONE, votes=vote(1)), "tokens", Path("dev1"))
    assert found.matched["votes"].endswith("on other problems"), "its single vote was the user's"
    short = replace(ONE, max_tokens=12)
    found = await matched(plan(ours=short, theirs=ONE), "path", Path("dev2"))
    assert found.matched["theirs"].endswith(f"; warning: most of these episodes are cut off, {asked}")


async def test_the_means_agree_on_the_problems_of_the_evaluation_too():
    given = replace(plan(ours=vote(3), theirs=vote(9)), n=40)
    resolved = resolve(await matched(given, "tokens", Path("dev")))
    async with Engines() as engines:
        episodes = await evaluate(resolved, engines, RunFolder.create(Path("run"), "eval", resolved.plan))
    spent = {
        label: [sampled_tokens(one) for one in episodes if one.organization == label] for label in given.organizations
    }
    assert fmean(spent["ours"]) == fmean(spent["theirs"])
    assert min(spent["theirs"]) < fmean(spent["ours"]) < max(spent["theirs"]), "no episode is cut off at the mean"


async def test_development_problems_are_not_evaluated():
    given = plan(ours=vote(2), theirs=vote(2))
    await matched(given, "tokens", Path("dev"))
    evaluated = {one.problem.id for one in resolve(given).planned.values()}
    runs = sorted(Path("dev").iterdir())
    assert [run.name for run in runs] == ["ours-100", "theirs-2"]
    for run in runs:
        used = {episode.problem.id for episode in RunFolder.open(run).episodes()}
        assert len(used) == PROBLEMS and not used & evaluated


async def test_a_task_without_other_problems_gets_one_line():
    with pytest.raises(UserError, match=r"--match needs 4 other problems: .* has 3 in all, so it needs at least 5$"):
        await matched(plan(TASK_OF_THREE, ours=vote(2), theirs=ONE), "tokens", Path("dev"))
    Path("seven.jsonl").write_text("".join(f'{{"question": "{i} + 1?", "answer": "{i + 1}"}}\n' for i in range(7)))
    with pytest.raises(UserError, match=r"has 7 in all, so give --n 3 or less$"):
        await matched(replace(plan("seven.jsonl", ours=vote(2), theirs=ONE), n=4), "tokens", Path("dev"))
    await matched(plan("seven.jsonl", ours=vote(2), theirs=ONE), "tokens", Path("dev"))


async def paths(given: Evaluation) -> dict[str, set[int]]:
    """The critical paths of the organizations, by label; the run is stored in `run`."""
    resolved, found = resolve(given), dict[str, set[int]]()
    async with Engines() as engines:
        for one in await evaluate(resolved, engines, RunFolder.create(Path("run"), "eval", resolved.plan)):
            found.setdefault(one.organization, set()).add(critical_path(one))
    return found


async def test_an_organization_may_have_a_budget_of_its_own():
    given = plan(short=replace(ONE, max_tokens=5), long=ONE)
    found = await paths(given)
    assert found["short"] == {5} and min(found["long"]) >= 10
    stored = RunFolder.open(Path("run")).settings("eval", Evaluation)
    assert stored.organizations["short"].max_tokens == 5 and stored.organizations["long"].max_tokens is None


async def test_its_budget_holds_for_a_segment_where_joins_renew_it():
    assert await paths(replace(plan(short=replace(ONE, max_tokens=5)), limits=Limits(8, max_tokens=None))) == {
        "short": {5}
    }


async def test_its_budget_holds_for_all_segments_otherwise(engine: RuleEngine):
    def rule(text: str) -> str:
        if text.startswith("worker"):
            return " <RETURN> 1 </RETURN>"
        return " w" * 30 if "</JOIN-1>" in text else " <FORK-1> add </FORK-1> <JOIN-1>"

    engine._rule = rule
    given = plan(short=OrganizationSpec("asyncthink", {"tolerant": True}, max_tokens=12))
    resolved = resolve(given)
    async with Engines() as engines:
        episodes = await evaluate(resolved, engines, RunFolder.create(Path("run"), "eval", resolved.plan))
    assert {len(one.root.joins) for one in episodes} == {1} and {one.root.steps for one in episodes} == {12}


@pytest.mark.parametrize(
    ("cost", "start", "target", "number"),
    [
        (lambda n: 10.0 * n, 8, 30.0, 3),
        (lambda n: 10.0 * n, 1, 640.0, 64),
        (lambda n: 10.0 * n, 4, 2.0, 1),
        (lambda n: min(n, 50.0), 40, 90.0, 90),  # it cannot cost more than 50
        (lambda n: 50.0, 40, 90.0, 40),
        (lambda n: fmean(min(n, length) for length in range(100)), 1000, 30.0, 37),
    ],
)
async def test_the_closest_setting_is_found_in_a_few_trials(cost, start, target, number):
    tried = []

    async def trial(n: int) -> float:
        tried.append(n)
        return cost(n)

    found, mean = await closest(trial, start, target)
    assert len(tried) <= 5 and mean == cost(found)
    assert abs(mean - target) == min(abs(cost(n) - target) for n in tried)
    assert found == number or abs(found / number - 1) < 0.2


def test_the_command_says_what_was_chosen_and_stores_it(capsys: pytest.CaptureFixture[str]):
    organizations = ["--organizations", "ours=majority-vote", "theirs=majority-vote"]
    settings = ["--set", "ours.samples=3", "theirs.samples=8", f"prompts={TERSE}", "--capacity", "8"]
    server = ["--url", "http://127.0.0.1:9/v1", "--model", "m"]
    command = ["eval", "--task", TASK_OF_SUMS, "--n", "3", *organizations, *settings, *server]
    assert main([*command, "--match", "tokens", "--out", "run"]) == 0
    out, err = capsys.readouterr()
    assert "theirs: samples = 3: mean tokens" in err and "(+0%), on other problems" in err
    assert "theirs with samples = 3" in " ".join(out.split())
    config = json.loads(Path("run/config.json").read_text())
    assert config["settings"]["organizations"]["theirs"]["settings"]["samples"] == 3
    assert Path("run-development/theirs-8/episodes.jsonl").is_file()
    assert main(["eval", "--resume", "run"]) == 0


def in_python(**settings: object) -> orgthink.Run:
    votes = {"ours": orgthink.organization("majority-vote", samples=3, prompts=TERSE)}
    votes["theirs"] = orgthink.organization("majority-vote", samples=8, prompts=TERSE)
    given = {"task": TASK_OF_SUMS, "organizations": votes, "model": RuleEngine(long_or_short), "n": 3, **settings}
    return orgthink.evaluate(**given, capacity=8, max_tokens=100, progress=False)


def test_python_matches_an_open_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(orgthink.engines, "open_engine")  # the one that is given is used for the trials too
    run = in_python(match="tokens", out="run")
    stored = RunFolder.open(run.path).settings("eval", Evaluation)
    assert stored.organizations["theirs"].settings["samples"] == 3 and "(+0%)" in stored.matched["theirs"]
    assert {len(one.traces) for one in run.episodes} == {4}
    assert f"theirs with {stored.matched['theirs']}" in run._repr_html_(), "a notebook shows what was chosen"
    assert Path("run-development/theirs-8/episodes.jsonl").is_file()


def test_python_refuses_another_cost_and_a_folder_with_a_run():
    with pytest.raises(UserError, match="unknown cost to match 'seconds': one of path, tokens"):
        in_python(match="seconds", out="run")
    in_python(out="run")
    with pytest.raises(UserError, match="already holds a run"):
        in_python(match="tokens", out="run")
    assert not Path("run-development").exists()
