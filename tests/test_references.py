"""What of a stranger's settings refers to the environment, and what is only prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import preset_of
from orgthink.util.errors import UserError
from orgthink.util.secrets import referred

PROSE = [
    "writes shell scripts: ${HOME} and the like",
    "templates such as ${name} in TypeScript",
    "see https://example.com/${page} for a list",
    "costs $5 {a call}",
]


def described(description: str) -> dict[str, Any]:
    return {"organizations": {"paramanager": {"pool": {"coder": description}}}}


@pytest.mark.parametrize("description", PROSE)
def test_prose_may_have_a_dollar_and_braces(tmp_path: Path, description: str) -> None:
    (tmp_path / "orgthink.json").write_text(json.dumps(described(description)))
    assert preset_of(EngineSpec(str(tmp_path))).organizations["paramanager"]["pool"]["coder"] == description


@pytest.mark.parametrize(
    "values",
    [
        {"roles": {"worker": {"model": "${KEY}", "max_tokens": 1}}},
        {"roles": {"worker": {"model": "vllm: ${KEY}", "max_tokens": 1}}},
        {"organizations": {"mine": {"corpus": "http://127.0.0.1/${KEY}"}}},
        {"organizations": {"mine": {"places": ["a", "http://${KEY}.example.com"]}}},
        {"organizations": {"paramanager": {"servers": ["env TOKEN=${KEY} server"]}}},
        {"organizations": {"paramanager": {"pool": {"${KEY}": "a model"}}}},
        {"organizations": {"mine": {"url": "http://a/?q= ${KEY}"}}},
    ],
)
def test_a_name_an_address_and_a_command_may_not(tmp_path: Path, values: dict[str, Any]) -> None:
    assert referred(values) == "KEY"
    (tmp_path / "orgthink.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match="asks for KEY of the environment"):
        preset_of(EngineSpec(str(tmp_path)))
