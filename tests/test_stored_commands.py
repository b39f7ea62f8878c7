"""What is stored of the command of a server: it holds no secret, and with its secrets back it is the typed command."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orgthink.util import redaction, secrets

SECRET = "zebra-quill-battery"
FREE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(autouse=True)
def nothing_hidden_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    monkeypatch.setattr(secrets, "_given", {})


names = st.sampled_from(
    ["token", "API_KEY", "x-password", "spring.ai.api-key", "PIN", "name", "url", "p", "u", "auth-type"]
)
values = st.one_of(
    st.sampled_from(
        [SECRET, f"Bearer {SECRET}", f"me:{SECRET}", f"https://me:{SECRET}@h/x?key=a&b", "8080", "/a/b", "x=y"]
    ),
    st.text(st.characters(exclude_characters="$", exclude_categories=["Cs"]), max_size=12),
)
forms = st.sampled_from(
    ["{n}={v}", "--{n}={v}", "-D{n}={v}", "{n}: {v}", "{n}:{v}", "--header={n}: {v}", "{v}", "-{n}", "--{n}", "-c",
     "--", "http://h/?{n}={v}", "http://{v}@h1,http://{n}:{v}@h2",
     '{{"{n}": "{v}", "x": ["{v}", {{"{n}": 12345678}}]}}']
)  # fmt: skip
words = st.builds(lambda form, name, value: form.format(n=name, v=value), forms, names, values)


@FREE
@given(st.lists(words, min_size=1, max_size=6))
@example(["http://@h1,http://token:@h2"])
def test_a_stored_command_is_the_typed_one(typed: list[str]) -> None:
    command = shlex.join(["server", *typed])
    assert secrets.words(secrets.by_name_of_command(command)) == ["server", *typed]


@FREE
@given(st.sampled_from(["token", "API_KEY", "x-password", "spring.ai.api-key"]),
       st.sampled_from(["{}={}", "--{}={}", "--{} {}", "-D{}={}", "--h=\'{}: {}\'", "\'{}: {}\'", "{}:{}", "a={}:{}",
                        "sh -c \'{}={} exec x\'", "\'{{\"{}\": [1, \"{}\"]}}\'"]))  # fmt: skip
def test_a_telling_name_hides_its_value_in_each_form(name: str, form: str) -> None:
    command = f"server {form.format(name, SECRET)}"
    stored = secrets.by_name_of_command(command)
    assert SECRET not in stored and secrets.words(stored) == shlex.split(command)
