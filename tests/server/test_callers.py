"""Fair shares: turns between callers, what one may have of all, and attempts that fail."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import compress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import AuditError, ServiceError, TooManyAttemptsError
from pipeline.server.callers import Caller, Patience, Shares, Turns
from pipeline.server.limits import Limits
from pipeline.server.security import caller_of, parse_tokens
from pipeline.server.service import Service
from pipeline.server.settings import Settings
from pipeline.verification.attempts import AttemptLimits, Attempts

ANNA, IVAN = Caller("anna", None, frozenset()), Caller("ivan", None, frozenset())


def order_of(asked: str, places: int = 1) -> str:
    """The order in which requests of callers, a letter each, get their turns."""
    done: list[str] = []

    async def work(turns: Turns, caller: Caller) -> None:
        async with turns.place(caller):
            done.append(caller.key)
            await asyncio.sleep(0)

    async def everybody() -> None:
        turns = Turns("requests", places, waiting=100)
        await asyncio.gather(*(work(turns, Caller(letter, None, frozenset())) for letter in asked))

    asyncio.run(everybody())
    return "".join(done)


def test_callers_take_turns_however_much_one_of_them_asks_for():
    assert order_of("aaaaaabbc") == "aabcabaaa"


@given(st.text("abc", max_size=30), st.integers(1, 3))
def test_everybody_gets_every_turn_and_keeps_their_own_order(asked, places):
    assert sorted(order_of(asked, places)) == sorted(asked)


def test_who_finds_the_queue_full_is_asked_to_wait_as_long_as_the_last_turn_took(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("pipeline.server.callers.time", SimpleNamespace(monotonic=lambda: now[0]))

    async def scenario() -> list[float]:
        turns, asked = Turns("enrollments", 1, waiting=0), []
        for seconds in (90.0, 0.0):
            async with turns.place(ANNA):
                with pytest.raises(ServiceError) as refused:
                    turns.check(IVAN)
                now[0] += seconds
            asked.append(refused.value.retry_seconds)
        return asked

    assert asyncio.run(scenario()) == [5.0, 90.0]


def test_who_leaves_the_queue_holds_up_nobody():
    async def scenario() -> bool:
        turns = Turns("requests", 1, waiting=2)
        async with turns.place(ANNA):
            waiting = [asyncio.create_task(turns.place(ANNA).__aenter__()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(ServiceError, match="2 requests wait already, 2 of this caller"):
                async with asyncio.timeout(1), turns.place(ANNA):
                    pass
            turns.check(IVAN)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            turns.check(ANNA)
        async with asyncio.timeout(1), turns.place(IVAN):
            return True

    assert asyncio.run(scenario())


@given(st.lists(st.sampled_from(["never", "before", "after"]), min_size=1, max_size=6))
def test_a_turn_is_passed_over_whoever_leaves_in_the_same_moment(leaves):
    async def scenario() -> list[bool | BaseException]:
        turns = Turns("requests", 1, waiting=10)

        async def work() -> bool:
            async with turns.place(ANNA):
                return True

        async with turns.place(IVAN):
            tasks = [asyncio.create_task(work()) for _ in leaves]
            await asyncio.sleep(0)
            for task in compress(tasks, (left == "before" for left in leaves)):
                task.cancel()
        for task in compress(tasks, (left == "after" for left in leaves)):
            task.cancel()
        async with asyncio.timeout(1), turns.place(IVAN):
            pass
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert turns.waiting == 0
        return results

    for left, result in zip(leaves, asyncio.run(scenario()), strict=True):
        assert isinstance(result, asyncio.CancelledError) if left != "never" else result is True


@pytest.mark.parametrize(("share", "entered"), [(0.5, "ai"), (1.0, "aa")])
def test_one_caller_leaves_a_decoder_to_the_others_unless_they_share_nothing(store, share, entered):
    async def scenario(turns: Turns) -> str:
        order: list[str] = []

        async def work(caller: Caller) -> None:
            async with turns.place(caller):
                order.append(caller.key[0])
                await asyncio.sleep(0.01)

        async with asyncio.timeout(10):
            await asyncio.gather(*map(work, (ANNA, ANNA, ANNA, IVAN)))
        return "".join(order)

    with closing(Service(Settings(store, limits=Limits(share=share)), threads=2)) as service:
        order = asyncio.run(scenario(service.decoders.turns))
    assert (order[:2], sorted(order)) == (entered, sorted("aaai"))


@given(st.text("abc", max_size=30), st.integers(1, 3))
def test_no_caller_holds_every_place_and_everybody_gets_every_turn(asked, places):
    held, most = Counter[str](), Counter[str]()

    async def work(turns: Turns, key: str) -> None:
        async with turns.place(Caller(key, None, frozenset())):
            held[key] += 1
            most[key] = max(most[key], held[key])
            await asyncio.sleep(0)
            held[key] -= 1

    async def everybody() -> None:
        turns = Turns("requests", places, waiting=100)
        turns.keep_one()
        async with asyncio.timeout(10):
            await asyncio.gather(*(work(turns, key) for key in asked))
        assert turns.waiting == 0

    asyncio.run(everybody())
    assert all(count <= max(1, places - 1) for count in most.values())


def test_one_caller_has_half_of_all_by_token_and_by_address():
    shares = Shares("streams", 4, 2)
    callers = [Caller(f"token {n}", "192.0.2.1", frozenset()) for n in range(3)]
    with ExitStack() as held:
        for caller in callers[:2]:
            held.enter_context(shares.of(caller)).take(1)
        with pytest.raises(ServiceError, match="one caller has at most 2 streams"), shares.of(callers[2]) as share:
            share.take(1)
        held.enter_context(shares.of(ANNA)).take(2)
        with pytest.raises(ServiceError, match="all callers have at most 4 streams"), shares.of(IVAN) as share:
            share.take(1)
    for _ in range(2):  # all of it is given back
        with shares.of(IVAN) as share:
            share.take(1)
            share.take(1)
    assert not shares._used  # of callers who have gone nothing is kept


def test_an_address_counts_unless_it_is_that_of_a_proxy_here():
    tokens = parse_tokens(f"verify {'v' * 20}", "here")
    there, here = (caller_of(tokens, "v" * 20, (address, 1)) for address in ("192.0.2.7", "127.0.0.1"))
    assert there.keys == (here.key, "address 192.0.2.7")
    assert here.keys == (here.key,)
    assert caller_of(None, None, ("127.0.0.1", 1)).keys == ("address 127.0.0.1",)


def test_no_more_than_eight_times_as_many_wait_of_all_callers():
    async def everybody() -> None:
        turns = Turns("requests", 1, waiting=1)
        async with turns.place(ANNA):
            callers = [Caller(str(number), None, frozenset()) for number in range(8)]
            waiting = [asyncio.create_task(turns.place(caller).__aenter__()) for caller in callers]
            await asyncio.sleep(0)
            with pytest.raises(ServiceError, match="8 requests wait already, 0 of this caller"):
                turns.check(IVAN)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            turns.check(IVAN)

    asyncio.run(everybody())


def test_whoever_sends_much_is_waited_for_no_longer():
    async def wait() -> None:
        patience = Patience(0.05)
        patience.gain(100.0)
        async with patience.waiting():
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_one_caller_has_its_share_of_streams_and_a_full_queue_is_told_at_once(store):
    limits = Limits(streams=3, share=0.5, waiting_enrollments=0)
    with closing(Service(Settings(store, limits=limits), threads=1)) as service, service.stream("verify", ANNA):
        with pytest.raises(ServiceError, match="one caller has at most 1 streams"), service.stream("verify", ANNA):
            pass
        with service.stream("verify", IVAN):
            pass
        with pytest.raises(ServiceError, match="0 enrollments wait already"):
            asyncio.run(service.check_new(ANNA, "dora"))
        assert asyncio.run(service.model()).names


# Attempts


def test_who_leaves_before_the_decision_has_failed(copied):
    settings = Settings(copied, attempts=AttemptLimits(1))

    async def leave(service: Service) -> None:
        verifier = await service.verifier("anna", None)
        with pytest.raises(ConnectionResetError):
            async with service.attempt(ANNA, verifier):
                raise ConnectionResetError
        with pytest.raises(TooManyAttemptsError):
            async with service.attempt(ANNA, verifier):
                pass

    with closing(Service(settings, threads=1)) as service:
        asyncio.run(leave(service))


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def attempt(attempts: Attempts, outcome: str = "failed", caller: str = "c", speaker: str = "s") -> float:
    attempts.begin(caller, speaker)
    return attempts.end(caller, speaker, outcome)


def speakers_in(attempts: Attempts) -> list[str]:
    with closing(sqlite3.connect(attempts.path)) as database:
        return [name for (name,) in database.execute("SELECT speaker FROM failed ORDER BY speaker")]


def test_after_five_failures_each_waits_twice_as_long_as_the_last(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits())
    assert [attempt(attempts) for _ in range(5)] == [0, 0, 0, 0, 30]
    waits = []
    for _ in range(9):
        with pytest.raises(TooManyAttemptsError) as refused:
            attempts.begin("c", "s")
        waits.append(refused.value.seconds)
        clock[0] += refused.value.seconds - 0.5
        with pytest.raises(TooManyAttemptsError):
            attempts.begin("c", "s")
        clock[0] += 0.5
        attempts.begin("c", "s")
        clock[0] += 9  # of speech: the wait is from the end of it
        attempts.end("c", "s", "failed")
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert attempts.limits.wait(10**6) == 3600
    attempt(attempts, speaker="another")
    attempt(attempts, caller="another")
    clock[0] -= 1e6  # a clock that is set back
    with pytest.raises(TooManyAttemptsError) as refused:
        Attempts(tmp_path / "a", AttemptLimits()).begin("c", "s")
    assert refused.value.seconds == 3600
    clock[0] += 3600  # and nobody waits until it is as late as it was
    attempts.begin("c", "s")


def test_many_at_once_are_no_more_than_one_after_the_other(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits())
    with ThreadPoolExecutor(8) as threads:
        begun = [threads.submit(attempts.begin, "c", "s") for _ in range(16)]
    refused = [each.exception() for each in begun if each.exception() is not None]
    assert len(refused) == 11
    assert {type(each) for each in refused} == {TooManyAttemptsError}
    with (
        attempts._opened(),  # between the look at what failed and the count of one more
        closing(sqlite3.connect(attempts.path, timeout=0)) as another,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        another.execute("BEGIN IMMEDIATE")


def test_many_at_once_for_many_speakers_count_within_the_hour_until_they_end_well(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits(caller_failures=3))
    for speaker in "abc":
        attempts.begin("c", speaker)
    with pytest.raises(TooManyAttemptsError):
        attempts.begin("c", "d")
    attempts.end("c", "a", "accepted")
    attempts.end("c", "b", "not scored")
    attempts.begin("c", "d")
    attempts.fail("c")
    with pytest.raises(TooManyAttemptsError):
        attempts.fail("c")
    clock[0] += 1201
    attempts.fail("c")


def test_an_acceptance_ends_the_row_and_silence_is_no_failure(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits())
    for _ in range(50):
        assert attempt(attempts, "not scored") == 0
    for outcome in ("failed", "failed", "failed", "failed", "accepted") * 3:
        assert attempt(attempts, outcome) == 0
    assert "s" not in speakers_in(attempts)


def test_silence_ends_no_row_and_nobody_gets_more_than_five(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits())
    assert [attempt(attempts) for _ in range(4)] == [0, 0, 0, 0]
    assert [attempt(attempts, "not scored"), attempt(attempts)] == [0, 30]
    for _ in range(2):
        attempts.begin("c", "another")
    attempts.end("c", "another", "accepted")
    attempts.end("c", "another", "not scored")
    assert [attempt(attempts, speaker="another") for _ in range(5)] == [0, 0, 0, 0, 30]


def test_a_week_later_failures_are_forgotten(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits())
    assert [attempt(attempts) for _ in range(5)][-1] == 30
    clock[0] += 6 * 24 * 3600
    attempt(attempts, speaker="another")
    assert "s" in speakers_in(attempts)
    clock[0] += 24 * 3600 + 1
    attempt(attempts, speaker="another")
    assert speakers_in(attempts) == ["", "another"]


def test_a_caller_fails_so_often_an_hour_whomever_they_claim_to_be(tmp_path, clock):
    attempts = Attempts(tmp_path / "a", AttemptLimits(caller_failures=10))
    for number in range(10):
        attempt(attempts, "accepted", speaker="themselves")
        attempt(attempts, speaker=str(number))
    with pytest.raises(TooManyAttemptsError) as refused:
        attempts.begin("c", "10")
    assert refused.value.seconds == pytest.approx(360)
    attempts.begin("another", "10")
    clock[0] += 361
    attempts.begin("c", "10")


def test_the_file_names_nobody_and_a_damaged_one_lets_nobody_in(tmp_path):
    attempts = Attempts.beside(tmp_path / "s.store", AttemptLimits())
    attempt(attempts)
    assert attempts.path == tmp_path / "s.store.attempts"
    assert stat.S_IMODE(attempts.path.stat().st_mode) == 0o600
    assert speakers_in(attempts) == ["", "s"]
    attempts.path.write_bytes(b"no database" * 99)
    for none in (attempts, Attempts.beside(tmp_path / "no folder" / "s.store", AttemptLimits())):
        with pytest.raises(AuditError, match=r"s\.store\.attempts: failed attempts cannot be counted"):
            none.begin("c", "s")
