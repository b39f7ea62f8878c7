"""What evaluations and trainings leave in Python: short forms, tables, data frames, figures; and what they accept."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import loopback, says
from rule_engine import RuleEngine

import orgthink
from orgthink.engines.engine import EngineError
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Edge, EdgeKind, Grade, Problem
from orgthink.record.folder import RunFolder
from orgthink.tasks.task import Split, Task
from orgthink.util.errors import UserError
from orgthink.util.terminal import progress

ROWS = [{"question": "What is 3 * 4?", "answer": 12}, {"question": "What is 5 * 7?", "answer": "35"}]
HOSTILE = "<script>alert(1)</script>"


def multiply(text: str) -> str:
    """Solves the products of `ROWS` in all roles; forks as an organizer."""
    first, second = re.findall(r"(\d+) \* (\d+)", text)[-1]
    result = int(first) * int(second)
    if "You do one part" in text:
        return f" so it is <RETURN> {result} </RETURN>"
    if "You lead a team" in text and "<JOIN-1>" not in text.rpartition("Problem: ")[2]:
        return f" <FORK-1> Compute {first} * {second} {HOSTILE} </FORK-1> waiting <JOIN-1>"
    return f" {HOSTILE} so <ANSWER> {result} </ANSWER>"


def evaluated(out: Path, **settings: Any) -> orgthink.Run:
    organizations = {"one": "sequential", "team": AsyncThink(tolerant=True)}
    given = {"task": ROWS, "organizations": organizations, "model": RuleEngine(multiply), "grader": "exact", **settings}
    return orgthink.evaluate(**given, out=out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> orgthink.Run:
    return evaluated(tmp_path_factory.mktemp("runs") / "run")


def test_rows_objects_and_an_open_engine_are_evaluated(run: orgthink.Run):
    assert [episode.organization for episode in run.episodes] == ["one", "team"] * 2
    assert {episode.problem.query for episode in run.episodes} == {row["question"] for row in ROWS}
    assert all(episode.grade == Grade(1, 1) for episode in run.episodes), [e.root.text for e in run.episodes]


def test_short_forms_are_one_line(run: orgthink.Run):
    assert repr(run) == f"<Run {run.path}: 4 episodes of one, team>"
    assert re.fullmatch(
        r"<Episode exact/\w+\|team\|0: 1 of 1 correct, agents 2, sampled tokens \d+, stop done>", repr(run.episodes[1])
    )
    hostile = orgthink.Problem("x\n\x1b[31m" * 1000, "free", "")
    assert len(repr(orgthink.Episode("y" * 10_000, hostile, "o", 1, ()))) <= 300


def test_a_notebook_shows_a_table(run: orgthink.Run):
    page = run._repr_html_()
    assert re.findall("<td>(one|team)</td>", page) == ["one", "team"] and "<th>all correct %</th>" in page
    assert f"{run.path}: 4 episodes" in page
    (run.path / "summary.json").rename(run.path / "moved.json")
    try:
        assert run._repr_html_() == page  # of a run that has not ended
    finally:
        (run.path / "moved.json").rename(run.path / "summary.json")


def test_a_notebook_shows_an_episode(run: orgthink.Run):
    page = run.episodes[1]._repr_html_()
    assert "team · exact/" in page and "critical path" in page and ">worker 1</text>" in page
    assert page.count("<path") == 2 and re.search("<title>fork 1</title>.*<title>join 1</title>", page)
    assert len(re.findall("fill='#d2691e'", page)) >= 2  # the critical path
    assert run.episodes[1].problem.query in page and "<script" not in page
    root = run.episodes[0].root
    names = [f"{root.agent}/{number}" for number in range(99)]
    edges = tuple(Edge(EdgeKind.FORK, name, name, 0) for name in names)
    traces = (replace(root, edges=edges), *(replace(root, agent=name, parent=root.agent) for name in names))
    crowd = orgthink.Episode(
        HOSTILE, replace(run.episodes[0].problem, text=HOSTILE), HOSTILE, 9, traces, answer=HOSTILE
    )
    assert "40 more agents" in crowd._repr_html_() and "<script" not in crowd._repr_html_()


def test_show_prints_an_episode_where_there_is_no_notebook(run: orgthink.Run, capsys: pytest.CaptureFixture[str]):
    run.episodes[0].show()
    assert capsys.readouterr().out.startswith(f"Episode {run.episodes[0].id}\n")


def test_a_data_frame_has_a_row_for_each_attempt(run: orgthink.Run):
    pytest.importorskip("pandas")
    frame = run.to_pandas()
    assert list(frame["organization"]) == ["one", "team"] * 2 and frame["all_correct"].all()
    assert list(frame["critical_path"]) == [orgthink.critical_path(episode) for episode in run.episodes]
    assert list(frame["forks"]) == [0, 1, 0, 1] and set(frame["question"]) == {row["question"] for row in ROWS}


def test_a_plot_has_a_point_and_intervals_for_each_organization(run: orgthink.Run, tmp_path: Path):
    figure = run.plot()
    (axes,) = figure.axes
    points = {each.get_label(): each.lines[0].get_xydata()[0].tolist() for each in axes.containers}
    assert points == {name: [row["critical_path_steps"]["mean"], 100.0] for name, row in run.summary.items()}
    low = axes.containers[0].lines[2][1].get_segments()[0][0][1]  # the vertical interval
    assert low == pytest.approx(100 * run.summary["one"]["all_correct"]["low"])
    figure.savefig(tmp_path / "plot.svg")


@pytest.mark.parametrize(("package", "form"), [("pandas", "to_pandas"), ("matplotlib", "plot")])
def test_a_missing_package_is_one_line(run: orgthink.Run, package: str, form: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"needs {package}: pip install") as error:
        getattr(run, form)()
    assert "\n" not in str(error.value)


class Doubled(Task):
    """Problems of one's own."""

    name = "doubled"
    text = "What is 2 * 21?"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        yield Problem("doubled/1", self.name, self.text)

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(int(answer.strip() == "42"), 1)


def lenient(problem: Problem, answer: str) -> Grade:
    """A grader of one's own."""
    return Grade(1, 1)


def test_a_task_is_a_name_an_object_a_class_or_rows(tmp_path: Path):
    class Other(Doubled):
        text = "What is 2 * 22?"

    def graded(number: int, task: Any, **more: Any) -> list[tuple[str, int]]:
        found = evaluated(tmp_path / str(number), task=task, organizations="sequential", grader=None, **more)
        return [(one.problem.query, one.grade.correct if one.grade else -1) for one in found.episodes]

    assert graded(1, Doubled()) == graded(2, Doubled) == [("What is 2 * 21?", 1)]
    assert graded(3, Other) == [("What is 2 * 22?", 0)]
    Other.text = "What is 2 * 21?"  # as if its cell ran again
    assert graded(4, Other) == [("What is 2 * 21?", 1)]
    file = tmp_path / "mine.jsonl"
    file.write_text('{"problem": "What is 3 * 3?", "answer": "9"}\n')
    named = orgthink.task(f"math:{file}")
    assert graded(5, named) == graded(6, f"math:{file}") == [("What is 3 * 3?", 1)]
    wrong = [{"prompt": "What is 3 * 3?", "target": "8"}]
    assert graded(7, wrong) == [("What is 3 * 3?", 0)]
    assert [one.grade for one in evaluated(tmp_path / "8", task=wrong, grader=lenient).episodes] == [Grade(1, 1)] * 2


def test_rows_are_tables_of_pandas_and_generators_too(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    for number, rows in enumerate((pandas.DataFrame(ROWS), (row for row in ROWS), tuple(ROWS))):
        run = evaluated(tmp_path / str(number), task=rows, organizations=[Sequential()])
        assert len(run.episodes) == 2 and all(episode.grade == Grade(1, 1) for episode in run.episodes)
    (file,) = tmp_path.glob("rows-*.jsonl")
    with_grade = pandas.DataFrame([{**row, "grade": 7} for row in ROWS])  # a column, and an attribute
    assert len(evaluated(tmp_path / "graded" / "run", task=with_grade, organizations=[Sequential()]).episodes) == 2
    assert sorted(file.read_text().splitlines()) == sorted(json.dumps({**row, "answer": row["answer"]}) for row in ROWS)


def test_all_rows_are_evaluated_and_an_organization_may_have_a_model_of_its_own(tmp_path: Path):
    many = [{"question": f"What is {number} * 1?", "answer": number} for number in range(101)]
    both = {"right": "sequential", "silent": "sequential"}
    own = {"silent": RuleEngine(lambda text: " no idea", model="silent")}
    run = evaluated(tmp_path / "run", task=many, organizations=both, models=own)
    assert [row["n"] for row in run.summary.values()] == [101, 101]
    assert [row["all_correct"]["mean"] for row in run.summary.values()] == [1, 0]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "rows of problems are a list of mappings"),
        ({"train": ROWS}, "one split of a data set"),
        (3, "rows of problems are"),
        ([{"quest": "q", "answer": "a"}], "quest"),
    ],
)
def test_rows_without_problems_are_one_line(rows: Any, why: str, tmp_path: Path):
    with pytest.raises(UserError, match=why) as error:
        evaluated(tmp_path / "run", task=rows)
    assert "\n" not in str(error.value)


def test_a_run_is_resumed(tmp_path: Path):
    async def evaluated_on_a_server(*replies: Any, **settings: Any) -> orgthink.Run:
        async with loopback(*replies) as server:
            if "resume" not in settings:
                settings |= {"url": server.url}
            else:
                config = tmp_path / "run" / "config.json"
                config.write_text(re.sub(r"http://127[^\"]*", server.url, config.read_text()))
            return await orgthink.aevaluate(**settings)

    how = {"task": ROWS, "organizations": "sequential", "grader": "exact", "out": tmp_path / "run"}
    whole = asyncio.run(evaluated_on_a_server(*[says("<ANSWER>12</ANSWER>")] * 2, **how))
    (tmp_path / "rows-moved").mkdir()
    file = whole.path / "episodes.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    resumed = asyncio.run(evaluated_on_a_server(says("<ANSWER>35</ANSWER>"), resume=whole.path))
    assert len(resumed.episodes) == 2 and resumed.path == whole.path
    with pytest.raises(UserError, match="resume takes everything else from the folder"):
        orgthink.evaluate(resume=whole.path, n=3)
    with pytest.raises(UserError, match="resume takes everything else from the folder"):
        orgthink.evaluate(ROWS, resume=whole.path)
    with pytest.raises(UserError, match="no run folder"):
        orgthink.evaluate(resume=tmp_path / "nothing")


def test_failed_episodes_are_run_again(tmp_path: Path):
    def fails(text: str) -> str:
        raise EngineError("gone")

    run = evaluated(tmp_path / "run", model=RuleEngine(fails), organizations="sequential")
    assert all(episode.error == "gone" for episode in run.episodes), [episode.error for episode in run.episodes]
    assert "2 episodes" in run._repr_html_()


@pytest.mark.parametrize(
    "name", [name for name in orgthink.__all__ if inspect.isroutine(getattr(orgthink, name, None))]
)
def test_completion_shows_every_argument(name: str):
    for parameter in inspect.signature(getattr(orgthink, name)).parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD or name == "organization", parameter
        assert parameter.annotation is not parameter.empty, parameter


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: orgthink.solve("q", urll="x"), "unknown argument 'urll': did you mean url"),
        (lambda: orgthink.asolve("q", modell="x"), "did you mean model"),
        (lambda: orgthink.evaluate("sudoku", organisations=[]), "did you mean organizations"),
        (lambda: orgthink.train("asyncthink", stepz=3), "did you mean steps"),
        (lambda: orgthink.train("asyncthink", resume="x"), "resume takes everything else"),
    ],
)
def test_a_typo_is_one_line(call: Any, why: str):
    with pytest.raises(UserError, match=why) as error:
        call()
    assert "\n" not in str(error.value)


def test_ipython_gets_one_line_in_place_of_a_traceback():
    assert UserError("a\nb")._render_traceback_() == ["UserError: a b"]
    assert EngineError("gone")._render_traceback_() == ["EngineError: gone"]


def test_progress_is_silent_without_a_terminal_and_a_function_gets_it(tmp_path, capfd):
    evaluated(tmp_path / "silent")
    assert capfd.readouterr() == ("", "")
    seen: list[int] = []
    evaluated(tmp_path / "seen", progress=lambda episode, done: seen.append(done))
    assert seen == [1, 2, 3, 4]
    with progress(2) as advance:
        advance(1, "one")
        advance(2, "two")
    assert capfd.readouterr().err.splitlines()[-1] == "2/2  two"


def test_a_terminal_gets_a_bar_and_the_place_of_the_run(tmp_path: Path):
    code = f"""if True:
        import sys; sys.path[:] = {sys.path!r}
        from pathlib import Path
        import test_results
        test_results.evaluated(Path({str(tmp_path / "run")!r}))"""
    shown = in_a_terminal([sys.executable, "-c", code])
    assert "4/4" in shown and f"the run is in {tmp_path / 'run'}; look at it: orgthink view {tmp_path / 'run'}" in shown


def in_a_terminal(command: list[str]) -> str:
    """What a program writes to a terminal, which both of its outputs are."""
    import os
    import pty
    import subprocess

    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "300"}
    process = subprocess.Popen(command, stdout=its, stderr=its, stdin=its, env=environment)
    os.close(its)
    found = b""
    try:
        while part := os.read(ours, 65536):
            found += part
    except OSError:  # the other end is closed
        pass
    process.wait()
    return found.decode()


@pytest.fixture
def training(tmp_path: Path) -> orgthink.Training:
    folder = RunFolder.create(tmp_path / "rl", "train", {"recipe": "asyncthink"})
    with folder.journal() as journal:
        for step in range(1, 4):
            journal.log(step=step, reward=step / 4, all_correct=None, loss=0.5, seconds={"rollout": 1.0})
    return orgthink.load_training(tmp_path / "rl")


def test_a_training_has_short_forms(training: orgthink.Training):
    assert repr(training) == f"<Training {training.path}: step 1 → 3, reward 0.25 → 0.75, loss 0.5 → 0.5>"
    page = training._repr_html_()
    assert "<td>reward</td><td>0.25</td><td>0.75</td>" in page and "all correct" not in page
    assert [line["step"] for line in training.metrics] == [1, 2, 3]
    with RunFolder.open(training.path).journal() as journal:
        journal.log(step=12_345)
    assert "step 1 → 12345" in repr(training), "a step is a name and not rounded"


def test_a_training_is_given_as_a_model(training: orgthink.Training, tmp_path: Path):
    with pytest.raises(UserError, match="has no checkpoint yet"):
        orgthink.solve("q", model=training)
    for step in (5, 10):
        (training.path / f"checkpoints/step-{step:06d}/model").mkdir(parents=True)
    newest = orgthink.load_training(training.path)
    assert newest.model == training.path / "checkpoints/step-000010/model"
    with pytest.raises(UserError, match="step-000010/model"):
        orgthink.solve("q", "sequential", model=newest)


def test_a_run_is_no_training(run: orgthink.Run):
    with pytest.raises(UserError, match="holds a run of kind eval, not train"):
        orgthink.load_training(run.path)
