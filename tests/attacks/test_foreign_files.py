"""Files that name more than data: code, servers and folders, modules in the current folder, types that are odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from models import tiny_model
from small import TASK
from terse import TERSE

from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import preset_of
from orgthink.tasks import task_named
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

DATA = "A file of problems is data: no code that it names, or that lies beside it, is run."
OWN = "A model's preset names what is installed: neither a server nor a folder of this machine."
MODEL = "A model folder that cannot be used is one line that names it."
LINE = "one line, exit code 2"

CODE = "open('ran', 'w').close()\nfrom orgthink.tasks.sudoku import SUDOKU as TASK\n"


def row(**changes: Any) -> str:
    truth = {"style": "rule", "ground_truth": json.dumps({"answer": "2"})}
    extra = {"id": "p", "required": 1, "instruction": ""}
    found = {"data_source": "orgthink/math", "prompt": [{"role": "user", "content": "1 + 1"}]}
    return json.dumps(found | {"reward_model": truth, "extra_info": extra | changes.pop("extra", {})} | changes)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each(
    Attack("a row whose task is a file of code", DATA, LINE, "evil.py:TASK"),
    Attack("a row whose task is a mixture with a file of code", DATA, LINE, "countdown+evil.py:TASK"),
    Attack("a row whose grader is a file of code", DATA, LINE, "countdown#evil.py:TASK"),
    Attack("a row whose task is a function of a module", DATA, LINE, "os.path:join"),
    Attack("a row whose task is a file of code with a plus before `.py`", DATA, LINE, "evil+.py:TASK"),
    Attack("a row whose task is a file of code with a `#` before `.py`", DATA, LINE, "evil#.py:TASK"),
    Attack("a row whose grader is a file of code with a `#` before `.py`", DATA, LINE, "countdown#evil#.py:TASK"),
)
def test_a_row_names_code(attack: Attack, here: Path) -> None:
    for name in ("evil.py", "evil+.py", "evil#.py"):
        (here / name).write_text(CODE)
    (here / "rows.jsonl").write_text(row(data_source=f"orgthink/{attack.given}"))
    task = task_named("verl:rows.jsonl")
    with pytest.raises(UserError, match=r"rows\.jsonl, row 1") as caught:
        task.grade(next(task.problems("test", 0)), "2")
    assert "\n" not in str(caught.value) and not (here / "ran").exists()


def truth(task: str, **data: Any) -> str:
    """A row of a task with these data."""
    return row(data_source=f"orgthink/{task}", reward_model={"style": "rule", "ground_truth": json.dumps(data)})


def suite(organization: str = "paramanager", **settings: Any) -> dict[str, Any]:
    return {"organizations": {organization: {"suite": settings}}}


def organization(name: str, **settings: Any) -> dict[str, Any]:
    return {"organizations": {name: settings}}


def partner(model: str) -> dict[str, Any]:
    return {"roles": {"thinker": {"model": model, "max_tokens": 4}}}


@each(
    Attack("a model's preset names a folder of yours for a role", OWN, LINE, partner("yours")),
    Attack("a model's preset names a folder of yours and an engine for a role", OWN, LINE, partner("local:yours")),
    Attack("a model's preset starts an engine of a folder for a role", OWN, LINE, partner("vllm:yours")),
    Attack("a model's preset takes its prompts from a file of yours", OWN, LINE, {"prompts": "yours/own.toml"}),
    Attack("a preset of an organization takes its prompts from a file of yours", OWN, LINE,
           organization("sequential", prompts="yours/own.toml")),
    Attack("a preset of the puppeteer reads a file of yours", OWN, LINE, organization("puppeteer", policy="yours/x")),
    Attack("a preset gives its programs a thousand processes", OWN, LINE, suite(limits={"processes": 1000})),
    Attack("a preset shows the graders to its programs", OWN, LINE, suite(limits={"packages": ["orgthink"]})),
)  # fmt: skip
def test_a_preset_that_reads_what_is_yours(attack: Attack, here: Path) -> None:
    (here / "yours").mkdir()
    (here / "yours" / "own.toml").write_text('sequential = "{question} and a secret"')
    (here / "orgthink.json").write_text(json.dumps(attack.given))
    with pytest.raises(UserError, match="what is installed, and nothing else") as caught:
        preset_of(EngineSpec(str(here)))
    assert "\n" not in str(caught.value)


NAMES = "A model's preset names no code, wherever the name stands and whatever the file is called."


@each(
    Attack("a preset's prompts are a file of code with a plus before `.py`", NAMES, LINE,
           {"prompts": "yours/s+.py:TASK"}),
    Attack("a preset of an organization takes its prompts from a file of code with a `#` before `.py`", NAMES, LINE,
           organization("sequential", prompts="yours/s#.py:TASK")),
    Attack("a preset's tool is a file of code with a plus before `.py`", NAMES, LINE,
           {"organizations": {"tool-use": {"tools": ["yours/s+.py:TASK"]}}}),
    Attack("a preset's organization is a file of code with a plus before `.py`", NAMES, LINE,
           organization("yours/s+.py:TASK")),
    Attack("a preset's corpus is a file of code with a plus before `.py`", NAMES, LINE,
           suite(corpus="yours/s+.py:TASK")),
    Attack("a preset's role is an engine in a file of code with a plus before `.py`", NAMES, LINE,
           partner("yours/s+.py:TASK:rest")),
)  # fmt: skip
def test_a_preset_that_names_code(attack: Attack, here: Path) -> None:
    (here / "yours").mkdir()
    for name in ("s+.py", "s#.py"):
        (here / "yours" / name).write_text(CODE)
    (here / "orgthink.json").write_text(json.dumps(attack.given))
    with pytest.raises(UserError, match="what is installed, and nothing else") as caught:
        preset_of(EngineSpec(str(here)))
    assert "\n" not in str(caught.value) and not (here / "ran").exists()


def changed(name: str, **values: Any) -> Callable[[Path], object]:
    def change(model: Path) -> None:
        found = json.loads((model / name).read_text()) if (model / name).exists() else {}
        (model / name).write_text(json.dumps(found | values))

    return change


NO_WORDS = {"type": "WordLevel", "vocab": {}, "unk_token": "?"}


@each(
    Attack("a model ends its text with a list of lists", MODEL, LINE, changed("config.json", eos_token_id=[[1]])),
    Attack("a model ends its text with an object", MODEL, LINE, changed("config.json", eos_token_id={"a": 1})),
    Attack("a model ends its text with a word", MODEL, LINE, changed("config.json", eos_token_id=["x"])),
    Attack("a model was trained with a pool of 10³⁰", MODEL, LINE, changed("orgthink.json", capacity=10**30)),
    Attack("a model's tokenizer knows no word", MODEL, LINE, changed("tokenizer.json", model=NO_WORDS)),
)
def test_a_model_of_odd_types(attack: Attack, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model(here / "model", "words")
    (model / "generation_config.json").unlink(missing_ok=True)
    attack.given(model)
    how = ["--prompts", TERSE, "--organizations", "sequential", "--n", "1", "--max-tokens", "4", "--out", "run"]
    assert main(["eval", *how, "--model", "model", "--task", TASK]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "model" in line and "Traceback" not in line
