"""Files that name more than data: code, servers and folders, modules in the current folder, types that are odd."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from models import tiny_model
from small import TASK
from terse import TERSE

import orgthink
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluate.presets import preset_of
from orgthink.tasks import task_named
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

DATA = "A file of problems is data: no code that it names, or that lies beside it, is run."
OWN = "A model's preset names what is installed: neither a server nor a folder of this machine."
ROWS = "A file of problems that cannot be read is one line that names it."
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


@each(
    Attack("a row that asks for no solution", ROWS, LINE, 0),
    Attack("a row that asks for −1 solutions", ROWS, LINE, -1),
    Attack("a row that asks for 10⁴⁰⁰ solutions", ROWS, LINE, 10**400),
)
def test_a_row_asks_for_a_number_that_cannot_be(attack: Attack, here: Path) -> None:
    (here / "rows.jsonl").write_text(row(extra={"required": attack.given}))
    with pytest.raises(UserError, match=r"rows\.jsonl, row 1: it asks for"):
        next(task_named("verl:rows.jsonl").problems("test", 0))


def nested(depth: int) -> str:
    """A row whose data are so deep."""
    return row(reward_model={"ground_truth": '{"answer": "2", "x": %s}' % ("[" * depth + "]" * depth)})


@each(
    Attack("a row whose data nest 64 deep", ROWS, LINE, ("verl", nested(64))),
    Attack("a row whose data nest 300 deep", ROWS, LINE, ("verl", nested(300))),
    Attack("a row whose data nest 900 deep", ROWS, LINE, ("verl", nested(900))),
    Attack("a row whose id has half a surrogate", ROWS, LINE, ("verl", row(extra={"id": "\ud800"}))),
    Attack("a puzzle with a cell of infinity", ROWS, LINE, ("sudoku", '{"meta": {"question": [[1e999, 0, 0, 0]]}}')),
    Attack("a puzzle nested 100,000 deep", ROWS, LINE, ("sudoku", json.dumps({"meta": "[" * 100_000}))),
)
def test_a_row_that_cannot_be(attack: Attack, here: Path) -> None:
    task, text = attack.given
    (here / "rows.jsonl").write_text(text)
    with pytest.raises(UserError, match=r"rows\.jsonl, row 1: ") as caught:
        next(task_named(f"{task}:rows.jsonl").problems("test", 0))
    str(caught.value).encode()


def truth(task: str, **data: Any) -> str:
    """A row of a task with these data."""
    return row(data_source=f"orgthink/{task}", reward_model={"style": "rule", "ground_truth": json.dumps(data)})


GRADED = "Rows are graded by their task, or named when they are read."


@each(
    Attack("a row of `math` without an answer", GRADED, LINE, truth("math")),
    Attack("a row of `math` whose answer is a number", GRADED, LINE, truth("math", answer=5)),
    Attack("a row of `math` whose answer is empty", GRADED, LINE, truth("math", answer=" ")),
    Attack("a row of `sudoku` with three lines", GRADED, LINE, truth("sudoku", clues=[[0] * 4] * 3)),
    Attack("a row of `sudoku` with a line that is a number", GRADED, LINE, truth("sudoku", clues=[0] * 4)),
    Attack("a row of `sudoku` with a cell of 9", GRADED, LINE, truth("sudoku", clues=[[9] * 4] * 4)),
    Attack("a row of `countdown` whose numbers are a text", GRADED, LINE, truth("countdown", numbers="12", target=3)),
    Attack("a row of `countdown` without a target", GRADED, LINE, truth("countdown", numbers=[1, 2])),
)
def test_a_row_that_its_task_cannot_grade(attack: Attack, here: Path) -> None:
    (here / "rows.jsonl").write_text(truth("math", answer="2") + "\n" + attack.given)
    with pytest.raises(UserError, match=r"rows\.jsonl, row 2: its ground truth is none of") as caught:
        next(task_named("verl:rows.jsonl").problems("test", 0))
    assert "\n" not in str(caught.value)


@each(
    Attack("the current folder holds a module of a library", DATA, "it is not read", "math_verify.py"),
    Attack("the current folder holds a module of Python", DATA, "it is not read", "signal.py"),
)
def test_a_grader_in_a_foreign_folder(attack: Attack, here: Path) -> None:
    pytest.importorskip("math_verify")
    (here / attack.given).write_text("open('ran', 'w').close()\nraise SystemExit")
    root = str(Path(orgthink.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r}); from orgthink.tasks.math_verifier import is_same"
    command = [sys.executable, "-I", "-c", f"{code}; print(is_same('x+1', '1+x'))"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True\n" and not (here / "ran").exists()


DAY = datetime.datetime(2020, 1, 1)


@each(
    Attack("a time in a zone that is none", ROWS, LINE, lambda a: a.array([DAY], a.timestamp("us", "Mars/Phobos"))),
    Attack("a time in a zone with a path", ROWS, LINE, lambda a: a.array([DAY], a.timestamp("us", "../../etc/passwd"))),
    Attack("a day in three million years", ROWS, LINE, lambda a: a.array([2**30], a.int32()).cast(a.date32())),
)
def test_a_table_of_odd_types(attack: Attack, here: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {"problem": pyarrow.array(["1 + 1"]), "answer": attack.given(pyarrow)}
    parquet.write_table(pyarrow.table(table), here / "rows.parquet")
    with pytest.raises(UserError, match=r"rows\.parquet cannot be read as parquet"):
        next(task_named("math:rows.parquet").problems("test", 0))


def suite(organization: str = "paramanager", **settings: str) -> dict[str, Any]:
    return {"organizations": {organization: {"suite": settings}}}


@each(
    Attack("a model's preset searches at a stranger's server", OWN, LINE, suite(corpus="http://localhost:9/x")),
    Attack("a model's preset searches a folder of yours", OWN, LINE, suite(corpus="/")),
    Attack("a model's preset runs programs at a stranger's server", OWN, LINE, suite(sandbox="http://localhost:9")),
    Attack("a preset of tool-use searches elsewhere", OWN, LINE, suite("tool-use", corpus="https://localhost:9")),
)
def test_a_preset_that_reaches_out(attack: Attack, here: Path) -> None:
    (here / "orgthink.json").write_text(json.dumps(attack.given))
    with pytest.raises(UserError, match="what is installed, and nothing else"):
        preset_of(EngineSpec(str(here)))


def organization(name: str, **settings: str) -> dict[str, Any]:
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


KERNEL = {"_attn_implementation": "evil/kernels"}


@each(
    Attack("a model's config names a program of the Hub", OWN, LINE, changed("config.json", **KERNEL)),
    Attack("a part of a model's config names a program of the Hub", OWN, LINE,
           changed("config.json", sub_configs=[{"text_config": KERNEL}])),
    Attack("a model's config asks for a library that is not here", MODEL, LINE,
           changed("config.json", quantization_config={"quant_method": "gptq", "bits": 4})),
    Attack("a model is quantized by a list", MODEL, LINE,
           changed("config.json", quantization_config={"quant_method": [1]})),
    Attack("a model's type is a list", MODEL, LINE, changed("config.json", model_type=["x"])),
    Attack("a model folder has an adapter that is a list", MODEL, LINE,
           lambda model: (model / "adapter_config.json").write_text("[1]")),
    Attack("a model generates by a list", MODEL, LINE,
           lambda model: (model / "generation_config.json").write_text("[1]")),
)  # fmt: skip
def test_a_model_to_train(attack: Attack, here: Path) -> None:
    pytest.importorskip("peft")
    from orgthink.models.trainable import LoraSettings, open_trainable

    model = tiny_model(here / "model", "words")
    attack.given(model)
    with pytest.raises(UserError, match="model") as caught:
        open_trainable(model, LoraSettings(2))
    assert "\n" not in str(caught.value)
