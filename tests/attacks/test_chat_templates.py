"""Chat templates of strangers, which are programs: they end, and they take a bounded part of the memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from models import tiny_model

from orgthink.models import templates
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message
from orgthink.util.errors import UserError

ENDS = "A chat template that runs for long, or takes much memory, gets one line that names its folder."
TURNS = (Message("user", "Hi"),)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("whole") / "model", "words")


@pytest.fixture
def model(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SECONDS", "PROMPT_SECONDS"):
        monkeypatch.setattr(templates, name, 0.5)
    return Path(shutil.copytree(whole, tmp_path / "model"))


LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@each(
    Attack("loops within loops", ENDS, "it takes more than 0.5 s", LOOPS),
    Attack(
        "a power that is computed when the template is read", ENDS, "it takes more than 0.5 s", "{{ 9 ** (9 ** 9) }}"
    ),
    Attack("a text of 5 GB, when the template is read", ENDS, "MemoryError", "{{ 'x' * 5000000000 }}"),
    Attack("a text of 5 GB, by a method", ENDS, "MemoryError", "{{ 'x'.center(5000000000) }}"),
    Attack("a message, 2,500,000,000 times", ENDS, "MemoryError", "{{ messages[0].content * 2500000000 }}"),
    Attack("a prompt of 50 MB", ENDS, "50,000,000 characters", "{{ messages[0].content * 25000000 }}"),
)
def test_a_template_without_an_end(attack: Attack, model: Path) -> None:
    (model / "chat_template.jinja").write_text(attack.given)
    with pytest.raises((UserError, ValueError), match=f"the chat template of {model} .*{attack.outcome}") as caught:
        Tokenizer(model).prompt(TURNS)
    assert "\n" not in str(caught.value)
    (model / "chat_template.jinja").write_text("{{ messages[0].content }} there")
    assert Tokenizer(model).prompt(TURNS).text == "Hi there"


@each(Attack("loops within loops, for a short prompt", ENDS, "the event loop waits for a second", LOOPS))
def test_a_template_that_the_event_loop_waits_for(attack: Attack, whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    (folder / "chat_template.jinja").write_text("{% if messages | length > 99 %}{% endif %}" + LOOPS)
    with pytest.raises((UserError, ValueError), match="it takes more than 1 s"):
        Tokenizer(folder).prompt(TURNS)
