"""Audio that is a bomb, never ends, is cut short, damaged or no audio: an error that names it, and never a score."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import time

import hostile
import numpy as np
import pytest
import soundfile
from hostile import CHANCE, SETTINGS, SOON, damaged, soon
from hypothesis import given, settings
from hypothesis import strategies as st
from waves import decode

from pipeline.audio.files import open_audio
from pipeline.audio.streams import stream_pipe
from pipeline.errors import AudioError
from pipeline.scoring.decisions import Decision
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

pytestmark = hostile.POSIX_ONLY


def written(samples: np.ndarray, kind: str, subtype: str, rate: int = hostile.RATE, **how: str) -> bytes:
    """A file in memory."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype, **how)
    return file.getvalue()


def noise(seconds: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, seconds * hostile.RATE)


# Sizes


def test_a_bomb_is_cut_off_in_proportion_to_its_size():
    """Decoded audio is bounded in proportion to the size of the file; a long recording of near silence still passes."""
    bomb = hostile.flac_bomb(400)
    decoded = 0
    with open_audio(io.BytesIO(bomb)) as audio, pytest.raises(AudioError, match="decompression bomb"):
        for block in audio.blocks():
            decoded += len(block)
    assert decoded <= 2**22 + 512 * len(bomb)
    assert len(decode(io.BytesIO(hostile.flac_bomb(60)))) == 60 * 65_535  # four minutes of silence
    silence = np.zeros(6 * 60 * hostile.RATE, dtype=np.int16)
    speech = (hostile.tone(10.0) * 2**14).astype(np.int16)
    recording = written(np.concatenate([silence, speech]), "FLAC", "PCM_16")
    assert len(decode(io.BytesIO(recording))) == len(silence) + len(speech)


def test_a_segment_of_a_recording_that_is_too_long_can_be_read(tmp_path):
    path = hostile.sparse(tmp_path / "day.wav", hostile.rf64(2**33), 2**34)
    with pytest.raises(AudioError, match="at most 43200 s"):
        open_audio(path)
    assert len(decode(path, start=3600.0 * 100, end=3600.0 * 100 + 0.5)) == 8000


@pytest.mark.parametrize("head", [b"", b"LIST\xff\xff\xff\xff"], ids=["zeros", "a huge chunk"])
def test_a_header_that_never_ends_is_given_up(head):
    """A pipe that begins like a WAV file and goes on in zeros."""
    reading, writing = os.pipe()
    os.write(writing, b"RIFF\xff\xff\xff\xffWAVE" + head)  # first: later it might wait for room in the pipe
    zeros = subprocess.Popen(["head", "-c", str(2**30), "/dev/zero"], stdout=writing, stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe, soon(60), pytest.raises(AudioError, match="pipe: "):
            stream_pipe(pipe)
    finally:
        zeros.kill()
        zeros.wait()


# Damage


def test_a_flac_cut_short_is_never_scored(store, heard, tmp_path):
    whole = heard("anna").read_bytes()
    verifier = Verifier(Store(store).load(), "anna")
    for share in (0.02, 0.4, 0.7, 0.85):
        (tmp_path / "a.bin").write_bytes(whole[: round(len(whole) * share)])
        with pytest.raises(AudioError, match=r"a\.bin: .*(cut short|damaged)"):
            verifier.verify_file(tmp_path / "a.bin")


def test_a_flac_cut_between_two_frames_is_cut_short():
    whole = hostile.flac_bomb(8)
    frame = (len(whole) - 42) // 8
    assert len(decode(io.BytesIO(whole))) == 8 * 65_535
    with pytest.raises(AudioError, match=r"ends at 12\.288 s, and its header says 32\.767 s"):
        decode(io.BytesIO(whole[: 42 + 3 * frame]))


@pytest.mark.parametrize("kind", ["WAV", "AIFF", "AU", "W64", "RF64", "NIST", "SVX"])
def test_a_file_whose_header_says_more_than_there_is_is_cut_short(kind):
    whole = written(hostile.tone(3.0), kind, "PCM_16")
    assert len(decode(io.BytesIO(whole))) == 3 * hostile.RATE
    with pytest.raises(AudioError, match=r"it ends at 1\.\d+ s, and its header says 3\.000 s; .*cut short"):
        decode(io.BytesIO(whole[: len(whole) // 2]))


@pytest.mark.parametrize("sound", [noise(3), np.zeros(3 * hostile.RATE)])
def test_a_wav_file_whose_recorder_was_interrupted_before_it_wrote_the_size_is_no_silence(sound):
    whole = written(sound, "WAV", "PCM_16")
    at = whole.index(b"data") + 4
    for size in (bytes(4), (36).to_bytes(4, "little"), b"\xff" * 4):
        begun = b"RIFF" + size + whole[8:at] + bytes(4) + whole[at + 4 :]
        with pytest.raises(AudioError, match=r"says 0 bytes of samples, and 96,000 bytes follow: .*-ignore_length 1"):
            decode(io.BytesIO(begun))
    notes = b"LIST" + (900).to_bytes(4, "little") + b"INFO" + bytes(896)
    assert len(decode(io.BytesIO(whole[:at] + bytes(4) + notes))) == 0  # a recording of nothing, with a title


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_stream_that_ends_within_a_page_is_cut_short_and_one_without_a_last_page_is_not(subtype):
    """Live streams are recorded from page to page: what ends after any page is whole."""
    data, size = written(noise(30), "OGG", subtype), 30 * hostile.RATE
    assert len(decode(io.BytesIO(data + bytes(99)))) == len(decode(io.BytesIO(data))) == size
    pages = [at.start() for at in re.finditer(b"OggS", data)]
    assert len(pages) > 4
    assert 0 < len(decode(io.BytesIO(data[: pages[-1]]))) < size
    for end in (pages[-1] + 10, pages[-1] + 29, len(data) - 1, (pages[-2] + pages[-1]) // 2):
        with pytest.raises(AudioError, match=r"it ends at \d+\.\d+ s, within a page of its Ogg stream; .*cut short"):
            decode(io.BytesIO(data[:end]))


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_ogg_files_joined_end_to_end_are_refused_since_the_first_alone_would_be_read(subtype):
    parts = [written(noise(1, seed), "OGG", subtype) for seed in range(2)]
    assert len(decode(io.BytesIO(parts[1]))) == hostile.RATE
    with pytest.raises(AudioError, match=r"another Ogg stream follows at 1\.000 s, .*; ffmpeg -i FILE OTHER\.wav"):
        decode(io.BytesIO(b"".join(parts)))
    with pytest.raises(AudioError, match="another Ogg stream follows" if subtype == "VORBIS" else "decoding fails"):
        decode(io.BytesIO(2 * parts[0]))  # two streams of one serial number


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_stream_with_anything_else_inside_is_damaged(subtype):
    """Decoders leave out pages that are broken: what is left may be too short, or of another moment than it seems."""
    data = written(noise(30), "OGG", subtype)
    pages = [at.start() for at in re.finditer(b"OggS", data)]
    middle = (pages[2] + pages[3]) // 2
    for changed in (data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], data[:middle] + data[middle + 9 :]):
        with pytest.raises(AudioError, match=rf"page of its Ogg stream at byte {pages[2]:,} breaks its checksum"):
            decode(io.BytesIO(changed))
    with pytest.raises(AudioError, match=rf"its Ogg stream is interrupted at byte {pages[3]:,}; .*damaged"):
        decode(io.BytesIO(data[: pages[3]] + b"\r\n" + data[pages[3] :]))


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize("rate", [8000, 44100])
def test_an_mp3_file_that_counts_more_frames_than_it_has_is_cut_short(mode, rate, heard):
    speech = soundfile.read(heard("anna"))[0]
    data = written(speech, "MP3", "MPEG_LAYER_III", rate, bitrate_mode=mode)
    titled = b"ID3\x04\x00\x00\x00\x00\x01\x0a" + bytes(138) + data  # a tag as long as 128 and 10 bytes
    # Some encoders count the bytes without those of the first frame, so that the last one lies behind what they count.
    at, first = re.search(rb"Xing|Info", data).start() + 12, data.index(data[:2], 4)
    fewer = data[:at] + (len(data) - first).to_bytes(4) + data[at + 4 :]
    for kept in (data, titled, fewer, data + b"TAG" + bytes(125)):
        assert len(decode(io.BytesIO(kept))) == len(speech)
    for share in (0.3, 0.6):
        for cut in (data[: round(len(data) * share)], titled[: round(len(titled) * share)]):
            said = f"{len(speech) / rate:.3f}"
            with pytest.raises(AudioError, match=rf"it ends at \d\.\d+ s, and its header says {said} s; .*cut short"):
                decode(io.BytesIO(cut))
    for other in (data, titled):
        with pytest.raises(AudioError, match=r"another MP3 stream follows at .*; ffmpeg -i FILE OTHER\.wav"):
            decode(io.BytesIO(data + other))


def in_wav(mp3: bytes, rate: int) -> bytes:
    form = struct.pack("<HHIIHHHHIHHH", 0x55, 1, rate, 8000, 1, 0, 12, 1, 2, 1152, 1, 1105)
    chunks = b"".join(name + struct.pack("<I", len(data)) + data for name, data in ((b"fmt ", form), (b"data", mp3)))
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks


@pytest.mark.parametrize("loud_first", [True, False])
@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_an_mp3_file_of_variable_bit_rate_without_a_count_is_read_whole_or_refused(rate, loud_first):
    """As ffmpeg writes into a pipe. A decoder guesses the length from the first frames: too short if they are large."""
    parts = [noise(4), np.zeros(4 * hostile.RATE)]
    samples = np.concatenate(parts if loud_first else parts[::-1])
    data = written(samples, "MP3", "MPEG_LAYER_III", rate, bitrate_mode="VARIABLE")
    uncounted = data[data.index(data[:2], 4) :]  # without the first frame, which has the count
    if loud_first:
        said = r"more MP3 audio follows at \d.* variable bit rate .*; ffmpeg -i FILE OTHER\.wav decodes all"
        for data in (uncounted, in_wav(uncounted, rate)):
            with pytest.raises(AudioError, match=said):
                decode(io.BytesIO(data))
    else:
        for data in (uncounted, in_wav(uncounted, rate)):
            assert len(decode(io.BytesIO(data))) >= len(samples)


def test_samples_without_a_header_that_hold_frames_of_mpeg_are_no_recording(heard):
    """From anywhere in the first half on, so that enough follows for a score."""
    speech, said = soundfile.read(heard("anna"), dtype="int16")[0], []
    for quieter, coding in ((16, "<i2"), (1, ">i2")):
        data = (speech // quieter).astype(coding).tobytes()
        starts = [found.start() for found in re.finditer(rb"\xff[\xe2-\xf7\xfa-\xff]", data[: len(data) // 2])]
        for start in starts[:300]:
            with pytest.raises(AudioError) as refused:
                decode(io.BytesIO(data[start:]))
            said.append(str(refused.value))
    found = [text for text in said if "samples without a header, in which a decoder finds MPEG frames?" in text]
    assert {"MPEG_LAYER_I", "MPEG_LAYER_II"} <= {re.search(r"MPEG_LAYER_\w+", text)[0] for text in found}


@pytest.mark.parametrize("seconds", [0.02, 1])
def test_an_mp3_file_of_the_highest_rate_is_read_whatever_tags_it_has(seconds):
    samples = noise(1)[: int(seconds * hostile.RATE)]
    data = written(samples, "MP3", "MPEG_LAYER_III", 48_000, bitrate_mode="CONSTANT", compression_level=0.0)
    uncounted = re.sub(rb"Xing|Info", b"none", data, count=1)
    picture = b"ID3\x04\0\0\0\x7f\x7f\x7f" + bytes(2**21 - 1)
    cover = struct.pack("<II18s", 2**21, 2, b"Cover Art (Front)") + bytes(2**21)
    begin, end = (
        struct.pack("<8sIIII8x", b"APETAGEX", 2000, len(cover) + 32, 1, flags) for flags in (0xA0000000, 0x80000000)
    )
    ape, id3 = begin + cover + end, b"TAG" + bytes(125)
    tagged = (uncounted + id3, picture + data, picture + uncounted, uncounted + ape, uncounted + ape + id3, data + ape)
    for kept in (data, uncounted, *tagged):
        assert len(decode(io.BytesIO(kept))) >= len(samples)


@pytest.mark.parametrize("count", [b"0", b"32000", b"16100", b"18000"])
def test_a_sphere_file_is_read_whose_count_is_of_all_channels_or_miscounted(count):
    """A recorder into a pipe cannot know the count; some programs multiply it by the channels."""
    sound = np.stack([hostile.tone(1.0)] * 2, axis=1)
    data, frames = written(sound, "NIST", "PCM_16"), len(sound)
    line = f"sample_count -i {frames}".encode()
    assert line in data and len(data) == 1024 + 4 * frames
    other = data.replace(line, (b"sample_count -i " + count).ljust(len(line)), 1)
    if count == b"18000":
        with pytest.raises(AudioError, match="cut short"):
            decode(io.BytesIO(other))
    else:
        assert len(decode(io.BytesIO(other))) == frames


@pytest.mark.parametrize("size", [2**32 - 1, 2**31 - 1, 2**31, 2**31 - 4096, 2 * hostile.RATE + 44])
def test_a_wav_of_unknown_or_miscounted_size_is_read_to_its_end(size):
    data = written(hostile.tone(1.0), "WAV", "PCM_16")
    assert len(decode(io.BytesIO(data[:40] + size.to_bytes(4, "little") + data[44:]))) == hostile.RATE


@pytest.mark.parametrize("rate", [8000, 400_000])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_next_to_no_samples_are_not_enough_speech(store, tmp_path, count, rate):
    soundfile.write(tmp_path / "a.wav", np.full(count, 0.5), rate)
    update = Verifier(Store(store).load(), "anna").verify_file(tmp_path / "a.wav")
    assert update.decision is Decision.NOT_ENOUGH_SPEECH
    assert update.score is update.llr is update.probability is None


def test_tables_of_numbers_and_sample_dumps_are_no_recordings(tmp_path):
    for kind, subtype in (("MAT5", "DOUBLE"), ("MAT4", "DOUBLE"), ("HTK", "PCM_16"), ("SDS", "PCM_16")):
        path = tmp_path / f"{kind}.wav"
        soundfile.write(path, hostile.tone(0.2), hostile.RATE, format=kind, subtype=subtype)
        data = path.read_bytes()
        for tag in (b"", b"ID3\x03\0\0\0\0\0\x0a" + bytes(10)):
            path.write_bytes(tag + data)
            with pytest.raises(AudioError, match=rf"{kind}\.wav: "):
                decode(path)


def test_a_resource_fork_that_lies_about_makes_no_audio_of_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    soundfile.write("a.sd2", hostile.tone(0.2), hostile.RATE, format="SD2", subtype="PCM_16")
    fork = next(path for path in tmp_path.rglob("*") if path.is_file() and path.name.startswith("._"))
    fork.rename(tmp_path / "._")
    (tmp_path / "claim.wav").write_text("hello, this is no audio at all\n" * 100)
    with pytest.raises(AudioError, match=r"claim\.wav: "):
        decode(tmp_path / "claim.wav")


@settings(SETTINGS, max_examples=150)
@given(st.sampled_from(hostile.codings()), CHANCE)
def test_a_mutated_file_of_any_format_is_audio_or_an_audio_error(tmp_path, coding, chance):
    path = tmp_path / "mutated"
    path.write_bytes(damaged(chance, hostile.encoded(*coding)))
    started = time.process_time()
    try:
        samples = decode(path)
    except AudioError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(samples).all()
    assert time.process_time() - started < SOON
