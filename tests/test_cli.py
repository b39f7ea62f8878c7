"""The command line: what it prints, how it stops, and one clear line for whatever the user can put right."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from models import tiny_model
from registered import register
from rule_engine import Rule, RuleEngine, countdown, failing
from small import ONE, TASK
from small import SMALL as SMALL_TASK
from small_recipes import RECIPE
from terse import STYLE, TERSE

import orgthink.api
import orgthink.cli.run
import orgthink.engines
from orgthink import cli, engines
from orgthink.cli import main
from orgthink.cli.eval import Eval
from orgthink.engines import EngineSpec
from orgthink.engines.engine import EngineError
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.asyncthink import DIALECT
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.prompts import STYLES
from orgthink.record.episode import Sampling
from orgthink.record.episode_json import load
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.tasks import TASKS
from orgthink.tools import MORE_TOOLS
from orgthink.util.errors import UserError

HERE = Path(__file__).parent
PRICES = HERE / "data" / "prices"
SMALL = ["eval", "--n", "3", "--max-tokens", "64"]
MODELS = ("toy", "toy-async", "toy-roles", "toy-mars", "toy-tools")
MANAGER = {
    "prompts": "terse",
    "organizations": {
        "paramanager": {
            "pool": {"mars": "arithmetic", "tools": "code"},
            "rounds": 3,
            "calls": 2,
            "suite": {"corpus": "prices"},
        }
    },
    "roles": {
        "mars": {"model": "toy-mars", "max_tokens": 100},
        "tools": {"model": "toy-tools", "max_tokens": 90},
        "worker": {"model": "toy-async", "max_tokens": 80},
    },
}
"""What a manager is made for; none of its own organizations has a worker."""
SHIPPED = {
    "prompts": "terse",
    "organizations": {name: {"suite": {"corpus": "prices"}} for name in ("paramanager", "tool-use")},
}
"""What every model of these tests is made for that a package offers."""


def made_for(folder: Path, said: object) -> Path:
    """A model folder, all of which is its orgthink.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orgthink.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return folder


def offer(patch: pytest.MonkeyPatch) -> None:
    register(patch, STYLES, terse=STYLE)
    register(patch, TASKS, **{task.name: task for task in (SMALL_TASK, ONE)})
    register(patch, MORE_TOOLS, prices=PRICES)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], RuleEngine]:
    """As if a package offered models, of which `toy` is the default, tasks and a style. Their engine follows a rule;
    give it another at will. The terminal is wide."""
    monkeypatch.setenv("COLUMNS", "400")
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    folders = {name: made_for(tmp_path / "models" / name, SHIPPED) for name in MODELS}
    register(monkeypatch, engines.MODELS, **folders)
    defaults = {"model": "toy", "task": "countdown-small"}
    for module in (engines, cli.eval, cli.run):
        monkeypatch.setattr(module, "required", lambda value, kind, option: value or defaults[kind])

    def use(rule: Rule) -> RuleEngine:
        engine = RuleEngine(rule)

        async def open_engine(spec: EngineSpec) -> RuleEngine:
            return engine

        monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
        return engine

    use(countdown)
    return use


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    organizations = {name: OrganizationSpec(name, {"prompts": "terse"}) for name in Eval().organizations}
    plan = Evaluation(
        "countdown-small",
        organizations,
        n=3,
        engine=EngineSpec("toy"),
        sampling=Sampling(64, seed=0),
        limits=Limits(2, max_tokens=64),
    )
    with pytest.MonkeyPatch.context() as patch:
        offer(patch)
        given = orgthink.engines.Engines({spec: RuleEngine(countdown) for spec in plan.engines})
        asyncio.run(evaluate(resolve(plan), given, RunFolder.create(path, "eval", plan)))
    return path


@pytest.fixture
def run(finished: Path, toy: Callable[[Rule], RuleEngine]) -> Path:
    """A finished run folder, the same that `main(SMALL)` makes."""
    return Path(shutil.copytree(finished, "run"))


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_eval_prints_a_table_with_its_conditions(toy, capsys: pytest.CaptureFixture[str]):
    engine = toy(countdown)
    assert main([*SMALL, "--organizations", "sequential", "asyncthink", "--out", "run", "--seed", "4"]) == 0
    assert engine.closed
    out, err = capsys.readouterr()
    header, _, *rows, _, conditions = out.splitlines()
    assert header.split()[:5] == ["organization", "n", "all", "correct", "%"]
    assert [row.split()[:2] for row in rows] == [["sequential", "3"], ["asyncthink", "3"]]
    assert all("[" in row for row in rows)
    for words in (
        "3 test problems of countdown-small",
        "seed 4",
        "model toy",
        "temperature 1",
        "64 tokens an agent",
        "capacity 2",
    ):
        assert words in conditions
    assert err.splitlines()[-2].startswith("6/6")
    summary = json.loads(Path("run/summary.json").read_text())
    assert list(summary) == ["sequential", "asyncthink"]
    for row in summary.values():
        assert row["n"] == 3
        assert len(row["at_least"]) == 4
        for name in (
            "all_correct",
            "critical_path_steps",
            "seconds",
            "sampled_tokens",
            "concurrency_pool",
            "format_error_rate",
            "truncated_rate",
        ):
            assert {"mean", "low", "high"} <= row[name].keys()


def test_settings_go_to_the_organizations_by_label(toy):
    organizations = ["sequential", "asyncthink", "kind=asyncthink"]
    settings = ["overflow=queue", "kind.tolerant=true", 'sequential.dialect={"join": "<WAIT{}>"}']
    argv = [*SMALL, "--organizations", *organizations, "--set", *settings, "--out", "run"]
    assert main(argv) == 0
    assert list(json.loads(Path("run/summary.json").read_text())) == ["sequential", "asyncthink", "kind"]
    plan = RunFolder.open(Path("run")).settings("eval", Evaluation)
    sequential, plain, kind = (spec.named(label) for label, spec in plan.organizations.items())
    assert (plain.name, plain.overflow, plain.tolerant) == ("asyncthink", "queue", False)
    assert (kind.name, kind.overflow, kind.tolerant) == ("kind", "queue", True)
    assert (sequential.dialect.join, plain.dialect.join) == ("<WAIT{}>", DIALECT.join)
    assert {plain.prompts, kind.prompts, sequential.prompts} == {"terse"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"suite": {"corpu": "x"}}, "suite has no 'corpu': did you mean corpus?"),
        ({"faults": {"rat": 0.1}}, "faults has no 'rat': did you mean rate?"),
        ({"suite": {"topc": 2}}, "suite has no 'topc': did you mean topk?"),
    ],
)
def test_a_typo_inside_a_setting_is_refused_wherever_it_is_set(settings: dict, says: str, toy):
    with pytest.raises(UserError, match=re.escape(says)):
        orgthink.api.evaluate("countdown-small", ["paramanager"], settings={"paramanager": settings}, n=1)
    model = str(made_for(Path("mine"), SHIPPED | {"organizations": {"paramanager": settings}}))
    with pytest.raises(UserError, match=re.escape(says)):
        Eval(model=model, organizations=("paramanager",)).plan()
    with pytest.raises(UserError, match="has no 'capcity': did you mean capacity"):
        Eval(model=str(made_for(Path("mine"), SHIPPED | {"capcity": 3}))).plan()


def test_roles_have_models_of_their_own(toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "small").mkdir()
    opened: dict[str, RuleEngine] = {}

    async def open_engine(spec: EngineSpec) -> RuleEngine:
        assert spec.model not in opened, "an engine is opened once"
        return opened.setdefault(spec.model, RuleEngine(countdown, model=Path(spec.model).name))

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    roles = ["--roles", "worker=small", "organizer=toy"]
    assert main([*SMALL, "--organizations", "asyncthink", *roles, "--out", "run"]) == 0
    models = {(t.role, t.model) for e in RunFolder.open(Path("run")).episodes() for t in e.traces}
    assert models == {("organizer", "toy"), ("worker", "small")}
    assert len(opened) == 2 and all(engine.closed for engine in opened.values())
    opened.clear()
    assert main(["run", *roles]) == 0
    assert [engine.requests for engine in opened.values()] == [2, 1]


def manage(text: str) -> str:
    return "so <ANSWER> 7 </ANSWER>"


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        (["--organizations", "paramanager"], ["paramanager: a round may call 4 agents, and --capacity 2 lets 1 of"]),
        (["--organizations", "paramanager", "--capacity", "4"], ["--capacity 4 lets 3 of", "--capacity 5 lets all"]),
        (["--organizations", "paramanager", "--capacity", "5"], []),
        (["--organizations", "one=paramanager", "--set", "calls=1"], []),
        (["--organizations", "tool-use", "sequential", "parallel"], []),
        (["--organizations", "tool-use", "more=paramanager", "--capacity", "1"], ["more: ", "--capacity 1 lets 1 of"]),
    ],
)  # fmt: skip
def test_a_pool_in_which_the_calls_of_a_round_wait_for_each_other_gets_a_warning(
    toy, capsys: pytest.CaptureFixture[str], argv: list[str], lines: list[str]
):
    toy(manage)
    assert main(["eval", "--n", "1", *argv, "--out", "run"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "--capacity" in line]
    assert len(told) == bool(lines) and all(line in told[0] for line in lines)


def test_run_as_json_is_one_object_with_the_episode(toy, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    episode = load(json.dumps(found["episode"]).encode())
    assert found["answer"] == episode.answer and found["critical_path_steps"] == critical_path(episode) > 0
    assert found["sampled_tokens"] == sampled_tokens(episode) and found["all_correct"] in (True, False)


@pytest.mark.parametrize("old", [None, "{}\n"], ids=["missing", "stale"])
def test_a_complete_run_that_was_killed_before_its_summary_gets_it(run: Path, old: str | None):
    """Its last episode was stored, and its process killed before anything else."""
    file = run / "summary.json"
    summary = file.read_bytes()
    file.unlink() if old is None else file.write_text(old)
    assert main(["eval", "--resume", str(run)]) == 0
    assert file.read_bytes() == summary
    written = file.stat().st_mtime_ns
    assert main(["eval", "--resume", str(run)]) == 0
    assert file.stat().st_mtime_ns == written, "what it says already is not written again"


def test_a_run_with_failures_says_so_and_how_to_go_on(toy, capsys: pytest.CaptureFixture[str]):
    toy(failing)
    assert main([*SMALL, "--out", "run"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "9 of 9 episodes failed (the server is gone)" in last
    assert "orgthink eval --resume run" in last
    toy(countdown)
    assert main(["eval", "--resume", "run"]) == 0


def test_ctrl_c_once_finishes_what_is_under_way(toy, capsys: pytest.CaptureFixture[str]):
    engine = toy(_at_request(3, countdown))
    options = ["--organizations", "sequential", "--n", "30", "--concurrency", "5"]
    assert main(["eval", *options, "--out", "run"]) == 130
    stop, last = _ends(capsys)
    assert "Ctrl-C again stops now" in stop
    assert "orgthink eval --resume run" in last
    done = list(RunFolder.open(Path("run")).episodes())
    assert 3 <= engine.requests == len(done) < 30
    assert json.loads(Path("run/summary.json").read_text())["sequential"]["n"] == len(done)
    toy(countdown)
    assert main(["eval", "--resume", "run"]) == 0
    assert len(list(RunFolder.open(Path("run")).episodes())) == 30


def test_ctrl_c_is_answered_while_the_loop_is_busy(toy, capsys: pytest.CaptureFixture[str]):
    """The answer does not wait until whatever blocks the event loop, such as a grader, is through."""
    errors: list[str] = []

    def rule(text: str) -> str:
        if not errors:
            signal.raise_signal(signal.SIGINT)
            errors.append(capsys.readouterr().err)
        return countdown(text)

    toy(rule)
    assert main(["eval", "--organizations", "sequential", "--n", "3", "--concurrency", "1", "--out", "run"]) == 130
    assert errors == ["orgthink: finishing running work; Ctrl-C again stops now\n"]


def test_ctrl_c_ends_the_opening_of_a_model_at_once(toy, monkeypatch, capsys: pytest.CaptureFixture[str]):
    async def open_engine(spec: EngineSpec) -> RuleEngine:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it was opened to the end")

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    assert main([*SMALL, "--out", "run"]) == 130
    assert complaint(capsys) == "orgthink: stopped"
    assert not Path("run").exists()


def test_ctrl_c_twice_leaves_a_summary_of_what_was_done(toy):
    requests = count(1)

    def rule(text: str) -> str:
        if next(requests) <= 2:
            return countdown(text)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return " word" * 20_000

    toy(rule)
    options = ["--organizations", "sequential", "--max-tokens", "20000", "--n", "30", "--concurrency", "1"]
    assert main(["eval", *options, "--out", "run"]) == 130
    assert json.loads(Path("run/summary.json").read_text())["sequential"]["n"] == 2


def test_a_third_ctrl_c_stops_a_loop_that_is_blocked(toy, capsys: pytest.CaptureFixture[str]):
    def blocking(text: str) -> str:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    toy(blocking)
    assert main(["eval", "--organizations", "sequential", "--n", "3", "--concurrency", "1", "--out", "run"]) == 130
    err = capsys.readouterr().err
    assert "go on with: orgthink eval --resume run" in err and err.endswith("orgthink: stopped\n")


@pytest.mark.parametrize(("over", "torchrun"), [(True, False), (False, False), (True, True)])
def test_the_command_ends_also_where_a_thread_does_not(monkeypatch, over: bool, torchrun: bool):
    monkeypatch.setattr(sys, "argv", ["orgthink", "--version"])
    monkeypatch.setattr(cli, "have_ended", lambda: over)
    if torchrun:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with pytest.raises(SystemExit) as end:
        cli.program()
    assert end.value.code == 0 and ended == ([] if over and not torchrun else [0])


def test_run_leaves_an_episode_to_view_and_measure(toy, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--seed", "2", "--out", "one"]) == 0
    (episode,) = RunFolder.open(Path("one")).episodes()
    assert episode.answer and episode.answer.splitlines()[0] in capsys.readouterr().out
    assert main(["view", "one"]) == main(["measure", "one"]) == 0
    assert Path("one/view.html").exists() and "critical path" in capsys.readouterr().out
    assert main(["run", "--seed", "2", "--out", "one"]) == 2
    assert "one already holds a run" in complaint(capsys)
    assert main(["eval", "--resume", "one"]) == 2
    assert complaint(capsys) == "orgthink: one holds a run of kind run, not eval"


def test_run_tells_the_story_of_forks_and_joins(toy, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--seed", "2"]) == 0
    out = capsys.readouterr().out
    story = [line.split(maxsplit=2)[1:] for line in out.splitlines() if "organizer" in line]
    assert [event for event in story if event[1] in ("forks 1", "joins 1") or event == ["organizer/1", "starts"]] == [
        ["organizer", "forks 1"],
        ["organizer/1", "starts"],
        ["organizer", "joins 1"],
    ]
    head = next(line for line in out.splitlines() if line.startswith("steps  agent"))
    first = next(line for line in out.splitlines() if "organizer" in line)
    assert head.index("agent") == first.index("organizer") and "own decoding steps" in head
    assert "of 4 right, " in out
    assert "steps on the critical path" in out
    assert "answer:" in out


@pytest.mark.parametrize("organization", ["sequential", "parallel", "asyncthink", "verifier-corrector"])
def test_run_takes_a_problem_in_the_users_words(toy, capsys: pytest.CaptureFixture[str], organization: str):
    assert main(["run", "countdown 3 4 5 = 12", "--organization", organization]) == 0
    out = capsys.readouterr().out
    assert "answer:\n3 + 4 + 5" in out
    assert " right, " not in out


def test_a_question_to_a_model_that_knows_only_its_tasks_gets_a_note(toy, capsys: pytest.CaptureFixture[str]):
    model = str(made_for(Path("mini"), SHIPPED | {"tasks": ["countdown-small"]}))
    assert main(["run", "countdown 3 4 5 = 12", "--model", model]) == 0
    line = complaint(capsys)
    assert "mini knows only its own tasks (countdown-small)" in line and "--url" in line and "--task count" in line
    assert main(["run", "--task", "countdown-small", "--model", model]) == 0
    assert not capsys.readouterr().err


def test_a_role_none_of_whose_replies_returns_anything_is_named(toy, capsys: pytest.CaptureFixture[str]):
    """As where a model has never learned to work for others: the organizer answers all the same."""
    asked = ["eval", "--task", "countdown-small", "--n", "2", "--organizations", "asyncthink"]
    toy(lambda context: " nothing" if context.startswith("worker") else countdown(context))
    assert main(asked) == 0
    assert "worker: none of 2 replies has what this role returns" in capsys.readouterr().err
    silent = iter([True, False])
    for number, rule in enumerate(
        (countdown, lambda context: " nothing" if context.startswith("worker") and next(silent) else countdown(context))
    ):
        toy(rule)
        assert main([*asked, "--out", f"runs/{number}"]) == 0
        assert "none of" not in capsys.readouterr().err
    toy(lambda context: " <think> nothing")
    assert main(["run", "--task", "countdown-small", "--organization", "majority-vote", "--set", "samples=3"]) == 1
    assert "none of 3 replies" in capsys.readouterr().err


def test_what_fails_on_the_way_is_one_line(toy, monkeypatch, capsys: pytest.CaptureFixture[str]):
    async def open_engine(spec: EngineSpec) -> RuleEngine:
        raise EngineError("the server answered 500")

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    assert main(["run"]) == 1
    assert complaint(capsys) == "orgthink: the server answered 500"


def test_organizations_may_have_models_of_their_own(
    toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def open_engine(spec: EngineSpec) -> RuleEngine:
        engine = RuleEngine(countdown)
        engine.model = str(spec.model)
        return engine

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    two = ["--organizations", "before=asyncthink", "after=asyncthink"]
    assert main(["eval", "--n", "2", *two, "--models", "after=toy-async", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "after's model toy-async" in out and "; model toy;" in out
    both = ["--models", "before=toy-async", "after=toy-async"]
    assert main(["eval", "--n", "2", *two, *both, "--out", "both"]) == 0
    assert "; model toy;" not in capsys.readouterr().out, "nobody asks the default one"
    models = {episode.organization: episode.root.model for episode in RunFolder.open(Path("run")).episodes()}
    assert models == {"before": "toy", "after": "toy-async"}
    assert main(["eval", *two, "--models", "afer=toy-async", "--out", "other"]) == 2
    assert "did you mean after?" in complaint(capsys)


def test_a_role_with_a_sampling_of_its_own_keeps_the_model_of_its_organization(toy):
    one = Eval(organizations=("after=asyncthink",), models=("after=toy-async",))
    plan = replace(one, sampling=("worker.temperature=0.5",)).plan()
    assert (plan.roles["worker"].engine.model, plan.roles["worker"].sampling.temperature) == ("toy-async", 0.5)
    two = replace(one, organizations=("before=asyncthink", *one.organizations))
    with pytest.raises(UserError, match=r"--sampling worker: .* different models .toy, toy-async.: "):
        replace(two, sampling=("worker.temperature=0.5",)).plan()
    apart = replace(two, organizations=("before=sequential", "after=asyncthink"))
    assert replace(apart, sampling=("worker.top_p=0.5",)).plan().roles["worker"].engine.model == "toy-async"
    assert replace(two, roles=("worker=toy",), sampling=("worker.top_p=0.5",)).plan().roles.keys() == {"worker"}


def backed(plan: Evaluation) -> dict[str, tuple[str | None, int]]:
    """Model and budget of the roles."""
    return {role: (spec.engine.model, spec.sampling.max_tokens) for role, spec in plan.roles.items()}


def test_a_model_is_used_as_it_was_made_for(toy):
    model = str(made_for(Path("manager"), MANAGER))
    plan = Eval(
        model=model, organizations=("paramanager", "sequential", "few=paramanager"), set=("few.rounds=1",)
    ).plan()
    whole, alone, few = (how.named(label) for label, how in plan.organizations.items())
    assert (whole.prompts, dict(whole.pool), whole.rounds, whole.calls) == (
        "terse", {"mars": "arithmetic", "tools": "code"}, 3, 2
    )  # fmt: skip
    assert (few.rounds, few.calls, alone.prompts) == (1, 2, "terse")
    assert backed(plan) == {"mars": ("toy-mars", 100), "tools": ("toy-tools", 90)}
    assert backed(Eval(model=model, organizations=("sequential",)).plan()) == {}, "nobody here has such a role"
    assert backed(Eval(model=model, organizations=("asyncthink",)).plan()) == {"worker": ("toy-async", 80)}


def test_a_model_has_the_capacity_and_the_tokens_that_it_was_trained_with(toy):
    """Those of one model hold for the whole table; two that differ are asked about; options win."""
    four = str(made_for(Path("four"), SHIPPED | {"capacity": 4, "max_tokens": 40, "renew": True}))
    three = str(made_for(Path("three"), SHIPPED | {"capacity": 3}))

    def limits(**options) -> tuple[int, int, int | None]:
        plan = Eval(organizations=("a=asyncthink", "b=asyncthink"), **options).plan()
        return plan.limits.capacity, plan.sampling.max_tokens, plan.limits.max_tokens

    assert limits() == (2, 512, 512)
    assert limits(model=four) == limits(models=(f"b={four}",)) == (4, 40, None)
    assert limits(model=four, models=(f"b={three}",), capacity=5) == (5, 40, None)
    assert limits(model=four, capacity=2, max_tokens=50) == (2, 50, 50)
    with pytest.raises(UserError, match=r"four with 4, .*three with 3.*: set --capacity"):
        limits(model=four, models=(f"b={three}",))


def test_options_win_over_what_a_model_was_made_for(toy):
    model = str(made_for(Path("manager"), MANAGER))
    options = {
        "set": ('pool={"mars": "all"}', "rounds=7"),
        "roles": ("mars=toy-roles",),
        "sampling": ("mars.max_tokens=5", "mars.temperature=0.5"),
    }
    plan = Eval(model=model, organizations=("paramanager",), prompts="paper", **options).plan()
    organization = plan.organizations["paramanager"].named("mine")
    assert (organization.prompts, dict(organization.pool), organization.rounds) == ("paper", {"mars": "all"}, 7)
    assert backed(plan) == {"mars": ("toy-roles", 5)} and plan.roles["mars"].sampling.temperature == 0.5
    plan = Eval(model=model, organizations=("paramanager",), roles=("mars=toy-roles",)).plan()
    assert backed(plan)["mars"] == ("toy-roles", 100), "only the model is another"
    plan = Eval(model=model, organizations=("paramanager",), sampling=("mars.max_tokens=5",)).plan()
    assert backed(plan)["mars"] == ("toy-mars", 5)


def test_each_organization_is_set_as_its_own_model_was_made_for(toy):
    first, second = (str(made_for(Path(name), MANAGER)) for name in ("first", "second"))
    made_for(Path("second"), MANAGER | {"organizations": {"paramanager": {"pool": {"mars": "b"}, "rounds": 4}}})
    options = {
        "organizations": ("a=paramanager", "b=paramanager", "c=paramanager"),
        "models": (f"b={second}", "c=toy"),
    }
    plan = Eval(model=first, **options).plan()
    assert [how.named(label).rounds for label, how in plan.organizations.items()] == [3, 4, 12]
    assert backed(plan) == {"mars": ("toy-mars", 100), "tools": ("toy-tools", 90)}
    made_for(Path("second"), MANAGER | {"roles": {"mars": {"model": "toy-roles", "max_tokens": 100}}})
    with pytest.raises(UserError, match="different models of mars: set --roles mars=MODEL"):
        Eval(model=first, **options).plan()
    assert backed(Eval(model=first, roles=("mars=toy-async",), **options).plan())["mars"] == ("toy-async", 100)


@pytest.mark.parametrize(
    ("said", "complains"),
    [
        ("{", "orgthink.json cannot be read: "),
        ("[" * 100_000, "orgthink.json cannot be read: "),
        ("[]", "orgthink.json holds no JSON object"),
        ({"prompts": "papr"}, "unknown prompt style 'papr': did you mean paper?"),
        ({"prompts": 5}, "prompts: "),
        ({"organizations": {"paramanger": {}}}, "unknown organization 'paramanger': did you mean paramanager?"),
        ({"organizations": {"paramanager": {"ruonds": 3}}}, "paramanager has no 'ruonds': did you mean rounds?"),
        ({"organizations": {"paramanager": {"rounds": "many"}}}, "settings of paramanager: rounds: "),
        ({"organizations": {"paramanager": {"rounds": 0}}}, "rounds is 0"),
        ({"organizations": []}, "organizations: "),
        ({"capacity": 0}, "capacity is 0"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"roles": {"worker": "toy"}}, "roles.worker: "),
        ({"roles": {"worker": {"model": "toy"}}}, "roles.worker.max_tokens: "),
        ({"roles": {"worker": {"model": "tooy", "max_tokens": 5}}}, "unknown model 'tooy': did you mean toy?"),
        ({"roles": {"worker": {"model": "toy", "max_tokens": 0}}}, "max_tokens is 0"),
    ],
)  # fmt: skip
def test_a_broken_orgthink_json_gets_one_clear_line(
    said: object, complains: str, toy, capsys: pytest.CaptureFixture[str]
):
    model = str(made_for(Path("mine"), said))
    for argv in (["run"], ["eval", "--organizations", "asyncthink", "--out", "run"]):
        assert main([*argv, "--model", model]) == 2
        assert complains in (line := complaint(capsys)) and ("mine" in line or "tooy" in line or "max_tokens" in line)
    assert not Path("run").exists()


def test_view_has_the_episodes_in_the_order_of_the_plan(run: Path):
    lines = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    pages = []
    for order in (lines, lines[::-1]):
        (run / "episodes.jsonl").write_bytes(b"".join(order))
        assert main(["view", str(run), "--out", "page.html"]) == 0
        pages.append(Path("page.html").read_text())
    assert pages[0] == pages[1]


def test_view_writes_a_page(run: Path):
    assert main(["view", str(run), "--out", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert page.lstrip().startswith("<!")
    assert "3 test problems of countdown-small" in page
    assert "64 tokens an agent" in page


def _foreign(run: Path) -> None:
    (run / "config.json").write_text('{"model_type": "qwen3"}')


def _unreadable(run: Path) -> None:
    (run / "config.json").write_text("{")


def _newer(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"schema_version": 7}))


def _corrupt(run: Path) -> None:
    lines = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    (run / "episodes.jsonl").write_text("".join([lines[0], lines[1][:50] + "\n", *lines[2:]]))


def _train(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"kind": "train", "settings": {"steps": 3}}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("eval --organizations sequential mine.py", "mine.py is a file: name the class in it, such as mine.py:PickOne"),
        ("eval --organizations sequential=", "organization sequential=: write NAME or LABEL=NAME"),
        ("eval --organizations verifier-corrector --sampling verifier.temprature=1", "did you mean temperature?"),
        ("eval --organizations sequential asynkthink", "unknown organization 'asynkthink': did you mean asyncthink?"),
        ("eval --task countdwn", "unknown task 'countdwn': did you mean countdown?"),
        ("eval --model tooy", "unknown model 'tooy': did you mean toy?"),
        ("run --model vllm:nowhere", "unknown model 'nowhere'"),
        ("eval --capacity 0", "capacity is 0"),
        ("eval --max-tokens -5", "max_tokens is -5"),
        ("eval --depth -1", "depth is -1"),
        ("eval --deadline -1", "episode_seconds is -1"),
        ("run --deadline 0", "--deadline 0: an episode needs some seconds"),
        ("run --capacity 1", "asyncthink forks: --capacity 1 is too small, set 2 or more"),
        ("eval --n 0", "n is 0"),
        ("eval --temperature 0", "parallel: 2 agents at temperature 0 would all write the same"),
        ("eval --set overflw=queue", "unknown setting 'overflw': did you mean overflow?"),
        ("eval --set name=mine", "unknown setting 'name'"),
        ("eval --set asynkthink.overflow=queue", "unknown organization 'asynkthink': did you mean asyncthink?"),
        ("eval --set overflow=wait", "settings of asyncthink: overflow: "),
        ("eval --set dialect.jion=x", "--set dialect.jion=x: dialect has no 'jion': did you mean join?"),
        ('eval --set dialect={"join"', '--set dialect={"join": that is not JSON; write it as {"rate": 0.1}'),
        (
            'eval --organizations paramanager --set faults={"rat":0.1}',
            "faults has no 'rat': did you mean rate?",
        ),
        ("eval --set tolerant", "--set tolerant: write [LABEL.]SETTING=VALUE"),
        ("eval --roles worker", "--roles worker: write ROLE=MODEL"),
        ("eval --roles judge=toy", "has a role 'judge': their roles are thinker, organizer, worker"),
        ("run --sampling wroker.max_tokens=5", "has a role 'wroker': their roles are organizer, worker"),
        ("eval --sampling worker.max_tokens", "--sampling worker.max_tokens: write ROLE.SETTING=VALUE"),
        ("eval --sampling worker.top_k=5", "unknown setting of the sampling 'top_k'"),
        ("eval --sampling worker.temperature=warm", "--sampling worker: temperature: "),
        ("run --sampling worker.top_p=0", "top_p is 0.0"),
        ("train evolution --lora 0", "the LoRA rank is 0: it must be at least 1"),
        ("eval --roles worker=toy worker=toy-async", "worker=toy-async: worker is toy already"),
        ("run --sampling worker.top_p=0.5 worker.top_p=0.6", "worker.top_p=0.6: worker.top_p is 0.5 already"),
        ("eval --prompts papr", "unknown prompt style 'papr': did you mean paper?"),
        ("eval --organizations parallel parallel", "organization parallel is named twice: give each a label"),
        (
            "eval --organizations sequential --models sequential=toy sequential=toy-async",
            "--models sequential=toy-async: sequential is toy already",
        ),
        ("eval --organizations", "no organization"),
        ("eval --resume run --n 4", "--resume takes everything else from the folder"),
        ("run --tokenizer models/toy", "--tokenizer needs a server's --url"),
        ("eval --n many", "invalid literal for int() with base 10: 'many'"),
        ("evaluate", "unknown command 'evaluate': did you mean eval?"),
        ("--verison", "Unrecognized options: --verison"),
        ("simulate", "the simulation of clusters was removed"),
        ("measure nowhere.json", "no run folder at nowhere.json"),
        ("measure run/episodes.jsonl", "no run folder at run/episodes.jsonl"),
        ("view nowhere", "no run folder at nowhere"),
        ("view models", "models is not a run folder"),
        ("view run --episode 7", "unknown episode"),
        ("view run --out nowhere/page.html", "No such file"),
        ("view run --transcript --out page.html", "--transcript shows a run and writes no file"),
        ("train marsrl-qwen", "unknown recipe 'marsrl-qwen': did you mean marsrl-qwen3?"),
        ("train --resume run", "run holds a run of kind eval, not train"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_line(arguments: str, says: str, run: Path, capsys: pytest.CaptureFixture[str]):
    before = {path: path.read_bytes() for path in run.iterdir()}
    Path("mine.py").write_text("class PickOne:\n    pass\n")
    capsys.readouterr()
    argv = arguments.split()
    if argv[0] == "eval" and "--resume" not in argv:
        argv += ["--out", "other"]
    assert main(argv) == 2
    assert says in complaint(capsys)
    assert {path: path.read_bytes() for path in run.iterdir() if path in before} == before
    assert not Path("other").exists()


@pytest.mark.parametrize("command", ["arena", "import"])
def test_a_command_of_the_arena_names_its_package(command, monkeypatch, capsys):
    monkeypatch.setattr("orgthink.cli.COMMANDS", {})  # as where the arena is not installed
    assert main([command]) == 2 and "pip install" in (said := complaint(capsys)) and "arena" in said


def test_a_dry_run_prints_what_a_run_would_remember_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    model = tiny_model(tmp_path / "model", "bytes")
    given = ["train", RECIPE, "--model", str(model), "--set", "rollout.take=1"]
    assert main([*given, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert not err and list(tmp_path.iterdir()) == [model]
    assert said["bounds"]["outputs_of_a_problem"] == 4 * 5
    assert main([*given, "--dry-run", "--set", "pack_tokens=64", "steps=3", "--seed", "4"]) == 0
    job, settings = (found := json.loads(capsys.readouterr().out)["job"]), found["settings"]
    assert (job["pack_tokens"], settings["steps"], settings["seed"]) == (64, 3, 4)

    monkeypatch.setattr("orgthink.training.recipes.registry.go_on", lambda folder, report: folder.path)
    assert main(given) == 0
    config = json.loads((tmp_path / "runs" / "small_recipes.py-MARSRL" / "config.json").read_text())
    assert config["settings"] == {"recipe": said["recipe"], "job": said["job"]}
    assert main([*given, "--dry-run"]) == 0, "a run that did nothing yet may be begun again"
    (tmp_path / "runs" / "small_recipes.py-MARSRL" / "metrics.jsonl").write_text('{"step": 1}\n')
    capsys.readouterr()
    assert main([*given, "--dry-run"]) == 2, "a run is there"
    assert "runs/small_recipes.py-MARSRL already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_foreign, "config.json was written by another program"),
        (_unreadable, "config.json cannot be read"),
        (_newer, "schema version 7: this orgthink reads version 3 only"),
        (_corrupt, "episodes.jsonl, line 2: not an episode"),
        (_train, "run holds a run of kind train, not eval"),
        (shutil.rmtree, "no run folder at run"),
    ],
)
@pytest.mark.parametrize("arguments", ["eval --resume run", "view run"])
def test_a_bad_run_folder_gets_one_clear_line(
    damage: Callable[[Path], None], says: str, arguments: str, run: Path, capsys: pytest.CaptureFixture[str]
):
    damage(run)
    if damage is _train and arguments.startswith("view"):  # its episodes, if it has any, can be viewed
        assert main(arguments.split()) == 0
        return
    before = {path: path.read_bytes() for path in run.iterdir()} if run.exists() else {}
    capsys.readouterr()
    assert main(arguments.split()) == 2
    assert says in complaint(capsys)
    assert ({path: path.read_bytes() for path in run.iterdir()} if run.exists() else {}) == before


def test_a_folder_with_another_run_is_left_alone(run: Path, toy, capsys: pytest.CaptureFixture[str]):
    engine = toy(countdown)
    before = {path: path.read_bytes() for path in run.iterdir()}
    capsys.readouterr()
    assert main([*SMALL, "--out", "run"]) == 2
    assert "already holds a run: go on with `--resume run`" in complaint(capsys)
    assert main([*SMALL, "--out", "models"]) == 2
    assert "models is not empty and not a run folder" in complaint(capsys)
    assert not engine.closed, "a model was opened before the folder was looked at"
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_the_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"orgthink {orgthink.__version__}\n"


RETURNS = """
from dataclasses import dataclass
from orgthink import Organization
from orgthink.runtime.agent import Result

@dataclass(frozen=True)
class Mine(Organization):
    name: str = "mine"
    roles = ()
    async def run(self, problem, session):
        return Result("7")

class Sometimes(Mine):
    seen = []
    async def run(self, problem, session):
        self.seen.append(problem.id)
        return Result("7") if len(self.seen) == 2 else "7"

def forgets(problem, answer):
    pass
"""


def test_an_organization_that_returns_no_text_is_one_line(toy, capsys: pytest.CaptureFixture[str]):
    Path("mine.py").write_text(RETURNS)
    said = "run() returned a Result, whose text is its .text: it must return the text of the answer, or None"
    assert main(["run", "--organization", "mine.py:Mine"]) == 2
    assert complaint(capsys).endswith(said)
    assert main(["eval", "--organizations", "mine.py:Sometimes", "--n", "4", "--out", "runs/some"]) == 1
    assert "1 of 4 episodes failed (WrongReturn in attempt.py" in (err := capsys.readouterr().err) and said in err
    assert len(list(RunFolder.open(Path("runs/some")).episodes())) == 4, "the others are done"


def test_a_file_that_cannot_be_written_is_named_by_its_path(tmp_path: Path, run: Path, capsys):
    assert main(["view", str(run), "--out", "nowhere/page.html"]) == 2
    assert complaint(capsys) == "orgthink: nowhere/page.html: No such file or directory"


def test_no_server_at_the_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    argv = [
        "eval",
        "--url",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
        "--task",
        "sudoku",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(argv) == 2
    assert "no server at http://127.0.0.1:9/v1" in complaint(capsys)
    assert not (tmp_path / "run").exists()


CHILD = """
import resource, sys
import orgthink.engines
from orgthink.cli import main, running
from registered import register
from rule_engine import RuleEngine, countdown

async def open_engine(spec):
    return RuleEngine(countdown, seconds=float(sys.argv[1]))

orgthink.engines.open_engine = open_engine
if int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
sys.exit(main(sys.argv[3:]))
"""
"""A command line with an engine of a chosen slowness, and files of a limited size."""


def child(slowness: float, room: int, *argv: str) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(HERE), str(HERE.parent)))
    command = [sys.executable, "-c", CHILD, str(slowness), str(room), *argv]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)


def test_kill_9_in_the_middle_loses_nothing_and_does_nothing_twice(tmp_path: Path):
    argv = ["--n", "12", "--model", str(tmp_path), "--task", TASK, "--prompts", TERSE, "--concurrency", "4"]
    file, whole = tmp_path / "run" / "episodes.jsonl", tmp_path / "whole"
    with child(0.01, 0, "eval", *argv, "--out", str(file.parent)) as process:
        while not file.exists() or file.read_bytes().count(b"\n") < 8:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    survived = file.read_bytes().splitlines(keepends=True)
    assert 8 <= len(survived) < 36
    file.write_bytes(b"".join(survived) + survived[0][:200])  # the worst moment to be killed
    with child(0, 0, "eval", "--resume", str(file.parent)) as process:
        assert process.wait() == 0
    with child(0, 0, "eval", *argv, "--out", str(whole)) as process:
        assert process.wait() == 0
    assert file.read_bytes().splitlines(keepends=True)[: len(survived)] == survived
    ids = [episode.id for episode in RunFolder.open(file.parent).episodes()]
    assert len(ids) == 36
    assert sorted(ids) == sorted(episode.id for episode in RunFolder.open(whole).episodes())


def test_a_full_disk_gets_one_clear_line_and_the_run_goes_on_later(tmp_path: Path):
    run = tmp_path / "run"
    argv = ["--n", "30", "--model", str(tmp_path), "--task", TASK, "--prompts", TERSE, "--concurrency", "4"]
    with child(0, 40_000, "eval", *argv, "--out", str(run)) as process:
        _, err = process.communicate()
    last = err.splitlines()[-1]
    assert process.returncode == 2, err
    assert "Traceback" not in err
    assert "File too large" in last
    assert f"--resume {run}" in last
    written = list(RunFolder.open(run).episodes())
    assert len(written) > 5
    assert (run / "episodes.jsonl").read_bytes().endswith(b"\n")
    with child(0, 0, "eval", "--resume", str(run)) as process:
        assert process.wait() == 0
    assert len(list(RunFolder.open(run).episodes())) == 90


def test_importing_the_package_and_its_command_line_is_light():
    """Heavy libraries are imported only where they are needed."""
    heavy = ["torch", "transformers", "vllm", "httpx2", "tokenizers", "numpy"]
    code = f"""
import sys, orgthink
assert not {{*{heavy}, "pydantic", "tyro", "rich"}} & set(sys.modules), "orgthink"
import orgthink.evaluation.plan, orgthink.record.folder
assert not {{*{heavy}, "tyro"}} & set(sys.modules), "evaluation"
from orgthink.cli import main
from orgthink.cli import running
assert main(["nonsense"]) == 2
assert not {{*{heavy}}} & set(sys.modules), "cli"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_python_m_orgthink(tmp_path: Path):
    command = [sys.executable, "-m", "orgthink", "view", str(tmp_path)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"orgthink: {tmp_path} is not a run folder: it has no config.json\n"


def _ends(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The lines about Ctrl-C: the first and the last."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("orgthink: ")]
    return lines[0], lines[-1]


def _at_request(number: int, rule: Rule) -> Rule:
    """The rule, with a Ctrl-C at that request."""
    calls = 0

    def interrupting(text: str) -> str:
        nonlocal calls
        calls += 1
        if calls == number:
            signal.raise_signal(signal.SIGINT)
        return rule(text)

    return interrupting
