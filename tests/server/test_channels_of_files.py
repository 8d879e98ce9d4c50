"""Files of several channels that are sent to the service: one of them chosen, or a warning of their mean."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.errors import ServiceError
from pipeline.verification.audio_warnings import WARNINGS
from pipeline.verification.identifier import Identifier
from pipeline.verification.verifier import Verifier

pytestmark = pytest.mark.server

WARNING = f"channels: {WARNINGS['channels']}"


def written(path: Path, *files: Path) -> Path:
    sides = [soundfile.read(file)[0] for file in files]
    soundfile.write(path, np.stack([side[: min(map(len, sides))] for side in sides], axis=1), 8000, subtype="PCM_16")
    return path


@pytest.fixture
def call(tmp_path, heard):
    """Anna on the first channel, ivan on the second."""
    return written(tmp_path / "call.wav", heard("anna"), heard("ivan"))


def test_a_channel_is_verified_and_identified_as_by_the_library(client, opened, call):
    for channel, name in ((1, "anna"), (2, "ivan"), (None, "anna")):
        expected = Verifier(opened, name).verify_file(call, channel=channel)
        update = client.verify(name, call, channel=channel).update
        assert (update.decision, update.warnings) == (expected.decision, expected.warnings)
        assert update.score == pytest.approx(expected.score, abs=1e-6)
        assert (WARNING in update.warnings) == (channel is None)
        by_library = Identifier(opened).identify_file(call, channel=channel)
        found = client.identify(call, channel=channel)
        assert (found.name, found.warnings) == (by_library.name, by_library.warnings)
        assert (WARNING in found.warnings) == (channel is None)


@pytest.mark.parametrize("channel", ["0", "-1", "1.5", "left", "", "9" * 30, "٣"])
def test_a_channel_that_is_no_number_is_a_problem(service, call, channel):
    for path, data in (("/verify", {"claim": "anna"}), ("/identify", {}), ("/speakers/bob", {})):
        field = "files" if path == "/speakers/bob" else "file"
        answer = service.request("POST", path, data={**data, "channel": channel}, files={field: call.read_bytes()})
        assert answer.status_code == 422
        assert "the field 'channel' must be the number of a channel, from 1" in answer.json()["detail"]


def test_a_channel_that_is_a_file_is_a_problem(service):
    answer = service.request("POST", "/speakers/bob", files=[("files", b"RIFF"), ("channel", b"1")])
    assert (answer.status_code, "'channel' must be text, once" in answer.json()["detail"]) == (422, True)


def test_a_channel_that_a_file_lacks_is_a_problem(client, call):
    for ask in (
        lambda: client.verify("anna", call, channel=3),
        lambda: client.identify(call, channel=3),
        lambda: client.enroll("bob", [call], channel=3),
    ):
        with pytest.raises(ServiceError, match="channel 3 was to be read, and the recording has 2 channels") as refused:
            ask()
        assert refused.value.status == 422


def test_a_speaker_is_enrolled_from_a_channel_and_a_mixture_warns(client, tmp_path, recordings):
    pairs = list(zip(recordings["edith"], recordings["bruno"], strict=False))[:6]
    calls = [written(tmp_path / f"{n}.wav", *(one.path for one in pair)) for n, pair in enumerate(pairs)]
    mono = tmp_path / "mono.wav"
    soundfile.write(mono, soundfile.read(calls[0])[0][:, 0], 8000)
    try:
        mixed = client.enroll("mixed", [*calls, shutil.copy(calls[0], tmp_path / "again.wav")])
        for words in ("7 of 7 recordings are the mean of channels", "the first of them again.wav, of 0.wav."):
            assert [warning for warning in mixed.warnings if words in warning]
        client.remove("mixed")
        made = client.enroll("bruno", [*calls, mono], channel=2)
        assert not [warning for warning in made.warnings if "channels" in warning]
        [(name, reason)] = made.skipped
        assert (name, "channel 2 was to be read" in reason) == ("mono.wav", True)
        added = written(tmp_path / "added.wav", recordings["edith"][7].path, recordings["bruno"][7].path)
        assert client.enroll("bruno", [added], add=True, channel=2).speaker.utterances == 7
        alone = client.verify("bruno", recordings["bruno"][8].path)
        assert alone.decision == "accepted"
    finally:
        left = {speaker.name for speaker in client.speakers()}
        for name in left & {"mixed", "bruno"}:
            client.remove(name)


def test_the_description_of_the_interface_has_the_field(service):
    paths = service.request("GET", "/openapi.json").json()["paths"]
    for path, method in (("/verify", "post"), ("/identify", "post"), ("/speakers/{name}", "put")):
        form = paths[path][method]["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["properties"]["channel"] == {"type": "integer", "minimum": 1}
        assert "channel" not in form["required"]
