"""Processes that score live claims: they give the states of a stream here, and outlive neither kill nor removal."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack

import numpy as np
import pytest

from pipeline.audio.streams import PcmFormat
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import AudioError, ServiceError, StreamClosedError
from pipeline.scoring.decisions import as_json
from pipeline.server import scoring
from pipeline.server.callers import Caller
from pipeline.server.newest import NewestModel, VerifierSettings
from pipeline.server.scorers import CLAIMS_EACH, Scorers
from pipeline.server.scoring import AudioClaim

CALLER = Caller("address 127.0.0.1", None, frozenset())
PIECE = 1600


class Live:
    """Processes for claims of anna on a copied store."""

    def __init__(self, path, rate, most):
        settings = VerifierSettings(path, most=4)
        self.newest = NewestModel(settings)
        self.scorers = Scorers(settings, most, waiting=64, aliases=lambda: [(path, "the store")])
        self.hello = AudioClaim("anna", None, PcmFormat(rate))

    async def verifier(self):
        """Make a verifier of the newest model here."""
        return self.newest.verifier("anna")

    def claim(self, made=None):
        """Begin one more claim."""
        return self.scorers.claim(CALLER, made or self.verifier, self.hello)

    @property
    def workers(self):
        """The processes, in the order of their start."""
        return [scorer.worker for scorer in self.scorers._scorers]


@pytest.fixture
def run(copied, said):
    """run(test, most=1): await ``test`` of such processes and of anna's speech in bytes."""
    samples, rate = said
    data = np.round(samples * 32000).astype("<i2").tobytes()

    def start(test, most=1):
        async def inside():
            live = Live(copied, rate, most)
            try:
                await test(live, data)
            finally:
                live.scorers.close()

        asyncio.run(inside())

    return start


def test_a_claim_has_the_states_of_a_stream_here(run):
    async def test(live, data):
        verifier = await live.verifier()
        stream = verifier.stream(live.hello.pcm.rate)
        async with live.claim() as claim:
            assert claim.delay_ms == stream.delay_ms
            for piece in (b"", *(data[at : at + PIECE] for at in range(0, len(data), PIECE))):
                state = await claim.push(piece)
                expected = stream.push(np.frombuffer(piece, "<i2"))
                at_threshold = None if expected.frames == 0 else verifier.probability(verifier.decider.llr_threshold)
                assert state.pop("threshold_probability") == at_threshold
                assert state == {**as_json(expected), "warnings": list(expected.warnings)}
            final, _ = await claim.close()
            assert final == stream.close()

    run(test)


def test_claims_are_spread_and_another_process_starts_where_there_are_many(run):
    async def test(live, data):
        async with AsyncExitStack() as stack:
            claims = [await stack.enter_async_context(live.claim()) for _ in range(CLAIMS_EACH)]
            assert len(live.workers) == 1
            claims += [await stack.enter_async_context(live.claim()) for _ in range(CLAIMS_EACH + 2)]
            assert [scorer.claims for scorer in live.scorers._scorers] == [CLAIMS_EACH + 1] * 2
            states = await asyncio.gather(*(claim.push(data) for claim in claims))
            assert all(state == states[0] for state in states)
        assert [scorer.claims for scorer in live.scorers._scorers] == [0, 0]

    run(test, most=2)


def test_a_process_that_dies_ends_its_claims_and_the_next_claim_has_another(run):
    async def test(live, data):
        async with live.claim() as claim:
            os.kill(live.workers[0]._process.pid, signal.SIGKILL)
            live.workers[0].join()
            with pytest.raises(ServiceError, match="has died"):
                await claim.push(data)
        async with live.claim() as claim:
            assert (await claim.push(data))["score"] is not None

    run(test)


def streams_here(_channel) -> int:
    return len(scoring._LIVE)


def test_a_process_keeps_no_stream_of_a_claim_that_has_ended(run, capfd):
    async def test(live, data):
        async with live.claim() as claim:
            await claim.close()
        async with live.claim() as claim:
            await claim.push(data)
            assert await claim.do(streams_here) == 1
        assert await live.scorers._scorers[0].do(CALLER, streams_here) == 0

    run(test)
    assert capfd.readouterr().err == ""


def test_a_process_that_somebody_did_not_wait_for_is_the_next_ones(run):
    async def test(live, _):
        impatient = asyncio.create_task(live.claim().__aenter__())
        while not multiprocessing.active_children():
            await asyncio.sleep(0.01)
        (started,) = multiprocessing.active_children()
        impatient.cancel()
        async with live.claim():
            assert [worker._process.pid for worker in live.workers] == [started.pid]

    run(test)


def test_a_process_that_cannot_read_the_store_ends_and_no_claim_is_told_the_path(run, copied):
    async def test(live, data):
        whole = copied.read_bytes()
        copied.write_bytes(b"damaged" * 1000)
        with pytest.raises(ServiceError, match="could not be started: the store: not a speaker store") as told:
            async with live.claim():
                pass
        assert told.value.kind == "StoreFormatError"
        assert multiprocessing.active_children() == []
        copied.write_bytes(whole)
        async with live.claim() as claim:
            assert (await claim.push(data))["score"] is not None

    run(test)


def test_claims_under_any_system_and_identifications_load_no_library(store, heard):
    """A library that a request loads delays all others, and may not fit in memory any more."""
    program = """
import sys
import pipeline.server.scoring
from pipeline.store.store import Store
loaded, store = set(sys.modules), Store(sys.argv[1])
for system in store.load().systems:
    store.verify("anna", sys.argv[2], system=system)
store.identify(sys.argv[2])
print(sorted(name for name in sys.modules.keys() - loaded if not name.startswith("pipeline.")))
"""
    words = [sys.executable, "-c", program, str(store), str(heard("anna"))]
    assert subprocess.run(words, capture_output=True, check=True, text=True).stdout == "[]\n"


def test_processes_may_end_before_a_claim_does(run):
    async def test(live, _):
        async with live.claim():
            live.scorers.close()

    run(test)


def test_nothing_is_decided_on_somebody_who_was_removed(run, copied):
    async def test(live, data):
        async with live.claim() as claim:
            await claim.push(data[:PIECE])
            remove_speaker(copied, "anna")
            with pytest.raises(StreamClosedError, match=r"anna.* has been removed"):
                await claim.push(data[PIECE:])

    run(test)


def test_a_claim_begins_anew_where_the_store_has_just_changed(run, copied):
    async def test(live, data):
        made = []

        async def late():
            made.append(live.newest.verifier("anna"))
            if len(made) == 1:
                remove_speaker(copied, "lars")
            return made[-1]

        async with live.claim(late) as claim:
            assert claim.verifier.model.revision == made[0].model.revision + 1
            assert (await claim.push(data))["score"] is not None

        def outdated():
            return asyncio.sleep(0, made[0])

        with pytest.raises(ServiceError, match="has just changed"):
            async with live.claim(outdated):
                pass

    run(test)


def test_audio_that_is_refused_is_refused_as_here(run):
    async def test(live, _):
        rate = live.hello.pcm.rate
        live.hello = AudioClaim("anna", None, PcmFormat(rate, encoding="f32le"))
        async with live.claim() as claim:
            with pytest.raises(AudioError, match="finite"):
                await claim.push(b"\xff" * 4000)
            final, _ = await claim.close()
            assert final.score is None

    run(test)
