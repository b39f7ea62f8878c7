"""Many jobs at once: results in order, a bound, a stop, and bugs that are raised as themselves."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.runtime.clock import run_virtual
from orgthink.util.concurrency import first_error, innermost, run_all


@given(st.lists(st.integers(0, 5), max_size=20), st.none() | st.integers(1, 30))
def test_results_come_in_the_order_of_the_jobs_and_the_bound_holds(seconds, limit):
    under_way, most = set[int](), [0]

    async def work(job: tuple[int, int]) -> int:
        under_way.add(job[0])
        most.append(len(under_way))
        await asyncio.sleep(job[1])
        under_way.remove(job[0])
        return job[0]

    assert run_virtual(run_all(work, enumerate(seconds), limit)) == list(range(len(seconds)))
    assert max(most) == min(limit or len(seconds), len(seconds))


def test_after_a_stop_no_job_begins_and_those_under_way_are_finished():
    async def main() -> list[int]:
        stop = asyncio.Event()

        async def work(job: int) -> int:
            await asyncio.sleep(1)
            if job == 3:
                stop.set()
            return job

        return await run_all(work, range(100), 2, stop)

    assert run_virtual(main()) in ([0, 1, 2, 3], [0, 1, 2, 3, 4])


def test_a_bug_ends_the_others_and_is_raised_as_itself():
    ended: list[int] = []

    async def work(job: int) -> None:
        try:
            await asyncio.sleep(job)
            raise KeyError(job)
        except asyncio.CancelledError:
            ended.append(job)
            raise

    with pytest.raises(KeyError, match="1"):
        run_virtual(run_all(work, range(1, 4)))
    assert sorted(ended) == [2, 3]


def test_groups_within_groups_are_unwrapped():
    error = KeyError()
    with pytest.raises(KeyError), first_error():
        raise ExceptionGroup("", [ExceptionGroup("", [error, ValueError()]), OSError()])
    assert innermost(error) is error
