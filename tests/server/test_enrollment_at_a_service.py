"""Enrollment at a service: by speaking and by files, never by half, and the first speakers of a store."""

from __future__ import annotations

import subprocess
import time
import unicodedata
from urllib.parse import quote

import numpy as np
import pytest
import soundfile
from hostile import two_faced
from service import (
    files_of,
    names_in,
    pcm16,
    problem_of,
    receive,
    running,
    samples_of,
    send,
    streamed,
    until,
    wait_until,
)

from pipeline.audio import ffmpeg
from pipeline.enrollment.enroll import enroll
from pipeline.store.store import Store

pytestmark = pytest.mark.server


def test_somebody_enrolls_by_speaking(service, recordings, heard):
    with service.socket("/enroll") as socket:
        send(socket, name="zoë", rate=8000, format="pcm_s16le")
        ready = receive(socket)
        assert (ready["type"], ready["least_seconds"], ready["aim_seconds"]) == ("ready", 3.0, 40.0)
        for utterance in recordings["clara"][:5]:
            socket.send(pcm16(samples_of(utterance.path)[0]))
            send(socket, type="utterance")
        send(socket, type="end")
        progress = until(socket, "progress")
        assert progress["audio_seconds"] > progress["speech_seconds"] > 0
        assert 0 < progress["peak"] <= 1
        enrolled = until(socket, "enrolled")
    try:
        assert enrolled["name"] == "zoë"
        assert enrolled["seconds"] > 3
        samples, rate = samples_of(heard("clara"))
        assert streamed(service, "zoë", rate, pcm16(samples), "pcm_s16le", 1)["decision"] == "accepted"
    finally:
        decomposed = quote(unicodedata.normalize("NFD", "zoë"))
        assert service.request("DELETE", f"/speakers/{decomposed}").status_code == 200
    assert service.uploads == []


def test_who_leaves_after_the_end_is_enrolled_all_the_same(service, recordings):
    with service.socket("/enroll") as socket:
        send(socket, name="dora", rate=8000, format="pcm_s16le")
        until(socket, "ready")
        for utterance in recordings["clara"][:5]:
            socket.send(pcm16(samples_of(utterance.path)[0]))
            send(socket, type="utterance")
        send(socket, type="end")
        until(socket, "training")
    try:
        # Asked seldom: what trains has only what all else leaves of the processors.
        wait_until(lambda: time.sleep(1.0) or "dora" in names_in(service), 120.0)
    finally:
        assert service.request("DELETE", "/speakers/dora").status_code == 200
    wait_until(lambda: not service.uploads)


@pytest.mark.parametrize(
    "how", ["gone", "gone after the end", "too little speech", "known name", "name like a known one", "odd name"]
)
def test_nobody_is_enrolled_by_half(service, how):
    before = Store(service.store).state()
    name = {"known name": "anna", "name like a known one": "Anna", "odd name": ".."}.get(how, "dora")
    with service.socket("/enroll") as socket:
        send(socket, name=name, rate=8000, format="pcm_s16le")
        if how in ("known name", "name like a known one", "odd name"):
            assert receive(socket)["status"] == (422 if how == "odd name" else 409)
        else:
            until(socket, "ready")
            socket.send(bytes(8000))
            until(socket, "progress")
        if how in ("too little speech", "gone after the end"):
            send(socket, type="end")
        if how == "too little speech":
            while (message := receive(socket))["type"] == "training":
                pass
            assert (message["status"], message["kind"]) == (422, "NotEnoughSpeechError")
    wait_until(lambda: not service.uploads)
    assert Store(service.store).state() == before


@pytest.mark.parametrize(
    ("path", "status"),
    [("/speakers/", 422), ("/speakers/%2e%2e", 404), ("/speakers/a%00b", 422), ("/speakers/%ff", 400)],
)
def test_a_name_that_no_url_can_carry_is_refused(service, path, status):
    answer = service.request("POST", path, files=[])
    assert answer.status_code in (status, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_background_speakers_are_not_removed_by_name_nor_added_to(tmp_path, recordings, tiny):
    enroll(tmp_path / "s", {name: recordings[name] for name in ("ivan", "lars")}, tiny, role="background")
    before = Store(tmp_path / "s").state()
    with running(tmp_path / "s", tmp_path) as service:
        assert names_in(service) == []
        for method, files in (("DELETE", None), ("PUT", files_of(recordings, "ivan", 1))):
            assert "no such" in problem_of(service.request(method, "/speakers/ivan", files=files), 404)
    assert Store(tmp_path / "s").state() == before


@pytest.mark.slow
def test_a_store_is_made_by_the_first_enrollment(tmp_path, recordings, heard):
    settings = ("--set", "features.rate=8000", "--set", "scoring.system=worst_rival", "--set", "codebook.centroids=30")
    with running(tmp_path / "new.store", tmp_path, "--no-background", *settings) as service:
        assert names_in(service) == []
        nobody = service.request("POST", "/verify", data={"claim": "anna"}, files={"file": b"RIFF"})
        assert "nobody is enrolled" in problem_of(nobody, 404)
        for name in ("anna", "lars"):
            made = service.request("POST", f"/speakers/{name}", files=files_of(recordings, name, 12))
            assert made.status_code == 201, made.text
        assert names_in(service) == ["anna", "lars"]
        samples, rate = samples_of(heard("anna"))
        assert streamed(service, "anna", rate, pcm16(samples), "pcm_s16le", 4)["decision"] == "accepted"


@pytest.mark.slow
def test_the_first_user_of_a_new_store_is_told_from_others(tmp_path, recordings, heard):
    with running(tmp_path / "new.store", tmp_path, "--config", "lean") as service:
        assert names_in(service) == []
        made = service.request("POST", "/speakers/bruno", files=files_of(recordings, "bruno", 12))
        assert made.status_code == 201, made.text
        assert names_in(service) == ["bruno"]
        for name, decision in (("bruno", "accepted"), ("lars", "rejected"), ("karla", "rejected")):
            files = {"file": heard(name).read_bytes()}
            answer = service.request("POST", "/verify", data={"claim": "bruno"}, files=files)
            assert answer.json()["decision"] == decision, answer.text


@pytest.mark.skipif(not ffmpeg.is_available(), reason="needs ffmpeg")
def test_nothing_but_what_was_checked_is_enrolled(service, recordings, tmp_path):
    speech = np.concatenate([samples_of(one.path)[0] for one in recordings["bruno"][:12]])
    soundfile.write(tmp_path / "speech.wav", speech, 8000)
    flags = "frag_keyframe+empty_moov+default_base_moof"
    words = ["ffmpeg", "-v", "error", "-i", tmp_path / "speech.wav", "-c:a", "aac", "-movflags", flags]
    subprocess.run([*words, tmp_path / "film.mp4"], check=True)
    film = ("files", ("x.bin", two_faced((tmp_path / "film.mp4").read_bytes())))
    assert "it looks like AAC" in problem_of(service.request("POST", "/speakers/bruno", files=[film]), 422)
    try:
        made = service.request("POST", "/speakers/bruno", files=[film, *files_of(recordings, "bruno")])
        assert made.status_code == 201, made.text
        assert made.json()["utterances"] == 6
        assert [each["file"] for each in made.json()["skipped"]] == ["x.bin"]
    finally:
        service.request("DELETE", "/speakers/bruno")
