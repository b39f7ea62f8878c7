"""The release workflow: a tag builds, tests, publishes without a password, and attaches, in this order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
ACTION = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def test_only_a_tag_starts_it() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}, "YAML reads `on` as true"


def test_each_job_waits_for_the_one_before_it() -> None:
    assert [(name, job.get("needs")) for name, job in JOBS.items()] == [
        ("build", None), ("test", "build"), ("publish", "test"), ("attach", "publish"),
    ]  # fmt: skip


def test_a_job_may_do_what_it_needs_and_no_more() -> None:
    """No password: PyPI trusts the identity of this workflow. Only the last job may write to the repository."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    allowed = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert allowed == {"publish": {"id-token": "write"}, "attach": {"contents": "write"}}
    assert JOBS["publish"]["environment"] == "pypi"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_actions_are_named_by_their_commits() -> None:
    """A tag can be moved. An action that CI uses too has the same commit there."""
    lines = {
        path.stem: {line.strip("- ") for line in path.read_text().splitlines() if "uses:" in line}
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    assert all(ACTION.fullmatch(line) for of_file in lines.values() for line in of_file)
    commits = {line.split("@")[0] + line.split("@")[1] for of_file in lines.values() for line in of_file}
    assert len(commits) == len({line.split("@")[0] for of_file in lines.values() for line in of_file})


def test_its_commands_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for step in STEPS if "run" in step]
    used = re.findall(r"^make ([a-z-]+)", "\n".join(commands), re.MULTILINE)
    assert used == ["dist", "test-wheel"] and set(used) <= targets
    assert all(re.match(r"make |test -e |gh release create ", command) for command in commands)


def test_the_wheels_that_are_tested_are_those_that_are_published() -> None:
    assert [step["run"] for step in JOBS["test"]["steps"] if "run" in step] == ["make test-wheel DIST=dist"]
    for name in ("test", "publish", "attach"):
        (download,) = (step for step in JOBS[name]["steps"] if "download-artifact" in step.get("uses", ""))
        assert download["with"] == {"name": "dist", "path": "dist/"}
    (upload,) = (step for step in JOBS["build"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["with"] == {"name": "dist", "path": "dist/", "if-no-files-found": "error"}
