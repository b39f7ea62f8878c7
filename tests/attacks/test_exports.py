"""A run folder of somebody else, as files for viewers of others."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import PurePosixPath
from zipfile import ZipFile

import pytest
from attacks.catalogue import Attack, each
from attacks.test_records import EPISODE

from orgthink.export.inspect_log import eval_log

INSIDE = "A member of an `.eval` file stays in its folder, whatever a problem is called, and takes no place of another."
CHANGED = "the name is changed"


@pytest.mark.filterwarnings("error")
@each(
    Attack("a problem is called by a path upwards", INSIDE, CHANGED, "../../../tmp/evil"),
    Attack("a problem is called by a path from the root", INSIDE, CHANGED, "/tmp/evil"),
    Attack("a problem is called by a path with backslashes", INSIDE, CHANGED, "..\\..\\evil"),
    Attack("a problem's name ends in NUL", INSIDE, CHANGED, "a\0"),
    Attack("a problem's name has line breaks", INSIDE, CHANGED, "a\n../b"),
    Attack("a problem's name has 100,000 characters", INSIDE, CHANGED, "../" * 33_333),
)
def test_a_member_stays_inside(attack: Attack) -> None:
    names = (attack.given, attack.given + "b")
    episodes = [replace(EPISODE, problem=replace(EPISODE.problem, id=name)) for name in names]
    with ZipFile(BytesIO(eval_log([(episode, 0.0) for episode in episodes], "run"))) as archive:
        samples = [PurePosixPath(name) for name in archive.namelist() if name.startswith("samples")]
    assert len({*samples}) == 2
    for sample in samples:
        assert sample.suffix == ".json" and not {"..", "/", ""} & {*sample.parts} and "\\" not in str(sample)
