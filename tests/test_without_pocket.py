"""Without the pocket package the core imports, and what needs a model says in one line how to get one."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import orgthink

ROOT = Path(__file__).parent.parent
HIDDEN = """
import sys
from importlib import metadata

class Hidden(metadata.DistributionFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "orgthink_pocket":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    def find_distributions(self, context=None):
        return iter(())

entry_points = metadata.entry_points
metadata.entry_points = lambda **of: tuple(e for e in entry_points(**of) if not e.value.startswith("orgthink_pocket"))
sys.meta_path.insert(0, Hidden())
"""
"""Hides the package, where it is installed, with everything that it offers."""
ELSEWHERE = ("vllm", "verl", "ray", "tensordict", "transfer_queue", "hydra", "omegaconf", "sentence_transformers")
"""Packages of optional parts; modules that import them are left out where they are absent."""


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + code], cwd=cwd, env=clean | {"PYTHONPATH": path}, capture_output=True, text=True
    )


def test_every_module_of_the_core_imports(tmp_path: Path):
    modules = pkgutil.walk_packages(orgthink.__path__, "orgthink.")
    names = [module.name for module in modules if not module.name.endswith("__main__")]
    assert len(names) > 100
    done = run(
        f"""
import importlib
for name in {names}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in {ELSEWHERE}:
            raise
assert not any(name.partition(".")[0] == "orgthink_pocket" for name in sys.modules)
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


COMPLAINTS = [
    (["run", "What is 6 * 7?"], "no model is named: give --model MODEL, or a server's --url"),
    (["run"], "no task is named: give --task TASK"),
    (["eval", "--task", "sudoku"], "no model is named"),
    (["eval", "--model", "pocket-base", "--task", "sudoku"], "unknown model 'pocket-base'"),
    (["run", "What is 6 * 7?", "--model", "pocket-organizer"], "unknown model 'pocket-organizer'"),
    (["eval", "--url", "http://127.0.0.1:9/v1"], "no task is named: give --task TASK"),
    (["train"], "no recipe is named: give RECIPE"),
    (["demo"], "the demo models and tasks are a package of their own"),
]


@pytest.mark.parametrize(("argv", "says"), COMPLAINTS, ids=[" ".join(argv) for argv, _ in COMPLAINTS])
def test_what_needs_a_model_says_how_to_get_one(argv: list[str], says: str, tmp_path: Path):
    done = run(f"from orgthink.cli import main\nsys.exit(main({argv}))", tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert says in line
    assert not done.stdout and not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("orgthink_pocket") is None, reason="the package is absent")
def test_these_tests_hide_it(tmp_path: Path):
    code = "from orgthink.tasks import TASKS\nprint(*TASKS)\nimport orgthink_pocket"
    done = run(code, tmp_path)
    assert {"countdown", "sudoku", "math"} <= set(done.stdout.split())
    assert "countdown-mini" not in done.stdout
    assert "No module named 'orgthink_pocket'" in done.stderr
