"""Names lead to what they say, and what cannot be loaded is one line; a stranger's names lead to nothing."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registered import register

import orgthink
from orgthink.cli import main
from orgthink.cli.names import KINDS
from orgthink.engines import EngineSpec, engine_spec
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec, labelled
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.folder import RunFolder
from orgthink.rewards import REWARDS, EpisodeReward
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.organization import Organization
from orgthink.tasks import TASKS, Task, task_named
from orgthink.tools.toolbox import other_tool, toolbox
from orgthink.util.errors import UserError
from orgthink.util.references import absolute, is_reference, references, short_name, split_reference
from orgthink.util.registry import Registry, registered_only
from orgthink.util.settings import ByKind

GOLDEN = Path(__file__).parent / "golden" / "episodes.jsonl"
PLUGIN = Path(__file__).parent / "plugin" / "dice.py"


def numbers(**own: str) -> Registry[int]:
    """A registry whose things are to be numbers."""
    return Registry(
        "number", "orgthink.test_numbers", own, "a number", lambda thing: thing if isinstance(thing, int) else None
    )


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package with one module and entry points among the numbers."""

    def install(package: str, source: str, **entries: str) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        (info := tmp_path / f"{package}-1.dist-info").mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        lines = [f"{name} = {package}:{target}\n" for name, target in entries.items()]
        (info / "entry_points.txt").write_text("[orgthink.test_numbers]\n" + "".join(lines))

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    for file in tmp_path.glob("*.py"):  # and nothing else: numpy loads once a process
        sys.modules.pop(file.stem, None)


# What names lead to


def test_names_of_this_package_of_others_and_of_code(installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    installed("first", "ONE = 1\nTWO = 2\n", one="ONE", largest="TWO")
    found = numbers(largest="sys:maxsize")
    (tmp_path / "mine.py").write_text("THREE = 3\n")
    monkeypatch.chdir(tmp_path)
    assert list(found) == ["largest", "one"], "a name of this package cannot be taken over"
    assert (found["one"], found["largest"]) == (1, sys.maxsize)
    assert found["mine.py:THREE"] == found[f"{tmp_path}/mine.py:THREE"] == 3
    assert found["os.path:supports_unicode_filenames"] in (True, False)
    packages = [(name, entry.dist and entry.dist.name) for name, entry in found.registrations().items()]
    assert packages == [("largest", None), ("one", "first")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("onne", "unknown number 'onne': did you mean one?"),
        ("zzz", "unknown number 'zzz': one of largest, one, text"),
        ("text", "text is not a number: it must be a number"),
        ("mine.py:FUOR", "unknown number in {here}/mine.py 'FUOR': did you mean FOUR?"),
        ("mine.py:Zzz", "unknown number in {here}/mine.py 'Zzz': one of BIG, FIVE, FOUR, NAME"),
        ("none.py:FOUR", "number none.py:FOUR cannot be loaded: FileNotFoundError: there is no file none.py"),
        ("os.nothing:X", "number os.nothing:X cannot be loaded: ModuleNotFoundError"),
        ("bad.py:X", "number {here}/bad.py:X cannot be loaded: ZeroDivisionError: no ({here}/bad.py, line 3)"),
        ("torn.py:X", "number {here}/torn.py:X cannot be loaded: SyntaxError: '(' was never closed (torn.py, line 2)"),
        ("latin.py:Zzz", "unknown number in {here}/latin.py 'Zzz': one of SEVEN"),
        ("quits.py:X", "number {here}/quits.py:X cannot be loaded: SystemExit: 3 ({here}/quits.py, line 1)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(name: str, words: str, installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    installed("first", "ONE = 1\nTEXT = 'one'\n", one="ONE", text="TEXT")
    (tmp_path / "mine.py").write_text("from sys import maxsize as BIG\nFOUR = 4\nFIVE: int = 5\nNAME = 'six'\n")
    (tmp_path / "bad.py").write_text("def f():\n    raise ZeroDivisionError('no')\nX = f()\n")
    (tmp_path / "torn.py").write_text("X = 1\nY = (\n")
    (tmp_path / "latin.py").write_text("# coding: latin-1\nSEVEN = 7  # é\n", encoding="latin-1")
    (tmp_path / "quits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        numbers(largest="sys:maxsize").named(name)
    assert str(caught.value).startswith(words.format(here=tmp_path)) and "\n" not in str(caught.value)


def test_a_name_of_two_packages_is_of_the_package_that_is_listed(installed):
    installed("first", "ONE = 1\nFOUR = 4\n", one="ONE", four="FOUR")
    installed("second", "ONE = 2\nTWO = 2\n", one="ONE", two="TWO")
    found = numbers()
    assert found["one"] == {"first": 1, "second": 2}[found.registrations()["one"].dist.name]
    assert (found["four"], found["two"], len(found)) == (4, 2, 3)


def test_a_thing_is_found_again_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert REWARDS.name_of(AsyncThinkReward) == "asyncthink"
    monkeypatch.chdir(PLUGIN.parent)
    shaker = ORGANIZATIONS["dice.py:Shaker"]
    assert Registry.name_of(ORGANIZATIONS, shaker) == f"{PLUGIN}:Shaker"
    variety = sys.modules[shaker.__module__].Variety
    assert REWARDS.name_of(variety) == f"{PLUGIN}:Variety", "of the same file, and looked up by nobody"
    assert REWARDS[REWARDS.name_of(variety)] is variety


FORMS = """
from dataclasses import dataclass
from itertools import repeat
from orgthink.record.episode import Grade, Problem
from orgthink.tools.tool import FunctionTool

class Counting:
    def __init__(self):
        self.count = 4
    async def run(self, problem, session):
        return str(self.count)

class Plain:
    async def run(self, problem, session):
        return "4"

@dataclass(frozen=True)
class Parrot:
    words: str = "4"
    name: str = "parrot"
    roles = ()
    async def run(self, problem, session):
        return self.words

LOUD = Parrot("44")

def quiet():
    return Parrot("")

async def function(problem, session):
    return "4"

class Sums:
    name = "two-and-two"
    def problems(self, split, seed):
        return repeat(Problem("2+2", "two-and-two", "2 + 2?"))
    def grade(self, problem, answer):
        return Grade(int(answer == "4"), 1)

SUMS = Sums()

def sums():
    return Sums()

async def look() -> str:
    "Looks."
    return "nothing"

LOOK = FunctionTool(look)

def looking():
    return LOOK
"""


@pytest.fixture
def forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forms.py").write_text(FORMS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("Plain", "4"), ("Parrot", "4"), ("LOUD", "44"), ("quiet", ""), ("function", "4"), ("Counting", "4")],
)
def test_an_organization_is_a_class_an_instance_a_factory_or_a_function(name: str, answer: str, forms: None):
    organization = OrganizationSpec(f"forms.py:{name}").named("label")
    assert organization.name == "label" and asyncio.run(organization.run(None, None)) == answer  # type: ignore[arg-type]
    assert ORGANIZATIONS.name_of(type(organization)).endswith(f"forms.py:{name}")
    if name == "LOUD":
        assert OrganizationSpec("forms.py:LOUD", {"words": "5"}).named("x").words == "5"  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", [None, "<stdin>"])
def test_a_class_of_a_notebook_is_known_to_its_process_only(file: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", file, raising=False)
    monkeypatch.setattr(ORGANIZATIONS, "_loaded", {})
    (name,) = (how.organization for how in labelled(type("Own", (Organization,), {"__module__": "__main__"})).values())
    assert name == "__main__:Own" and OrganizationSpec(name).named("own").name == "own"
    ORGANIZATIONS._loaded.clear()
    with pytest.raises(UserError, match="organization Own was made in a notebook or in a function"):
        OrganizationSpec(name).named("own")


@pytest.mark.parametrize("name", ["Sums", "SUMS", "sums"])
def test_a_task_needs_a_name_problems_and_a_grader_only(name: str, forms: None):
    task = task_named(f"forms.py:{name}")
    problem = next(task.problems("test", 0))
    assert task.grade(problem, "4").correct == 1 and [found.text for found in task.solutions(problem, " 4 ")] == ["4"]
    assert task_named(f"forms.py:{name}#exact").grade(replace(problem, data={"answer": "5"}), "5").correct == 1
    assert task_named(f"countdown#forms.py:{name}").grade(problem, "4").correct == 1


@pytest.mark.parametrize("name", ["look", "LOOK", "looking"])
def test_a_tool_is_a_function_an_instance_or_a_factory(name: str, forms: None):
    assert other_tool(f"forms.py:{name}").name == "look"


class Family:
    """Tasks by their members."""

    def __call__(self, member: str) -> Task:
        raise UserError(f"unknown member {member}")

    def lines(self, member: str) -> Iterator[str]:
        yield "no members"


def test_one_registry_tells_its_kinds_apart(forms: None, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, TASKS, kinds=Family())
    for name, words in (
        ("kinds", "kinds is a family of tasks: `orgthink list kinds`"),
        ("kinds:one", "unknown member one"),
        ("judge", "judge is not a task"),
        ("countdown#judge", "judge is not a grader"),
        ("countdown:rows.jsonl", "the task countdown takes no file"),
        ("countdown#kinds", "kinds is not a grader"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            task_named(name)
    with pytest.raises(UserError, match="shared does not fit here: it is not derived from EpisodeReward"):
        ByKind(REWARDS, EpisodeReward).read("shared")


# References


@pytest.mark.parametrize(
    "name", ["a.b:C", "x.py:C", "/a b/x.py:C", "c++/x.py:C", "x+.py:C", "x#.py:C", "../x.py:_c", "a.b.c:D1"]
)
def test_what_is_a_reference(name: str):
    assert is_reference(name) and split_reference(name) == (name, "") and list(references([name])) == [name]
    assert split_reference(f"{name}:rows.jsonl") == (name, "rows.jsonl")


@pytest.mark.parametrize(
    "name", ["countdown", "math:rows.jsonl", "a:B", "x.py", "x.py:", "http://h:1/v1", "qwen3:8b", ""]
)
def test_what_is_none(name: str):
    assert not is_reference(name) and split_reference(name) is None and not list(references({"name": name}))


def test_references_are_found_wherever_they_are():
    value = {"a": ["sudoku+x.py:T#a.b:grade", 3, None], "c.d:E": {"model": "x.py:open:rest"}}
    assert set(references(value)) == {"sudoku+x.py:T#a.b:grade", "c.d:E", "x.py:open:rest"}


@given(st.text("aZ_9.py:+#@?/- ", max_size=20), st.text("aZ_9.py:+#@?/- ", max_size=6), st.text("+#:@?/ a", max_size=4))
def test_what_can_be_loaded_is_found_in_whatever_text_it_stands(module: str, name: str, around: str):
    for reference in (f"{module}.py:{name}", f"{module}.a:{name}", module):
        if is_reference(reference) or split_reference(reference):
            assert list(references(around + reference + around))


def test_files_of_references_get_their_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x.py", "style.toml", "notes.txt"):
        Path(name).touch()
    value = {"task": "sudoku+x.py:T#x.py:g", "kind": "./x.py:C", "styles": ["style.toml", "paper"], "n": 3}
    x = tmp_path / "x.py"
    assert absolute(value) == {
        "task": f"sudoku+{x}:T#{x}:g", "kind": f"{x}:C", "styles": [str(tmp_path / "style.toml"), "paper"], "n": 3
    }  # fmt: skip
    notes = tmp_path / "notes.txt"
    tasks = [
        "math:notes.txt",
        "sudoku+math:notes.txt@1/2",
        "bench:aime25:notes.txt",
        "bench:v6:notes.txt?from=2025",
    ]
    assert absolute(tasks) == [
        f"math:{notes}", f"sudoku+math:{notes}@1/2", f"bench:aime25:{notes}", f"bench:v6:{notes}?from=2025"
    ]  # fmt: skip
    (tmp_path / "ledger").mkdir()
    assert absolute({"suite": {"corpus": "./ledger"}}) == {"suite": {"corpus": str(tmp_path / "ledger")}}
    assert absolute({"corpus": "ledger"}) == {"corpus": "ledger"}, "the name of one that is shipped"
    same = ["none.py:C", "a.b:C", "x.py", "math:none.txt", "words with x.py:C", "style.toml" * 99, "\0.py:C"]
    assert absolute(same[:2] + same[3:]) == same[:2] + same[3:]


# What strangers name


TRAP = "from pathlib import Path\nPath('sprung').touch()\nX = 1\n"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that leaves a mark if it is loaded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text(TRAP)
    return tmp_path / "trap.py"


def sprung() -> bool:
    return Path("sprung").exists()


def test_registered_names_only(trap: Path):
    with registered_only(), pytest.raises(UserError, match=r"trap\.py:X refers to code that is not installed"):
        ORGANIZATIONS.named("trap.py:X")
    assert not sprung()
    with pytest.raises(UserError, match="is not an organization: it must be an Organization"):
        ORGANIZATIONS.named("trap.py:X")
    assert sprung(), "the trap works"


@pytest.mark.parametrize("where", ["organization", "task", "tool", "style"])
def test_looking_at_a_run_loads_none_of_its_code(where: str, trap: Path, capsys: pytest.CaptureFixture[str]):
    name = f"{trap}:X"
    settings = {"tool": {"tools": [name]}, "style": {"prompts": name}}.get(where, {})
    organization = OrganizationSpec(
        name if where == "organization" else "tool-use" if settings else "sequential", settings
    )
    plan = Evaluation(name if where == "task" else "countdown", {"who": organization}, n=1)
    folder = RunFolder.create(Path("run"), "eval", plan)
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    folder.episodes_file.write_bytes(b"".join(lines))
    assert main(["view", "run"]) == main(["measure", "run"]) == 0 and Path("run/view.html").exists()
    assert not sprung()


@pytest.mark.parametrize(
    "preset",
    [
        {"prompts": "trap.py:X"},
        {"organizations": {"trap.py:X": {}}},
        {"organizations": {"tool-use": {"tools": ["trap.py:X"]}}},
        {"organizations": {"tool-use": {"servers": ["python trap.py"]}}},
        {"organizations": {"asyncthink": {"worker_tools": {"servers": ["python trap.py"]}}}},
        {"roles": {"worker": {"model": "trap.py:X:rest", "max_tokens": 3}}},
    ],
)
def test_a_models_folder_names_no_code(preset: dict, trap: Path, capsys: pytest.CaptureFixture[str]):
    Path("model").mkdir()
    Path("model/orgthink.json").write_text(json.dumps(preset))
    Path("model/config.json").write_text("{}")
    assert main(["run", "1 + 1?", "--model", "model", "--organization", "tool-use"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and ("names code, trap.py:X" in said or "runs commands" in said)
    assert not sprung()


# Engines and tools by name


@pytest.mark.parametrize(
    ("model", "engine"),
    [("local:FOLDER", "local"), ("FOLDER", "local"), ("vllm:FOLDER", "vllm"), ("x.py:open", "x.py:open"),
     ("x.py:open:some rest: all of it", "x.py:open")],
)  # fmt: skip
def test_which_engine_a_model_names(model: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    Path("FOLDER").mkdir()
    spec = engine_spec(model)
    assert (spec.engine, spec.url) == (engine, None)
    assert spec.folder == (tmp_path / "FOLDER" if "FOLDER" in model else None)
    assert engine_spec("qwen3:8b").engine is None, "a server's name for a model may have a colon"
    assert replace(spec, url="http://localhost:1/v1") == EngineSpec(spec.model, "http://localhost:1/v1")


def test_tools_are_named_as_they_name_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(
        'async def python(code: str) -> str:\n    "Runs."\n\nasync def roll(n):\n    "Rolls."\n\nX = 3\n'
        'async def dice(n: int = 6) -> str:\n    "Throws a die."\n    return str(n)\n'
    )
    dice = other_tool("t.py:dice")
    assert (dice.name, dice.description, list(dice.parameters.schema["properties"])) == ("dice", "Throws a die.", ["n"])
    assert list(toolbox(["standard_reasoner", "t.py:dice"], (), dice, dice, brief=False)) == [
        "standard_reasoner",
        "dice",
    ]
    for name, words in (
        ("t.py:python", "calls itself python, as one of the suite"),
        ("t.py:roll", "give n a type hint"),
        ("t.py:X", "must be a Tool"),
        ("pyton", "did you mean python?"),
    ):
        with pytest.raises(UserError, match=words):
            ORGANIZATIONS["tool-use"](tools=(name,))
    with pytest.raises(UserError, match="there is a tool dice already"):
        toolbox(["t.py:dice", "t.py:dice"], (), dice, dice, brief=False)


# The list of names


@pytest.mark.parametrize(
    ("task", "short"),
    [
        ("countdown", "countdown"),
        ("math:a/rows.jsonl", "math"),
        ("sudoku+math:a/rows.jsonl#exact", "sudoku+math"),
        ("/a/b/mine.py:Dice", "Dice"),
        ("sudoku+b/mine.py:Dice", "sudoku+Dice"),
        ("mine.py:Reader:a/rows.jsonl#grade.py:ours", "Reader"),
        ("package.module:Dice", "Dice"),
        ("/a/b/rows.jsonl#exact", "rows.jsonl"),
        ("hf:openai/gsm8k:main", "openai/gsm8k"),
    ],
)
def test_a_run_is_called_after_its_task_and_not_after_files(task: str, short: str):
    assert short_name(task) == short


def test_every_registry_of_the_package_is_listed():
    """What a plug-in can offer, `orgthink list` shows."""
    wanted = re.compile(r'Registry(?:\[[^=]*?\])?\(\s*"[^"]+",\s*"(orgthink\.[\w-]+)"')
    files = Path(orgthink.__file__).parent.rglob("*.py")
    groups = {group for file in files for group in wanted.findall(file.read_text())}
    listed = {getattr(import_module(module), name).group for module, name in (w.split(":") for w in KINDS.values())}
    assert len(groups) <= 9 and listed == groups


def test_the_list_of_recipes_has_those_that_can_be_run(capsys):
    """Kinds of training, which a recipe configures, are listed on request."""
    pytest.importorskip("torch")
    from orgthink.training.recipes.registry import RECIPES

    listed = []
    for more in ([], ["--all"]):
        assert main(["list", "recipes", *more]) == 0
        listed.append({line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]})
    assert listed[1] == set(RECIPES)
    assert listed[0] == {name for name in RECIPES if not isinstance(RECIPES[name], type)}
    assert "policy" not in listed[0] and "asyncthink-qwen3-math" in listed[0]
