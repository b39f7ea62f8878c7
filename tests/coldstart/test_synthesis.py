"""From problems to rows: a teacher on a script and on a real server, and every way to be stopped."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from echo import TASK
from loopback import answers, loopback, says
from rule_engine import RuleEngine
from transcripts import asked_for, planned, transcript

from orgthink.cli.synth import conduct
from orgthink.engines import EngineSpec
from orgthink.engines.engine import Engine
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.record.episode import Grade, Problem, Sampling
from orgthink.record.folder import RunFolder
from orgthink.tasks import task_named
from orgthink.training.coldstart.pairs import read_pairs
from orgthink.training.coldstart.synthesis import Harvest, Synthesis, problems, synthesise
from orgthink.training.coldstart.teachers import model_teacher, plan_of, request, synthesis
from orgthink.training.coldstart.transcript import read_transcript
from orgthink.util.errors import ToolError


def plan_for(n: int, **settings) -> Synthesis:
    return Synthesis(TASK, n, EngineSpec("scripted"), **{"capacity": 3, "concurrency": 1, **settings})


def right(plan: Synthesis, problem: Problem) -> str:
    return transcript(plan_of(problem, plan.capacity, plan.seed), str(problem.data["answer"]))


def by_rule(context: str) -> str:
    """A teacher that follows every plan, whatever the question."""
    return transcript(asked_for(context), "17")


async def taught(plan: Synthesis, engine: Engine, folder: RunFolder, **how) -> Harvest:
    return await synthesise(plan, model_teacher(engine, plan.sampling, plan.capacity, plan.seed), folder, **how)


def new(path: Path, plan: Synthesis) -> RunFolder:
    return RunFolder.create(path, "synth", plan)


def files(path: Path) -> dict[str, bytes]:
    """What is a function of the records."""
    names = ("pairs.jsonl", "dropped.jsonl", "synth.json")
    return {name: (path / name).read_bytes() for name in names}


BAD = [
    ("LAYOUT", "=== ORGANIZER ===", "Organizer:"),
    ("STRUCTURE", "<ANSWER>", "<FORK-9>x</FORK-9> <JOIN-9> x </JOIN-9> <ANSWER>"),
    ("WORKERS", "=== SUBTASK 1 ===", "=== SUBTASK 7 ===\nx\n=== WORKER 7 ===\nx <RETURN>x</RETURN>\n=== SUBTASK 1 ==="),
    ("JOIN_TEXT", "found 1 </JOIN-1>", "lost 1 </JOIN-1>"),
    ("SUB_QUERY", "</FORK-1>", " more</FORK-1>"),
    ("NO_RETURN", "<RETURN>thought found 1</RETURN>", "thought"),
    ("NO_ANSWER", "<ANSWER>", "<ANSWER></ANSWER> <ANSWER>"),
    ("MALFORMED_TAG", "</FORK-1>", ""),
    ("DUPLICATE_FORK", "<FORK-1>", "<FORK-1>a</FORK-1> <FORK-1>"),
    ("POOL_OVERFLOW", "<FORK-1>", "<FORK-7>a</FORK-7> <FORK-8>a</FORK-8> <FORK-9>a</FORK-9> <FORK-1>"),
    ("UNKNOWN_JOIN", "<ANSWER>", "<JOIN-8> x </JOIN-8> <ANSWER>"),
    ("AFTER_END", "</ANSWER>", "</ANSWER> The end."),
    ("TRUNCATED", "apart", "word " * 400),
    ("WRONG_ANSWER", "<ANSWER>", "<ANSWER>-"),
]


async def test_a_scripted_teacher_every_way_to_be_dropped_is_counted(tmp_path: Path):
    plan = plan_for(len(BAD) + 3, correct_only=True, sampling=Sampling(300, seed=0))
    *some, last = problems(plan).values()
    turns = [Turn(right(plan, problem), when=f"\n{problem.text}\n", seconds=0) for problem in (last, *some[:2])]
    for problem, (_, old, wrong) in zip(some[2:], BAD, strict=True):
        assert old in right(plan, problem)
        turns.append(Turn(right(plan, problem).replace(old, wrong), when=f"\n{problem.text}\n", seconds=0))
    engine, folder = ScriptedEngine(turns), new(tmp_path / "run", plan)
    harvest = await taught(plan, engine, folder)
    await engine.aclose()
    summary = json.loads((folder.path / "synth.json").read_text())
    assert summary == harvest.summary()
    assert summary["dropped"] == {reason: 1 for reason, _, _ in sorted(BAD)}
    assert (summary["problems"], summary["done"], summary["kept"], summary["failed"]) == (
        len(BAD) + 3,
        len(BAD) + 3,
        3,
        0,
    )
    assert summary["all_correct"] == 1
    told = [json.loads(line) for line in (folder.path / "dropped.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in told] == [reason for reason, _, _ in BAD]
    assert [line["episode"] for line in told] == [f"{problem.id}|teacher|0" for problem in some[2:]]
    rows = read_pairs(folder.path / "pairs.jsonl")
    assert len(rows) == summary["pairs"] == sum(2 * _forks(plan, problem) + 1 for problem in (*some[:2], last))
    assert {row.teacher for row in rows} == {"scripted"}
    assert [row.problem for row in rows if row.index == 0] == [problem.id for problem in (*some[:2], last)]


def _forks(plan: Synthesis, problem: Problem) -> int:
    return sum(step.action == "fork" for step in plan_of(problem, plan.capacity, plan.seed))


def test_the_request_holds_question_plan_and_fitting_examples():
    plan = plan_for(1)
    (problem,) = problems(plan).values()
    structure = planned("FORK-1, THINK, FORK-2, JOIN-1, JOIN-2, ANSWER")
    for capacity, examples in ((2, 2), (3, 3), (5, 3)):
        asked = request(problem, structure, capacity)
        assert asked.count("Example question:") == examples
        assert asked_for(asked) == structure
        assert f"At most {capacity - 1} sub-queries" in asked
        assert asked.rindex(problem.text) > asked.rindex("Example question:")


@pytest.mark.parametrize("example", synthesis()["examples"], ids=lambda example: example["plan"])
def test_the_examples_pass_the_rules(example):
    read_transcript(example["transcript"], planned(example["plan"]), example["capacity"])


def test_plans_are_the_same_for_a_seed_and_vary_with_problem_and_seed():
    some = list(problems(plan_for(40)).values())
    plans = [tuple(plan_of(problem, 3, 0)) for problem in some]
    assert plans == [tuple(plan_of(problem, 3, 0)) for problem in some]
    assert plans != [tuple(plan_of(problem, 3, 1)) for problem in some]
    assert len(set(plans)) > 10


async def test_what_failed_is_done_again_and_nothing_else(tmp_path: Path):
    plan = plan_for(4)
    one, two, three, four = problems(plan).values()
    said = {one.id: "nothing", two.id: right(plan, two), three.id: right(plan, three), four.id: "nothing"}
    first, second, third, fourth = [
        Turn(said[problem.id], when=f"\n{problem.text}\n", seconds=0) for problem in (one, two, three, four)
    ]
    broken = [Turn("=== FRAG", when=f"\n{problem.text}\n", seconds=0, fails="overloaded") for problem in (one, three)]
    folder = new(tmp_path / "run", plan)
    harvest = await taught(plan, ScriptedEngine([second, fourth, *broken]), folder)
    summary = harvest.summary()
    assert (summary["failed"], summary["kept"], summary["dropped"]) == (2, 1, {"LAYOUT": 1})
    assert {row.problem for row in read_pairs(folder.path / "pairs.jsonl")} == {two.id}
    engine = ScriptedEngine([third, first])
    await taught(plan, engine, RunFolder.open(folder.path))
    await engine.aclose()
    straight = new(tmp_path / "straight", plan)
    await taught(plan, ScriptedEngine([first, second, third, fourth]), straight)
    assert files(folder.path) == files(straight.path)


async def test_a_stop_finishes_what_is_under_way_and_a_resumed_run_ends_the_same(tmp_path: Path):
    plan, stop = plan_for(6, concurrency=2), asyncio.Event()
    folder, straight = new(tmp_path / "run", plan), new(tmp_path / "straight", plan)
    seen: list[int] = []

    def progress(harvest: Harvest) -> None:
        seen.append(harvest.done)
        stop.set()

    await taught(plan, RuleEngine(by_rule), folder, stop=stop, progress=progress)
    assert seen == [1, 2]
    assert json.loads((folder.path / "synth.json").read_text())["done"] == 2
    engine = RuleEngine(by_rule)
    await taught(plan, engine, RunFolder.open(folder.path))
    assert engine.requests == 4
    await taught(plan, RuleEngine(by_rule), straight)
    assert files(folder.path) == files(straight.path)


async def test_a_killed_run_loses_no_more_than_the_record_it_was_writing(tmp_path: Path):
    plan = plan_for(5)
    folder, straight = new(tmp_path / "run", plan), new(tmp_path / "straight", plan)
    await taught(plan, RuleEngine(by_rule), straight)
    records = straight.episodes_file.read_bytes().splitlines(keepends=True)
    folder.episodes_file.write_bytes(b"".join(records[:3]) + records[3][:50])
    (folder.path / "pairs.jsonl").write_bytes((straight.path / "pairs.jsonl").read_bytes()[:700])
    engine = RuleEngine(by_rule)
    await taught(plan, engine, folder)
    assert engine.requests == 2
    assert files(folder.path) == files(straight.path)


# The command line.


async def command(*argv: object, on: Path) -> tuple[int, str, str]:
    """The real command in a process of its own: exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orgthink", "synth", *map(str, argv), cwd=on, stdout=-1, stderr=-1
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_teacher_behind_a_real_server(tmp_path: Path):
    plan = plan_for(4, capacity=2)
    one, two, three, four = problems(plan).values()
    plays = [
        (one.text, says(right(plan, one))),
        (two.text, says(right(plan, two).replace("<ANSWER>", ""))),
        (three.text, answers(400, "no such thing")),
        (four.text, says(right(plan, four))),
    ]
    async with loopback(*plays) as server:
        asked = ("--task", TASK, "--n", 4, "--url", server.url, "--out", "run")
        code, out, err = await command(*asked, "--template", "enable_thinking=false", on=tmp_path)
        assert code == 1
        assert "dropped      1  MALFORMED_TAG" in out
        assert "1 of 4 requests failed" in err and "go on with: orgthink synth --resume run" in err
        assert [exchange.body["max_tokens"] for exchange in server.exchanges] == [4096] * 4
        told = [exchange.body["chat_template_kwargs"] for exchange in server.exchanges]
        assert told == [{"enable_thinking": False}] * 4
        server.plays.append((three.text, says(right(plan, three))))
        assert (await command("--resume", "run", on=tmp_path))[0] == 0
        assert len(server.exchanges) == 5
    rows = read_pairs(tmp_path / "run" / "pairs.jsonl")
    assert [row.problem for row in rows if row.index == 0] == [one.id, three.id, four.id]
    assert {row.teacher for row in rows} == {"tiny"}
    assert all(row.prompt.startswith(("You are the main process.", "You are a subprocess.")) for row in rows)


async def test_what_the_grader_failed_is_graded_again_and_no_teacher_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = replace(plan_for(3), teacher=EngineSpec("tiny", "http://127.0.0.1:9/v1"))
    straight, folder = new(tmp_path / "straight", plan), new(tmp_path / "run", plan)
    await taught(plan, RuleEngine(by_rule), straight)

    def down(self: object, problem: Problem, answer: str) -> Grade:
        raise ToolError("the sandbox does not start")

    monkeypatch.setattr(type(task_named(TASK)), "grade", down)
    harvest = await taught(plan, RuleEngine(by_rule), folder)
    assert (harvest.done, len(harvest.dropped), harvest.failed) == (3, 3, []) and not harvest.rows
    assert json.loads((folder.path / "synth.json").read_text())["dropped"] == {"UNGRADED": 3}
    kept, whole = ([record.root.text for record in one.episodes()] for one in (folder, straight))
    assert kept == whole, "they are as the teacher wrote them"
    assert await conduct(plan, RunFolder.open(folder.path)) == 0, "it is complete, and its tool is still down"
    assert "dropped      3  UNGRADED" in capsys.readouterr().out
    monkeypatch.undo()
    assert await conduct(plan, RunFolder.open(folder.path)) == 0
    assert files(folder.path) == files(straight.path)
