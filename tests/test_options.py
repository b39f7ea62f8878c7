"""Options: help in groups, values that are repeated, files of options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models import tiny_model
from small_recipes import RECIPE
from test_cli import SMALL, complaint, toy  # noqa: F401  # toy is a fixture

from orgthink.cli import _verb, main
from orgthink.cli.help import COMMAND_GROUPS, OPTION_GROUPS
from orgthink.cli.train import Train
from orgthink.record.folder import RunFolder
from orgthink.util.registry import COMMANDS


def help_of(*command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert not end.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_the_overview_has_every_command_in_a_group(argv: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(argv) == 0
    out = capsys.readouterr().out
    places = [out.index(f"\n{group}\n") for group in (*COMMAND_GROUPS, "tools")]
    assert places == sorted(places) and "--version" in out
    for name in COMMANDS.registrations():
        assert out.count(f"\n  {name} ") == 1
    assert places[0] < out.index("\n  eval ") < places[1] < out.index("\n  train ") < places[2]


def test_a_help_text_is_broken_where_the_terminal_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "400")
    assert "`hf:NAME`, a data set of the hub" in help_of("eval", capsys=capsys), "and not where its source is"


def test_a_long_help_has_groups_and_keeps_its_words(capsys: pytest.CaptureFixture[str]):
    text = help_of("eval", capsys=capsys)
    places = [text.index(f"{group} options") for group in OPTION_GROUPS]
    assert places == sorted(places)
    assert places[0] < text.index("--task STR") < places[1] < text.index("--url STR") < places[2]
    assert "Let organizations solve problems" in text and "(default: sequential parallel" in text


@pytest.mark.parametrize("name", COMMANDS.registrations())
def test_no_default_is_empty(name: str, capsys: pytest.CaptureFixture[str]):
    parts = ["problems", "rows", "otlp"] if name == "export" else [""]
    for part in parts:
        text = " ".join(help_of(name, *filter(None, [part]), capsys=capsys).replace("│", " ").split())
        assert "(default: None)" not in text and "(default: False)" not in text and "(default: )" not in text


def test_an_option_with_several_values_is_repeated():
    argv = "eval --set a=1 b=2 --n 3 --set=c=3 --organizations x=asyncthink sequential --template a=1 --template b=2"
    made = _verb(argv.split())
    assert (made.set, made.n, made.template) == (("a=1", "b=2", "c=3"), 3, ("a=1", "b=2"))
    assert made.organizations == ("x=asyncthink", "sequential")
    assert _verb(["eval"]).organizations == ("sequential", "parallel", "asyncthink")
    assert _verb(["models", "fetch", "smollm2"]).what == ("fetch", "smollm2")
    assert _verb(["compare", "a", "b", "--organizations", "c", "d"]).organizations == ("c", "d")


def test_the_completion_knows_commands_and_options(tmp_path: Path):
    with pytest.raises(SystemExit) as end:
        main(["--tyro-write-completion", "bash", str(tmp_path / "orgthink")])
    assert not end.value.code
    text = (tmp_path / "orgthink").read_text()
    assert "complete -F" in text
    for word in ("'eval'", "'serve'", "--max-tokens", "--dry-run"):
        assert word in text


FILE = """
task = "countdown-small"
n = 7
max-tokens = 99
organizations = ["sequential", "asyncthink"]
set = ["asyncthink.tolerant=true"]
sampling = ["worker.top_p=0.5"]
temperature = 0.5
seed = 4
renew = true
prices = "prices.toml"
"""


def test_options_of_the_command_line_win_over_those_of_a_file(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    made = _verb(["eval", "--config", str(file)])
    assert (made.task, made.n, made.max_tokens, made.temperature, made.renew) == ("countdown-small", 7, 99, 0.5, True)
    assert made.organizations == ("sequential", "asyncthink") and made.set == ("asyncthink.tolerant=true",)
    assert made.prices == Path("prices.toml") and made.samples is None
    own = "--seed 0 --temperature 1 --set overflow=queue --no-renew --n 2 --organizations sequential"
    made = _verb(["eval", *own.split(), "--config", str(file)])
    assert (made.seed, made.temperature, made.n, made.max_tokens, made.renew) == (0, 1.0, 2, 99, False)
    assert made.organizations == ("sequential",) and made.set == ("overflow=queue",)
    file.write_text('recipe = "asyncthink"\nmodel = "m"\nsteps = 3\n')
    assert _verb(["train", "--config", str(file)]) == Train("asyncthink", model="m", steps=3, config=file)
    assert _verb(["train", "other", "--config", str(file)]).recipe == "other"
    file.write_text('problem = "1 + 1"\n')
    assert _verb(["run", "--config", str(file)]).problem == "1 + 1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max-token = 3", "mine.toml has no 'max_token': did you mean max_tokens?"),
        ('n = "many"', "mine.toml: n: Input should be a valid integer"),
        ('set = "tolerant=true"', "mine.toml: set: Input should be a valid tuple"),
        ("n =", "mine.toml cannot be read"),
        (None, "mine.toml cannot be read"),
    ],
)
def test_a_bad_file_of_options_is_one_line(
    text: str | None, says: str, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("mine.toml").write_text(text)
    assert main(["eval", "--config", "mine.toml"]) == 2
    assert says in complaint(capsys)


def settings(run: str) -> Any:
    return json.loads(Path(run, "config.json").read_text())["settings"]


@pytest.mark.parametrize(
    "argv",
    [
        [*SMALL, "--organizations", "sequential", "mine=asyncthink", "--set", "mine.overflow=queue", "--seed", "7"],
        ["eval", "--n", "2", "--renew", "--sampling", "worker.max_tokens=9", "--capacity", "3", "--deadline", "9.5"],
        ["run", 'countdown 3 4 5 = 12, "a\n\\b"', "--organization", "asyncthink", "--seed", "3"],
    ],
)  # fmt: skip
def test_every_run_writes_the_file_that_repeats_it(argv: list[str], toy):  # noqa: F811
    assert main([*argv, "--out", "first"]) == 0
    assert main([argv[0], "--config", "first/run.toml", "--out", "second"]) == 0
    assert settings("second") == settings("first")
    assert Path("second/run.toml").read_text() == Path("first/run.toml").read_text()
    problems = [
        {episode.problem.text for episode in RunFolder.open(Path(one)).episodes()} for one in ("first", "second")
    ]
    assert problems[0] == problems[1]


def test_a_run_is_repeated_from_another_directory(toy, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    for folder in ("data/docs", "elsewhere"):
        Path(folder).mkdir(parents=True)
    Path("data/mine.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    given = ["--task", "data/mine.jsonl", "--n", "1", "--organizations", "self-refine", "tool-use"]
    main(["eval", *given, "--set", "suite.corpus=data/docs", "--out", "first"])
    monkeypatch.chdir("elsewhere")
    main(["eval", "--config", "../first/run.toml", "--out", "second"])
    assert settings("second") == settings("../first")
    text = Path("second/run.toml").read_text()
    assert f'task = "{Path("../data/mine.jsonl").resolve()}"' in text
    assert f'"suite.corpus={Path("../data/docs").resolve()}"' in text and "self-refine" in text


def test_a_training_writes_the_file_that_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orgthink.training.recipes.registry.go_on", lambda folder, report: folder.path)
    given = ["train", RECIPE, "--model", str(tiny_model(tmp_path / "model", "bytes")), "--steps", "2", "--seed", "3"]
    assert main([*given, "--set", "rollout.take=1", "pack_tokens=64", "--out", "first"]) == 0
    assert main(["train", "--config", "first/run.toml", "--out", "second"]) == 0
    assert settings("second") == settings("first")
    assert main(["train", "--config", "first/run.toml", "--out", "second"]) == 0, (
        "nothing is computed: it may begin again"
    )
