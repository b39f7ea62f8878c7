"""Wrong command lines and missing packages: nothing is dropped in silence, and every complaint says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.serving import serving
from loopback import says

import orgthink
from orgthink.cli import main
from orgthink.cli.eval import Eval
from orgthink.cli.export import Export
from orgthink.cli.repeated import gathered
from orgthink.cli.run import RunCommand
from orgthink.record.folder import RunFolder
from orgthink.util.registry import COMMANDS

pytestmark = pytest.mark.thorough

ROOT = Path(orgthink.__file__).parent.parent
SERVER = ("--url", "http://127.0.0.1:9", "--model", "m")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


APPENDED = "An option with several values that is given again adds its values: none is dropped in silence"
ALL = "all of them"


@each(
    Attack("--set twice", APPENDED, ALL, (RunCommand, "--set a=1 --set b=2", "--set a=1 b=2")),
    Attack("--set three times, with others between", APPENDED, ALL,
           (RunCommand, "x --set a=1 --n 3 --set b=2 c=3 --renew --set d=4", "x --set a=1 b=2 c=3 d=4 --n 3 --renew")),
    Attack("--set=… twice", APPENDED, ALL, (RunCommand, "--set=a=1 --set=b=2", "--set a=1 b=2")),
    Attack("--set twice for one setting", APPENDED, "the later value",
           (RunCommand, "--set a=1 --set a=2", "--set a=1 a=2")),
    Attack("--roles twice", APPENDED, ALL, (RunCommand, "--roles a=m --roles b=n", "--roles a=m b=n")),
    Attack("--sampling twice, which has another name in the code", APPENDED, ALL,
           (RunCommand, "--sampling a.b=1 --sampling c.d=2", "--sampling a.b=1 c.d=2")),
    Attack("--organizations twice", APPENDED, ALL,
           (Eval, "--organizations a --organizations b", "--organizations a b")),
    Attack("--models twice", APPENDED, ALL, (Eval, "--models a=m --n 3 --models b=n", "--models a=m b=n --n 3")),
    Attack("--set twice in a subcommand", APPENDED, ALL,
           (Export, "export rows d --set a=1 --to trl --set b=2", "export rows d --set a=1 b=2 --to trl")),
    Attack("--seed twice", "Of an option with one value the last counts, as everywhere", "the last one",
           (RunCommand, "--seed 1 --seed 2", "--seed 1 --seed 2")),
)  # fmt: skip
def test_an_option_is_given_again(attack: Attack) -> None:
    command, given, wanted = attack.given
    assert gathered(given.split(), command) == wanted.split()


@each(
    Attack(
        "the first of two --set is wrong",
        APPENDED,
        "exit code 2: it is read",
        ["--set", "no_such=1", "--set", "tolerant=true"],
    ),
    Attack(
        "the first of two --sampling is wrong",
        APPENDED,
        "exit code 2: it is read",
        ["--sampling", "worker.no_such=1", "--sampling", "worker.top_p=0.5"],
    ),
    Attack(
        "the first of two --roles is wrong",
        APPENDED,
        "exit code 2: it is read",
        ["--roles", "no_such=m", "--roles", "worker=m"],
    ),
)
def test_the_first_is_read(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x", *SERVER, *attack.given]) == 2
    err = capsys.readouterr().err
    assert "no_such" in err and err.count("\n") == 1


LISTS = "An option that is given again adds its values in every command that has it"


@each(Attack("an option with several values of any command is given again", LISTS, ALL, "--set"))
def test_every_command(attack: Attack) -> None:
    found = [name for name in ("run", "eval", "train", "export", "size") if name in COMMANDS]
    for name in found:
        assert gathered([attack.given, "a", "--x", attack.given, "b"], COMMANDS[name]) == [
            attack.given,
            "a",
            "b",
            "--x",
        ]


WRONG = "A combination of options that cannot be is one line that says why"
LINE = "exit code 2"


@each(
    Attack("--resume with other options", WRONG, LINE, ["eval", "--resume", "x", "--n", "3"]),
    Attack("--resume of nothing", WRONG, LINE, ["eval", "--resume", "/no/such"]),
    Attack("an option without its value", WRONG, LINE, ["run", "x", "--url"]),
    Attack("an unknown option", WRONG, LINE, ["run", "x", "--no-such"]),
    Attack("an unknown command", WRONG, LINE, ["rum"]),
    Attack("two problems", WRONG, LINE, ["run", "x", "y", *SERVER]),
    Attack("an empty problem", WRONG, LINE, ["run", " ", *SERVER]),
    Attack("no capacity", WRONG, LINE, ["run", "x", *SERVER, "--capacity", "0"]),
    Attack("fewer than no tokens", WRONG, LINE, ["run", "x", *SERVER, "--max-tokens", "-1"]),
    Attack("a temperature that is no number", WRONG, LINE, ["run", "x", *SERVER, "--temperature", "nan"]),
    Attack("an endless temperature", WRONG, LINE, ["run", "x", *SERVER, "--temperature", "inf"]),
    Attack("a number of more digits than Python reads", WRONG, LINE, ["run", "x", *SERVER, "--seed", "9" * 5000]),
    Attack("no streams", WRONG, LINE, ["run", "x", *SERVER, "--streams", "0"]),
    Attack("no episodes at once", WRONG, LINE, ["eval", *SERVER, "--task", "countdown", "--concurrency", "0"]),
    Attack("no problems", WRONG, LINE, ["eval", *SERVER, "--task", "countdown", "--n", "0"]),
    Attack("a deadline of no seconds", WRONG, LINE, ["run", "x", *SERVER, "--deadline", "0"]),
    Attack("a deadline before the start", WRONG, LINE, ["run", "x", *SERVER, "--deadline", "-5"]),
    Attack("a tokenizer without a server", WRONG, LINE, ["run", "x", "--model", ".", "--tokenizer", "."]),
    Attack("a tokenizer that is no folder", WRONG, LINE, ["run", "x", *SERVER, "--tokenizer", "/no/such"]),
    Attack("a role twice", WRONG, LINE, ["run", "x", *SERVER, "--roles", "worker=a", "worker=b"]),
    Attack("a sampling twice", WRONG, LINE, ["run", "x", *SERVER, "--sampling", "worker.top_p=1", "worker.top_p=0.5"]),
    Attack("an organization twice", WRONG, LINE, ["eval", *SERVER, "--organizations", "sequential", "sequential"]),
    Attack("a model for no organization", WRONG, LINE, ["eval", *SERVER, "--task", "countdown", "--models", "no=m"]),
    Attack("a setting without its value", WRONG, LINE, ["run", "x", *SERVER, "--set", "tolerant="]),
    Attack("a setting without a name", WRONG, LINE, ["run", "x", *SERVER, "--set", "=1"]),
    Attack("a setting of a setting that has none", WRONG, LINE, ["run", "x", *SERVER, "--set", "tolerant.x.y=1"]),
    Attack(
        "a setting of JSON nested without end", WRONG, LINE, ["run", "x", *SERVER, "--set", "overflow=" + "[" * 9999]
    ),
    Attack("text pages and a file at once", WRONG, LINE, ["view", ".", "--transcript", "--out", "x.html"]),
    Attack(
        "a run folder that is a file", WRONG, LINE, ["eval", *SERVER, "--task", "countdown", "--out", "pyproject.toml"]
    ),
    Attack("a file for a folder to read", WRONG, LINE, ["view", "pyproject.toml"]),
    Attack("a cluster without verl", WRONG, LINE, ["train", "no-recipe", "--cluster", "nodes=2"]),
)
def test_a_wrong_combination(
    attack: Attack, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(attack.given) == 2
    out, err = capfd.readouterr()
    assert err.startswith("orgthink: ") and err.count("\n") == 1 and out == "", err


HUGE = "A number or an input that is too large to work with is one line, and no memory is taken for it."
NINES = "9" * 400
EVALUATE = ["eval", *SERVER, "--task", "math:p.jsonl", "--organizations", "sequential"]
SIZE = ["size", "qwen3-4b", "--assume", "problems=8", "group=8", "agents=2", "prompt=9", "injected=9", "sampled=9"]


def few(up_to: Any) -> Any:
    """Of a task without end, that many problems without making them."""

    def given(name: str, split: Any, seed: int, n: int) -> Any:
        return range(n) if name == "countdown" else up_to(name, split, seed, n)

    return given


MEASURED = '{"capacity": 2, "organizer": "<ANSWER> 1 </ANSWER>", "workers": {}}'


PLACES = "A place that does not exist is named, and only what is asked for is made."


@each(
    Attack("the current folder was removed", PLACES, "one line that says so, exit code 2", ["view", "x", "--out", "y"])
)
def test_the_current_folder_is_gone(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    run = tmp_path / "run"
    RunFolder.create(run, "serve", {})
    argv = [str(run) if each == "x" else each for each in attack.given]
    (gone := tmp_path / "gone").mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert main(argv) == 2
    assert capfd.readouterr().err == "orgthink: the current folder: No such file or directory\n"


INSTALLED = "What is wrong with an installed package is one line that names it or what it registers."


@each(
    *(
        Attack(does, INSTALLED, LINE, (entries, argv, "the entry points of an installed package cannot be read"))
        for argv in (["--help"], ["measure", "-"])
        for does, entries in (
            (f"a package with the entry point `foo = !!!`, in `{argv[0]}`", b"[orgthink.commands]\nfoo = !!!\n"),
            (f"a package with an entry point without a value, in `{argv[0]}`", b"[orgthink.commands]\nfoo =\n"),
            (f"a package with an entry point without `=`, in `{argv[0]}`", b"[other]\nfoo\n"),
            (f"a package with entry points that are not UTF-8, in `{argv[0]}`", b"[other]\nf\xff = os:path\n"),
        )
    ),
    Attack("a package whose command is a text", INSTALLED, LINE,
           (b"[orgthink.commands]\nfoo = os:sep\n", ["--help"], "foo is not a command")),
)  # fmt: skip
def test_a_broken_package(attack: Attack, tmp_path: Path) -> None:
    entries, argv, why = attack.given
    (info := tmp_path / "broken-1.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_bytes(entries)
    path = os.pathsep.join((str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "orgthink", *argv], env=os.environ | {"PYTHONPATH": path}, input="{",
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and why in done.stderr, done.stderr


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {
            "torch", "tokenizers", "safetensors", "jinja2", "transformers", "peft", "pyarrow", "mcp", "vllm",
            "math_verify", "matplotlib", "sentence_transformers", "orgthink_pocket",
        }:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from importlib import metadata
entry_points = metadata.entry_points
metadata.entry_points = lambda **of: tuple(e for e in entry_points(**of) if not e.value.startswith("orgthink_pocket"))
from orgthink.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""orgthink as `pip install orgthink` leaves it: no extra is installed."""


def without_extras(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    command: list[Any] = [sys.executable, "-c", ABSENT, *arguments]
    return subprocess.run(
        command, cwd=cwd, env=clean | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )


SERVED = "Without any extra a model behind a URL works"


@each(
    Attack("no extra is installed, and a problem is solved", SERVED, "the answer", ["run", "What?"]),
    Attack("no extra is installed, and parallel thinkers vote", SERVED, "the answer",
           ["run", "What?", "--organization", "majority-vote"]),
    Attack("no extra is installed, and a task is evaluated", SERVED, "the table",
           ["eval", "--task", "countdown", "--n", "1", "--organizations", "sequential", "--out", "run"]),
)  # fmt: skip
def test_a_server_without_extras(attack: Attack, tmp_path: Path) -> None:
    with serving(*[says("<ANSWER> 42 </ANSWER>")] * 8) as server:
        done = without_extras(*attack.given, "--url", server.url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout or "all correct" in done.stdout


INSTALL = "What needs an extra says in one line which to install"


@each(
    Attack("no extra is installed, and token ids are wanted", INSTALL, LINE, ["run", "x", *SERVER, "--tokenizer", "."]),
    Attack("no extra is installed, and a model folder is opened", INSTALL, LINE, ["run", "x", "--model", "."]),
    Attack("no extra is installed, and vLLM is named", INSTALL, LINE, ["run", "x", "--model", "vllm:."]),
    Attack("no extra is installed, and a model is trained", INSTALL, LINE, ["train", "asyncthink-qwen3-math"]),
    Attack("no extra is installed, and recipes are listed", INSTALL, LINE, ["list", "recipes"]),
    Attack(
        "no extra is installed, and parquet is read", INSTALL, LINE, ["eval", *SERVER, "--task", "math:rows.parquet"]
    ),
    Attack(
        "no extra is installed, and parquet is written",
        INSTALL,
        LINE,
        ["export", "problems", "countdown", "--out", "x"],
    ),
    Attack("no extra is installed, and a training is sized", INSTALL, LINE, ["size", "Qwen3-4B", "--gpu", "h100"]),
)
def test_what_to_install(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").touch()
    (tmp_path / "config.json").write_text("{}")
    done = without_extras(*attack.given, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "pip install 'orgthink[" in done.stderr
