"""A package from outside brings everything that has a name, and nothing here is edited for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import training_of

SOURCE = Path(__file__).parent / "plugin" / "dice.py"

ENTRIES = {
    "organizations": {"shaker": "Shaker"},
    "tasks": {"dice": "Dice", "any": "any_answer"},
    "rewards": {"variety": "Variety", "ranks": "Ranks"},
    "tools": {"throw": "throw"},
    "prompts": {"dotted": "STYLE"},
    "models": {"canned": "canned"},
    "recipes": {"dice-rl": "RECIPE"},
    "trackers": {"pips": "Pips"},
}
"""Entry points of the package, by group."""

COMMANDS = """
import json, sys
from orgthink.cli import main
for argv in json.load(sys.stdin):
    print("$", *argv, flush=True)
    code = main(argv)
    if code:
        sys.exit(f"{argv} ended with {code}")
"""


def package(folder: Path) -> Path:
    """The sources of a package with one module, `dice_plugin`."""
    (folder / "dice_plugin").mkdir(parents=True)
    shutil.copy(SOURCE, folder / "dice_plugin" / "__init__.py")
    entries = "".join(
        f'[project.entry-points."orgthink.{group}"]\n'
        + "".join(f'{name} = "dice_plugin:{target}"\n' for name, target in names.items())
        for group, names in ENTRIES.items()
    )
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "dice-plugin"\nversion = "1"\n{entries}'
        '[tool.hatch.build.targets.wheel]\npackages = ["dice_plugin"]\n'
    )
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of a new environment, on top of this one, with the package installed."""
    folder = tmp_path_factory.mktemp("environment")
    sources = package(folder / "sources")
    venv.create(folder / "venv", with_pip=False)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    below = [path for path in sys.path if path.endswith("site-packages")]
    (site / "below.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in below))
    found = folder / "venv" / "bin" / "python"
    if find_spec("hatchling") and find_spec("pip"):
        options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
        subprocess.run([sys.executable, "-m", "pip", "--python", found, "install", *options, sources], check=True)
    else:  # as a wheel would be unpacked
        shutil.copytree(sources / "dice_plugin", site / "dice_plugin")
        (info := site / "dice_plugin-1.dist-info").mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dice-plugin\nVersion: 1\n")
        lines = (
            [f"[orgthink.{group}]", *(f"{n} = dice_plugin:{t}" for n, t in e.items())] for group, e in ENTRIES.items()
        )
        (info / "entry_points.txt").write_text("\n".join(line for group in lines for line in group) + "\n")
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model of random weights, large enough to be trained."""
    pytest.importorskip("torch")
    from random_model import write_random_model

    from orgthink.models.config import DecoderConfig

    shape = DecoderConfig(
        vocab_size=260, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=512,
    )  # fmt: skip
    return write_random_model(tmp_path_factory.mktemp("model"), shape, dtype="float32")


@pytest.mark.parametrize("by", ["entry point", "file"])
def test_all_that_has_a_name_comes_from_outside(by, python, model, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    file = shutil.copy(SOURCE, here / "mine.py") if by == "file" else None
    named = {
        name: f"mine.py:{target}" if file else name for group in ENTRIES.values() for name, target in group.items()
    }
    engine = ["--model", f"{named['canned']}:four 4 dots"]
    run = str(tmp_path / "run")
    commands(
        python,
        here,
        ["run", "--organization", named["shaker"], "--task", named["dice"], *engine, "--set", "shout=true"],
        ["run", "Throw a die.", "--organization", "tool-use", "--set",
         f"tools={json.dumps([named['throw']])}", *engine],
        ["eval", "--organizations", named["shaker"], f"loud={named['shaker']}", "--set", "loud.shout=true",
         "--task", f"{named['dice']}#{named['any']}", "--prompts", named["dotted"], "--n", "2", *engine, "--out", run],
        ["train", named["dice-rl"], "--model", str(model), "--device", "cpu", "--out", str(tmp_path / "trained"),
         "--set", f"rollout.task={named['dice']}", f"rollout.organization.organization={named['shaker']}",
         f"rollout.organization.settings.prompts={named['dotted']}", f"reward={named['variety']}", "reward.weight=0.5",
         f"credit.kind={named['ranks']}", "credit.size=2", "--log", named["pips"]],
    )  # fmt: skip
    said = commands(
        python,
        elsewhere,
        ["eval", "--resume", run],
        ["view", run],
        ["view", str(tmp_path / "trained")],
        ["measure", str(tmp_path / "trained")],
        ["list", "rewards"],
    )
    assert "answer length" in said and ("dice-plugin" in said)
    episodes = list(RunFolder.open(tmp_path / "run").episodes())
    assert {e.organization for e in episodes} == {"Shaker" if file else "shaker", "loud"}
    assert all(e.grade is not None and e.grade.all_correct for e in episodes), "by the grader, which takes everything"
    assert all("Say it with dots" in e.root.spans[0].text for e in episodes), "the prompt style"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["loud"]["measures"]["answer_length"]["mean"] == len("FOUR 4 DOTS")
    assert "reward" in (tmp_path / "trained" / "pips.txt").read_text(), "the tracker, which got the metrics"
    settings = RunFolder.open(tmp_path / "trained").config["settings"]["job"]["settings"]
    assert settings["reward"] == {"kind": f"{here / 'mine.py'}:Variety" if file else "variety", "weight": 0.5}
    if file:
        job = training_of(RunFolder.open(tmp_path / "trained")).job
        assert job.settings.credit.size == 2, "in another process, in another working directory"
    assert list(RunFolder.open(tmp_path / "trained").episodes()), "the record of the step"
    (line,) = map(json.loads, (tmp_path / "trained" / "metrics.jsonl").read_text().splitlines())
    assert line["reward"] == line["characters"] / 2 > 0 and line["answer_length"] > 0 and line["gradient_norm"] > 0


def commands(python: Path, folder: Path, *lines: list[str]) -> str:
    """What commands print, one after the other in the environment; they are all to succeed."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [python, "-c", COMMANDS], input=json.dumps(lines), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
