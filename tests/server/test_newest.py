"""The service and a store that changes: enrollments, removals, restored and lost stores."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import soundfile

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import ServiceError, StoreMissingError, StreamClosedError, UnknownSpeakerError
from pipeline.evaluation.curves import state_of
from pipeline.server.callers import Caller
from pipeline.server.newest import NewestModel, VerifierSettings
from pipeline.server.service import Service
from pipeline.server.settings import Settings
from pipeline.server.streams import verify_file
from pipeline.store.backup import backup_store, restore_store
from pipeline.store.store import Store


def test_the_newest_revision_is_seen_and_an_older_one_goes_on(copied, recordings, heard):
    live = NewestModel(VerifierSettings(copied, most=2))
    first = live.current()
    assert live.current() is first
    verifier = live.verifier("anna")
    assert live.verifier("anna") is verifier
    expected = verifier.verify_file(heard("anna"))
    enroll(copied, {"clara": recordings["clara"][:6]})
    assert live.current().names[-1] == "clara"
    assert live.verifier("anna") is not verifier
    assert verifier.verify_file(heard("anna")) == expected
    remove_speaker(copied, "clara")
    with pytest.raises(UnknownSpeakerError):
        live.verifier("clara")
    assert verifier.verify_file(heard("anna")) == expected


def test_a_state_of_the_same_number_after_a_restore_is_another(copied, tmp_path):
    live = NewestModel(VerifierSettings(copied, most=2))
    backup_store(copied, tmp_path / "backup.store")
    remove_speaker(copied, "lars")
    seen = live.current()
    restore_store(tmp_path / "backup.store", copied)
    remove_speaker(copied, "anna")
    now = live.current()
    assert (now.identity, now.revision) == (seen.identity, seen.revision)
    assert (seen.names, now.names) == (("anna", "dexter", "ivan"), ("dexter", "ivan", "lars"))
    assert state_of(now) != state_of(seen)
    with pytest.raises(UnknownSpeakerError):
        live.verifier("anna")


def test_nothing_of_who_was_removed_is_kept(copied):
    live = NewestModel(VerifierSettings(copied, most=2))
    kept = [weakref.ref(made) for made in (live.verifier("lars"), live.identifier(), live.current())]
    remove_speaker(copied, "lars")
    live.current()
    gc.collect()
    assert [made() for made in kept] == [None] * 3


def test_who_is_given_recordings_is_not_said_to_be_removed(copied, heard):
    live = NewestModel(VerifierSettings(copied, most=2))
    verifier = live.verifier("anna")
    remove_speaker(copied, "lars")
    live.check_enrolled(verifier)
    enroll(copied, {"anna": [heard("anna")]}, add=True)
    with pytest.raises(StreamClosedError, match="removed, or enrolled anew with more recordings"):
        live.check_enrolled(verifier)


def test_another_store_in_the_place_of_this_one_has_nobody_of_it(copied, tmp_path, recordings, tiny):
    live = NewestModel(VerifierSettings(copied, most=2))
    verifier, another = live.verifier("anna"), tmp_path / "another.store"
    enroll(another, {name: recordings[name] for name in ("anna", "ivan")}, tiny)
    assert Store(another).load().revision == verifier.model.revision
    another.replace(copied)
    with pytest.raises(StreamClosedError, match="removed"):
        live.check_enrolled(verifier)
    assert live.verifier("anna").model.names == ("anna", "ivan")
    copied.rename(another)
    for _ in range(2):  # a store that is lost is not one before its first enrollment
        with pytest.raises(StoreMissingError, match=r"store is gone; put it back, or start the service again$"):
            live.current()
    another.rename(copied)
    assert live.verifier("anna").model.names == ("anna", "ivan")


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes are halted by signals")
def test_nothing_is_decided_on_a_file_of_somebody_who_was_removed_while_it_was_scored(copied, tmp_path, said):
    samples, rate = said
    soundfile.write(tmp_path / "long.wav", np.tile(samples, 30), rate)
    caller = Caller("address 127.0.0.1", None, frozenset())

    async def scenario(service: Service) -> None:
        service.file_scorers.start()
        (worker,) = (scorer.worker for scorer in service.file_scorers._scorers)
        verifying = asyncio.create_task(verify_file(service, caller, "anna", None, tmp_path / "long.wav", None))
        while worker.tasks < 3:  # until the claim has begun, and the first of the audio is on its way
            await asyncio.sleep(0.001)
        os.kill(worker._process.pid, signal.SIGSTOP)
        await asyncio.to_thread(remove_speaker, copied, "anna")
        os.kill(worker._process.pid, signal.SIGCONT)
        with pytest.raises(StreamClosedError, match=r"anna.* has been removed"):
            await verifying

    with closing(Service(Settings(copied), threads=1)) as service:
        asyncio.run(scenario(service))


def test_only_so_many_verifiers_are_kept(copied):
    live = NewestModel(VerifierSettings(copied, most=2))
    anna, lars = live.verifier("anna"), live.verifier("lars")
    assert live.verifier("anna") is anna
    live.verifier("ivan")
    assert live.verifier("anna") is anna
    assert live.verifier("lars") is not lars


def test_threads_that_ask_at_once_get_the_same_verifier(copied):
    live = NewestModel(VerifierSettings(copied, most=4))
    with ThreadPoolExecutor(4) as pool:
        assert len(set(map(id, pool.map(live.verifier, ["anna"] * 4)))) == 1


def test_a_store_that_is_not_there_yet_has_nobody(tmp_path):
    live = NewestModel(VerifierSettings(tmp_path / "none", most=2))
    assert live.current() is None
    with pytest.raises(UnknownSpeakerError, match="nobody is enrolled"):
        live.verifier("anna")


def test_there_is_nobody_to_be_identified_before_the_first_enrollment_and_among_background_speakers(
    tmp_path, recordings, tiny
):
    enroll(tmp_path / "s", {name: recordings[name] for name in ("ivan", "lars")}, tiny, role="background")
    for name in ("none", "s"):
        service = Service(Settings(tmp_path / name), threads=1)
        with closing(service), pytest.raises(ServiceError, match="nobody is enrolled yet") as refused:
            asyncio.run(service.identifier())
        assert refused.value.status == 409
