"""The Python API: one line solves, evaluates or trains, with and without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from loopback import loopback, says
from small_recipes import RECIPE

import orgthink
from orgthink import api
from orgthink.api import Organization, Run, Session
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Episode, Problem
from orgthink.record.folder import RunFolder
from orgthink.training.recipes import registry
from orgthink.util.errors import UserError

PROBLEM = Problem(
    "sudoku/x", "sudoku", "Solve it.", data={"clues": [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [0] * 4]}
)
GRID = "<ANSWER>1234\n3412\n2143\n4321</ANSWER>"

FORKING = [
    Turn(" <FORK-1> 3 * 4 </FORK-1> <JOIN-1>", when="What is"),
    Turn(" 12 <RETURN> 12 </RETURN>", when="3 * 4"),
    Turn(" <ANSWER> 12 </ANSWER>", when="What is"),
]


def engine(*turns: str) -> ScriptedEngine:
    return ScriptedEngine([Turn(f" {text}", seconds=0.0) for text in turns])


def test_a_text_is_solved_and_not_graded():
    episode = orgthink.solve("What is 6 * 7?", "sequential", model=engine("<ANSWER> 42 </ANSWER>"))
    assert isinstance(episode, Episode) and episode.answer == "42" and episode.grade is None


def test_a_problem_of_a_task_is_graded():
    episode = orgthink.solve(PROBLEM, "sequential", model=engine(GRID))
    assert episode.grade is not None and episode.grade.all_correct


def test_an_organizer_forks():
    turns = [Turn(turn.says, when=turn.when, seconds=0.0) for turn in FORKING]
    episode = orgthink.solve("What is 3 * 4?", model=ScriptedEngine(turns))
    assert [trace.role for trace in episode.traces] == ["organizer", "worker"] and episode.answer == "12"


def test_an_organization_may_be_an_object():
    episode = orgthink.solve("What is 6 * 7?", Sequential(), model=engine("<ANSWER> 42 </ANSWER>"))
    assert episode.organization == "sequential" and episode.answer == "42"


@dataclass(frozen=True)
class Prompted(Organization):
    """Answers with its own settings."""

    words: int = 1
    prompts: str = "paper"
    client: object = None

    async def run(self, problem: Problem, session: Session) -> str:
        session.controller()
        return f"{self.prompts} {self.words} {self.client}"


class Counting:
    """Not a dataclass: what it counts is no setting."""

    def __init__(self, start: int = 1) -> None:
        self.start = start

    async def run(self, problem: Problem, session: Session) -> str:
        session.controller()
        return str(self.start)


async def function(problem: Problem, session: Session) -> str:
    session.controller()
    return problem.text


@pytest.mark.parametrize(
    ("organization", "label", "answer"),
    [
        (Prompted, "Prompted", "demonstrated 1 None"),
        (Prompted(), "Prompted", "demonstrated 1 None"),
        (Prompted(2, "tagged", client=3), "Prompted", "tagged 2 3"),
        (lambda: Prompted(2), "<lambda>", "demonstrated 2 None"),
        (Counting, "Counting", "1"),
        (Counting(5), "Counting", "5"),
        (function, "function", "q"),
    ],
)
def test_an_organization_is_whatever_may_be_named_and_a_model_s_prompts_reach_it(
    organization: Any, label: str, answer: str
):
    episode = orgthink.solve("q", organization, model=engine())
    assert (episode.organization, episode.answer) == (label, answer)


def test_prompts_and_settings_hold_for_an_instance():
    one = Prompted(2, "tagged")
    answers = [
        orgthink.solve("q", one, model=engine(), prompts="paper"),
        orgthink.solve("q", one, model=engine(), settings={"words": 7}),
        orgthink.solve("q", one, model=engine(), prompts="paper", settings={"prompts": "demonstrated"}),
        orgthink.solve("q", Prompted(client=[]), model=engine()),
    ]
    assert [each.answer for each in answers] == [
        "paper 2 None",
        "tagged 7 None",
        "demonstrated 2 None",
        "demonstrated 1 []",
    ]


def test_a_shipped_model_s_prompts_reach_an_instance():
    pytest.importorskip("orgthink_pocket")
    problem = next(orgthink.task("countdown-mini").problems("test", seed=0))
    named, made = (
        orgthink.solve(problem, one, model="pocket-organizer", temperature=0, max_tokens=8)
        for one in ("sequential", Sequential())
    )
    assert made.root.text == named.root.text and made.root.spans[0].text == named.root.spans[0].text


def test_a_role_may_have_a_sampling_of_its_own():
    episode = orgthink.solve(
        "q", "sequential", model=engine("<ANSWER> 1 </ANSWER>"), sampling={"thinker": {"temperature": 0.25}}
    )
    assert episode.root.spans[-1].sampling.temperature == 0.25


def test_a_table_s_labels_hold_for_settings_too(tmp_path):
    given = [Prompted(client=4), "two=sequential", function]
    how: Any = {"url": "http://localhost:9/v1", "model": "m", "n": 1, "deadline": 5.0}
    with pytest.raises(UserError, match="unknown organization or setting 'Promptd': did you mean Prompted"):
        orgthink.evaluate("sudoku", given, settings={"Promptd": {"words": 3}}, **how)
    with pytest.raises(UserError, match="organization Prompted is named twice"):
        orgthink.evaluate("sudoku", [Prompted(), Prompted(2)], **how)

    async def evaluated(organizations: Any, **settings: Any) -> Run:
        async with loopback(*[says("a")] * 4) as server:
            return await orgthink.aevaluate("sudoku", organizations, url=server.url, n=1, **settings)

    several = asyncio.run(evaluated(given, settings={"Prompted": {"words": 3}}, out=tmp_path / "run"))
    assert list(several.summary) == ["Prompted", "two", "function"]
    assert several.episodes[0].answer == "demonstrated 3 4"
    both = {"words": 5, "six": {"words": 7}}
    shared = asyncio.run(
        evaluated({"one": Prompted(), "six": Prompted(), "f": function}, settings=both, out=tmp_path / "s")
    )
    assert [episode.answer for episode in shared.episodes][:2] == ["demonstrated 5 None", "demonstrated 7 None"]
    by_label = {"one": Prompted, "two": Prompted(2), "five": Counting(5), "six": Counting(6)}
    labelled = asyncio.run(evaluated(by_label, out=tmp_path / "labelled"))
    answers = {episode.organization: episode.answer for episode in labelled.episodes}
    assert answers == {"one": "demonstrated 1 None", "two": "demonstrated 2 None", "five": "5", "six": "6"}
    alone = asyncio.run(evaluated(Prompted(6), out=tmp_path / "alone"))
    assert alone.episodes[0].answer == "demonstrated 6 None"


def test_a_notebook_s_class_may_stand_in_an_instance():
    @dataclass(frozen=True)
    class Local(Prompted):
        """Only this process has it."""

    forking = ScriptedEngine([Turn(turn.says, when=turn.when, seconds=0.0) for turn in FORKING[::2]])
    episode = orgthink.solve("What is 3 * 4?", AsyncThink(worker=Local(9)), model=forking)
    assert episode.answer == "12" and "paper 9 None" in episode.root.text


def test_a_run_of_a_notebook_s_class_is_not_resumed(tmp_path, capsys):
    @dataclass(frozen=True)
    class Local(Prompted):
        """Only this process has it."""

    async def evaluated(organization: Any, out: Path) -> None:
        async with loopback() as server:
            await orgthink.aevaluate("sudoku", organization, url=server.url, n=1, out=out)

    asyncio.run(evaluated(Local(3), tmp_path / "local"))
    asyncio.run(evaluated(Prompted(3), tmp_path / "file"))
    for run, code, said in (
        ("file", 0, ""),
        ("local", 2, "organization Local was made in a notebook or in a function"),
    ):
        command = [sys.executable, "-m", "orgthink", "eval", "--resume", str(tmp_path / run)]
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == code and said in done.stderr and done.stderr.count("\n") <= 1, done.stderr


async def test_it_works_where_an_event_loop_runs_already():
    """As in a notebook: the engine belongs to no loop, the call is a plain one."""
    assert orgthink.solve("q", "sequential", model=engine("<ANSWER> 1 </ANSWER>")).answer == "1"
    assert (await orgthink.asolve("q", "sequential", model=engine("<ANSWER> 2 </ANSWER>"))).answer == "2"


async def test_ctrl_c_in_a_thread_s_loop_is_raised_as_itself():
    async def fails() -> None:
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        api._plain(fails)()


async def test_ctrl_c_in_a_notebook_ends_what_runs():
    """The kernel raises KeyboardInterrupt where its thread waits for the one that works."""
    ends = SimpleQueue[str]()

    async def work() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ends.put("cancelled")
            raise
        ends.put("at its own end")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            api._plain(work)()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ends.get(timeout=60) == "cancelled"


def evaluation(organizations: Any, **settings: Any) -> Run:
    return orgthink.evaluate("sudoku", organizations, url="http://localhost:9/v1", model="m", **settings)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: orgthink.solve("q", "asyncthing", model="nowhere"), "unknown model"),
        (lambda: orgthink.solve("q", "asyncthing", url="http://localhost:9/v1", model="m"), "did you mean asyncthink"),
        (
            lambda: orgthink.evaluate("nothing-such", ["sequential"], url="http://localhost:9/v1", model="m"),
            "unknown task",
        ),
        (lambda: orgthink.solve("q", "sequential", model=engine("a"), max_tokens=0), "max_tokens is 0"),
        (lambda: orgthink.solve("q", "sequential", model=engine("a"), temperature=-1.0), "temperature is -1"),
        (
            lambda: orgthink.solve("q", "sequential", model=engine("a"), roles={"thinkr": engine("a")}),
            "no organization here has a role 'thinkr'",
        ),
        (
            lambda: evaluation(["sequential"], settings={"sequentia": {}}),
            "or setting 'sequentia': did you",
        ),
        (lambda: evaluation(["sequential"], settings={"sequential": True}), "settings of sequential"),
        (
            lambda: evaluation(["sequential", "parallel"], settings={"asyncthink": {}}),
            "or setting 'asyncthink'",
        ),
        (lambda: evaluation(["sequential", "parallel", "sequential"]), "organization sequential is named twice"),
        (lambda: evaluation(["one="]), "organization one=: write NAME or LABEL=NAME"),
        (lambda: evaluation([Prompted(client=object())]), "settings of Prompted are stored as JSON values: "),
        (lambda: evaluation([3]), "3 is not an organization: it must be"),
        (lambda: evaluation(["sequential"], sampling={"thinker": {"temprature": 1}}), "did you mean temperature"),
        (lambda: orgthink.solve("q", function, model=engine(), prompts="paper"), "function has no setting `prompts`"),
        (lambda: orgthink.solve("q", Prompted(), model=engine(), settings={"word": 3}), "did you mean words"),
        (lambda: evaluation(["sequential"], n=0), "n is 0: it must be at least 1"),
        (lambda: evaluation(["sequential"], samples=0), "samples is 0: it must be at least 1"),
        (lambda: evaluation(["sequential"], concurrency=0), "concurrency is 0: it must be at least 1"),
        (lambda: evaluation([]), "no organization: name at least one"),
        (lambda: orgthink.solve("q", "sequential", model=engine("a"), capacity=0), "capacity is 0: it must be"),
        (lambda: orgthink.train("asyncthink-qwen3-moth"), "did you mean asyncthink-qwen3-math"),
        (lambda: orgthink.train("asyncthink-qwen3-math", settings={"rollout.grop": 3}), "rollout has no 'grop'"),
    ],
)
def test_bad_input_is_one_line(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_training_names_its_model_and_its_files_by_their_whole_paths(tmp_path, monkeypatch):
    """So that it goes on from any folder."""

    class Started(Exception):
        pass

    def start(training: registry.Training, path: Path) -> None:
        raise Started(training.job)

    def job(*args: Any, **options: Any) -> Any:
        with pytest.raises(Started) as started:
            orgthink.train(*args, **options)
        return started.value.args[0]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "start", start)
    Path("mine").mkdir()
    assert job(RECIPE, model="mine").model == str(tmp_path / "mine")
    assert job(RECIPE, model=Path("mine")).model == str(tmp_path / "mine")
    assert job(RECIPE, model="a-package-s").model == "a-package-s"
    assert job("asyncthink-sft", pairs="rows.jsonl").pairs == str(tmp_path / "rows.jsonl")
    adapter = job(RECIPE, model="mine", lora=8, seed=3, steps=5, settings={"learning_rate": 0.5}, template={"a": True})
    assert (adapter.lora.rank, adapter.settings.seed, adapter.settings.steps) == (8, 3, 5)
    assert (adapter.settings.learning_rate, adapter.template) == (0.5, {"a": True})


def test_an_evaluation_against_a_server_leaves_a_run_folder(tmp_path):
    async def evaluated():
        async with loopback(*[says(GRID.replace("\n", " / "))] * 3) as server:
            out = tmp_path / "run"
            return await orgthink.aevaluate("sudoku", ["sequential"], url=server.url, n=3, out=out, max_tokens=64)

    run = asyncio.run(evaluated())
    assert orgthink.load_run(run.path).summary == run.summary
    assert len(run.episodes) == 3 and run.path == tmp_path / "run"
    assert run.summary["sequential"]["n"] == 3
    assert [episode.id for episode in RunFolder.open(run.path).episodes()] == [episode.id for episode in run.episodes]


def test_everything_public_is_typed_and_documented():
    for name in orgthink.__all__:
        thing = getattr(api, name, None)
        if callable(thing):
            assert inspect.getdoc(thing), name
            assert "return" in inspect.get_annotations(thing) or inspect.isclass(thing), name
    assert (Path(orgthink.__file__).parent / "py.typed").exists()
    assert set(orgthink.__all__) <= set(dir(orgthink))
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        _ = orgthink.solv  # type: ignore[attr-defined]


def test_tasks_organizations_and_runs_have_names(tmp_path):
    assert orgthink.task("sudoku").grade(PROBLEM, GRID[8:-9]).correct == 1
    assert orgthink.organization("asyncthink", tolerant=True).tolerant  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="did you mean tolerant"):
        orgthink.organization("asyncthink", toleran=True)
    with pytest.raises(UserError, match="no run folder at"):
        orgthink.load_run(tmp_path / "run")


def test_importing_the_package_imports_nothing_heavy():
    """Not timed: what takes time is what is imported."""
    heavy = ("torch", "transformers", "numpy", "pydantic", "tyro", "rich", "httpx2")
    code = f"import orgthink, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_endpoint_needs_no_extra():
    """Neither the packages of the extra `local`, nor any other: they are not installed with the wheel alone."""
    extras = ("torch", "tokenizers", "safetensors", "jinja2", "transformers", "pyarrow", "vllm", "mcp")
    code = f"""if True:
        import sys
        sys.modules.update(dict.fromkeys({extras!r}))  # importing one is an ImportError
        import orgthink.engines.endpoint.client, orgthink.cli.run, orgthink.cli.eval, orgthink.view
        print(orgthink.solve.__name__)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("solve", "")
