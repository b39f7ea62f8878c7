"""The episodes of a run folder as an export needs them: with a name of their run, and with when each began."""

from __future__ import annotations

from collections.abc import Iterator

from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.record.integrity import LONGEST


def name_of(folder: RunFolder) -> str:
    """The name of a run, on which the ids of its spans depend."""
    return folder.path.resolve().name


def with_beginnings(folder: RunFolder) -> Iterator[tuple[Episode, float]]:
    """The episodes of a run, and when each began, in seconds since 1970.

    An evaluation and a server note when each ended. Of other runs it is taken that all ended with the last.
    """
    ended = {str(line.get("episode")): line.get("ended") for line in folder.metrics()}
    last = folder.episodes_file.stat().st_mtime
    for episode in folder.episodes():
        end = ended.get(episode.id)
        yield episode, (end if isinstance(end, int | float) and 0 <= end <= LONGEST else last) - episode.seconds
