"""docs/view.png shows the present demo: `python -m orgthink_pocket.picture runs/demo docs/view.png` takes it again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from orgthink_pocket.demo import plans
from orgthink_pocket.picture import digest, facts, take

from orgthink.cli.eval import conduct
from orgthink.evaluation.plan import resolve

DOCS = Path(__file__).parents[3] / "docs"
STORED = json.loads((DOCS / "view.json").read_bytes())


def test_the_picture_belongs_to_the_stored_facts():
    assert sha256((DOCS / "view.png").read_bytes()).hexdigest() == STORED["picture"]


def test_it_shows_the_present_demo():
    """If this fails, the demo has changed: take the picture again."""
    assert digest(STORED["n"]) == STORED["plan"]
    assert {part: list(plan.organizations) for part, plan in plans(1).items()} == {
        part: list(systems) for part, systems in STORED["all correct %"].items()
    }


@pytest.mark.browser
def test_it_is_taken_from_a_demo(tmp_path):
    plan = replace(plans(2)["asyncthink"], seed=1)
    assert asyncio.run(conduct(resolve(plan), tmp_path / "asyncthink")) == 0
    summary = json.loads((tmp_path / "asyncthink" / "summary.json").read_bytes())
    (tmp_path / "summary.json").write_text(json.dumps({"asyncthink": summary}))
    take(tmp_path, tmp_path / "view.png")
    assert (tmp_path / "view.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "view.json").read_bytes()).items() >= facts(tmp_path).items()
