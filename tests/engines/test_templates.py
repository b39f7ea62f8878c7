"""Chat templates as models have them: what transformers knows, a model's template may use."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from models import tiny_model

from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message
from orgthink.util.errors import UserError

ASKED = (Message("system", "be brief"), Message("user", 'a <b> & "c" é'))
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
PLAIN = '<system>be brief<user>a <b> & "c" é'


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Makes a tokenizer of a folder with a template."""
    tiny_model(tmp_path, "bytes")

    def made(template: Any) -> Tokenizer:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        return Tokenizer(tmp_path)

    return made


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (TURNS, PLAIN),
        ("{% generation %}" + TURNS + "{% endgeneration %}", PLAIN),
        ("{% for m in messages %}<{{ m.role }}>{% break %}{% endfor %}", "<system>"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
        ("{{ messages[1].content | tojson }}", '"a <b> & \\"c\\" é"'),
        ([{"name": "tool_use", "template": "no"}, {"name": "default", "template": TURNS}], PLAIN),
    ],
)
def test_a_template_has_what_transformers_gives_it(template: Any, text: str, write: Any) -> None:
    assert write(template).prompt(ASKED).text == text


def test_a_template_that_refuses_says_why(write: Any) -> None:
    tokenizer = write("{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + TURNS)
    with pytest.raises(UserError, match="no system here"):
        tokenizer.prompt(ASKED)
    assert tokenizer.prompt(ASKED[1:]).text.startswith("<user>")
