"""Lists whose column ``side`` or ``channel`` says which channel of a call a trial is about."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import soundfile

from pipeline.errors import AudioError, InputError
from pipeline.evaluation import Trial, read_list, read_scores, read_trials, write_list
from pipeline.evaluation.assess import assess
from pipeline.evaluation.calibrate import calibrate
from pipeline.evaluation.pairs import assess_pairs
from pipeline.verification.verifier import Verifier

TWO = [Trial("anna", "call.wav", True, channel=1), Trial("anna", "call.wav", False, channel=2)]


@pytest.fixture
def call(tmp_path, heard):
    """A call of anna, on its first channel, and ivan."""
    (anna, rate), (ivan, _) = soundfile.read(heard("anna")), soundfile.read(heard("ivan"))
    count = min(len(anna), len(ivan))
    soundfile.write(tmp_path / "call.wav", np.stack([anna[:count], ivan[:count]], axis=1), rate)
    return tmp_path / "call.wav"


@pytest.mark.parametrize(
    "text",
    [
        "modelid\tsegmentid\tside\ttargettype\nanna\tcall.wav\ta\ttarget\nanna\tcall.wav\tb\tnontarget\n",
        "model,segment,channel,label\nanna,call.wav,1,1\nanna,call.wav,2,0\n",
        "Channel,label,enroll,test\r\nA,target,anna,call.wav\r\nB,nontarget,anna,call.wav\r\n",
    ],
)
def test_the_two_sides_of_a_call_are_two_segments_read_from_their_channels(listed, call, opened, text):
    trials = read_trials(listed(text))
    assert list(trials) == TWO
    scores = assess(opened, trials, call.parent, systems="poao").scores["poao"]
    assert list(scores.paths) == ["call.wav", "call.wav:b"]
    verifier = Verifier(opened, "anna", system="poao")
    alone = [verifier.verify_file(call, channel=channel).score for channel in (1, 2)]
    np.testing.assert_allclose(scores.scores, alone, rtol=0, atol=1e-12)
    assert alone[0] > alone[1]


@pytest.mark.parametrize("column", [("side", ["a", "b"]), ("channel", [1, 2])])
def test_the_sides_of_a_parquet_list_are_those_of_text(tmp_path, column):
    name, values = column
    table = pa.table({"model": ["anna"] * 2, "segment": ["call.wav"] * 2, "label": [1, 0], name: values})
    pyarrow.parquet.write_table(table, tmp_path / "list.parquet")
    assert list(read_trials(tmp_path / "list.parquet")) == TWO


@pytest.mark.parametrize("channel", [0, "1", True])
def test_a_channel_for_all_files_that_is_no_number_from_1_is_refused_before_any_is_read(opened, call, channel):
    with pytest.raises(AudioError, match="channels are numbered from 1, got channel"):
        assess(opened, [Trial("anna", call.name, True)], call.parent, channel=channel)


def test_other_values_of_a_channel_are_metadata_and_one_that_is_not_there_is_a_failed_file(listed, call, opened):
    trials = read_trials(listed("model,segment,channel,label\nanna,call.wav,tel,1\nivan,call.wav,1,0\n"))
    assert [(one.channel, one.metadata) for one in trials] == [(None, {"channel": "tel"}), (None, {"channel": "1"})]
    trials = read_trials(listed("model,segment,channel,label\nanna,call.wav,3,1\n"))
    (failed,) = assess(opened, trials, call.parent, systems="poao").failed
    assert failed.path == "call.wav:3"
    assert "call.wav: channel 3 was to be read, and the recording has 2 channels" in failed.reason


def test_a_side_keeps_its_name_in_any_format(listed, tmp_path):
    table = read_list(listed("model,segment,channel,label\nanna,x,1,1\nanna,x,2,0\nivan,x,2,1\n"))
    for name in ("nist", "csv", "kaldi", "parquet"):
        write_list(tmp_path / name, table, format_name=name, kind="key")
        read = read_list(tmp_path / name, format_name=name)
        assert list(read.segments) == ["x", "x:b", "x:b"]
        assert list(read.models) == ["anna", "anna", "ivan"]


def test_the_command_line_writes_each_side_under_its_name(inside, store, call, tmp_path):
    (tmp_path / "list.csv").write_text("model,segment,side,label\nanna,call.wav,a,1\nanna,call.wav,b,0\n")
    result = inside("evaluate", store, "list.csv", "--out", "out", "--systems", "poao")
    assert (result.code, "channels that differ" in result.err) == (0, False)
    first, second = read_scores(tmp_path / "out" / "scores.txt")["poao"].scores
    assert first > second


def test_calibration_takes_sides(copied, tmp_path, heard, voices):
    rows = ["model,segment,channel,label"]
    for n in range(3):
        for left, right in zip(voices, voices[1:] + voices[:1], strict=True):
            sides = [soundfile.read(heard(voice, n))[0] for voice in (left, right)]
            count = min(map(len, sides))
            soundfile.write(tmp_path / f"{left}{n}.wav", np.stack([side[:count] for side in sides], axis=1), 8000)
            owned = enumerate((left, right), start=1)
            rows += [f"{claim},{left}{n}.wav,{side},{int(claim == own)}" for side, own in owned for claim in voices]
    (tmp_path / "own.csv").write_text("\n".join(rows) + "\n")
    report = calibrate(copied, tmp_path / "own.csv", tmp_path)
    count = 3 * len(voices) * 2
    assert (report.target_trials, len(report.trials), report.mixed) == (count, count * len(voices), ())
    assert report.after.eer < 0.25


def test_a_segment_that_stands_for_two_is_refused(opened, call):
    with pytest.raises(InputError, match=r"'call\.wav' stands for channel None .* and for channel 1 of 'call\.wav'"):
        assess(opened, [TWO[0], Trial("ivan", "call.wav", False)], call.parent)


def test_a_second_channel_of_a_pipe_that_gives_the_first_alone_is_refused(opened, call):
    (call.parent / "wav.scp").write_text(f"call.wav sph2pipe -f wav -p -c 1 {call} |\n")
    with pytest.raises(InputError, match=r"channel 2 of 'call\.wav' is wanted, but .* channel 1 of .*call\.wav;"):
        assess(opened, TWO, call.parent)


def test_pairs_have_no_sides(opened, call):
    with pytest.raises(InputError, match="a list of pairs must name recordings alone, got a column of channels"):
        assess_pairs(opened, [Trial("call.wav", "call.wav", True, channel=2)], call.parent)
