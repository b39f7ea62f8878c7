"""Takes the picture of the documents from a demo: `python -m orgthink_pocket.picture runs/demo docs/view.png`.

It needs Chromium. A JSON file next to the picture holds the demo's plan and results.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from orgthink.measure.accuracy import all_correct
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.files import write_whole
from orgthink.util.settings import plain
from orgthink.view import render
from orgthink_pocket.demo import plans

SIZE = (1200, 860)
"""Width and height in CSS pixels."""


def facts(demo: Path) -> dict[str, Any]:
    """Plan and results of a demo, and the numbers of the episode that its picture shows."""
    summary = json.loads((demo / "summary.json").read_bytes())
    solved = {
        part: {system: round(100 * measures["all_correct"]["mean"]) for system, measures in systems.items()}
        for part, systems in summary.items()
    }
    n, episode = next(iter(next(iter(summary.values())).values()))["n"], best_episode(demo)
    pictured = {
        "problem": episode.problem.id,
        "critical path": critical_path(episode),
        "sampled": sampled_tokens(episode),
        "agents": len(episode.traces),
    }
    return {"n": n, "plan": digest(n), "all correct %": solved, "episode": pictured}


def digest(n: int) -> str:
    """A digest of the demo's plan on `n` problems, as far as it sets something, and of its models."""
    found = sha256(json.dumps(_given(plain(plans(n))), sort_keys=True).encode())
    for weights in sorted((Path(__file__).parent / "models").glob("*/model.safetensors")):
        found.update(weights.read_bytes())
    return found.hexdigest()[:16]


def _given(value: Any) -> Any:
    """Settings without those that are empty: a new one with such a default changes no demo."""
    if not isinstance(value, dict):
        return value
    return {name: _given(each) for name, each in value.items() if each not in (None, False, [], {}, "")}


def best_episode(demo: Path) -> Episode:
    """The episode that the picture shows: correct, with the most agents, and of those the shortest."""
    found = [
        episode
        for episode in RunFolder.open(demo / "asyncthink").episodes()
        if episode.organization == "after" and all_correct(episode)
    ]
    return max(found, key=lambda episode: (len(episode.traces), -critical_path(episode), episode.id))


def _episode_only(page: str) -> str:
    """The page without its tables and its list. Its policy would refuse the additional style."""
    style = "<style>header, #overview, nav {display: none !important} main {display: block !important}</style>"
    return page.replace("http-equiv=", "data-removed=", 1).replace("</head>", f"{style}</head>", 1)


def take(demo: Path, picture: Path) -> None:
    """Write the picture, and the JSON file next to it. UserError without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise UserError("the picture needs chromium")
    with tempfile.TemporaryDirectory() as profile:
        page = Path(profile) / "page.html"
        page.write_text(_episode_only(render([best_episode(demo)], title="orgthink demo")))
        command = [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}", "--virtual-time-budget=10000",
            f"--screenshot={picture.resolve()}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = facts(demo) | {"picture": sha256(picture.read_bytes()).hexdigest()}
    write_whole(picture.with_suffix(".json"), (json.dumps(found, indent=2) + "\n").encode())


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
