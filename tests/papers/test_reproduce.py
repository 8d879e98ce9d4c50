"""`python -m benchmarks.papers`: its files, the YOHO protocol, and the figures of Xin, Wu and Pan 2002."""

from __future__ import annotations

import contextlib
import io
import json
import re

import numpy as np
import pytest
import soundfile
from matplotlib.figure import Figure
from matplotlib.image import imread

from benchmarks.papers.__main__ import main
from benchmarks.papers.outcome import Outcome, Row, write
from benchmarks.papers.xin2002 import PAPER, protocol_of
from benchmarks.papers.xin2002_plots import plot_fa_fr
from pipeline.errors import InputError, MetricError
from pipeline.metrics import equal_error_rate

# The tree has fewer speakers than sessions of each, so read_corpus warns that the sessions may be the speakers.
pytestmark = pytest.mark.filterwarnings("ignore:4 folders")

# What is written


def blank() -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    return figure


ROWS = (
    Row("errors", 2441, 2450, "a|b"),
    Row("rate", 4.55, 9.0),
    Row("rate again", 0.085, 0.08449),
    Row("score", 5323, 5323.418),
    Row("not in the paper", None, float("nan")),
    Row("of numpy", np.float64(1.5), np.int64(3)),
    Row("overflow", "no solution", float("inf")),
)
OUTCOME = Outcome("demo1999", "A paper", ROWS, ("One thing differs.",), {"figure1": blank}, {"seeds": [1, 2]})


def test_the_table_is_written_for_machines_and_for_readers(tmp_path):
    out = tmp_path / "a" / "out"
    written = write(OUTCOME, out, command="voiceclaim x", seconds=1.3, date="2026-01-02")
    assert {path.name for path in written} == {"figure1.pdf", "figure1.png", "table.json", "table.md"}
    assert set(out.iterdir()) == set(written)
    table = json.loads((out / "table.json").read_text())
    assert table["rows"][0] == {"name": "errors", "paper": 2441, "here": 2450, "note": "a|b"}
    assert [row["here"] for row in table["rows"][1:]] == [9.0, 0.08449, 5323.418, None, 3, "inf"]
    assert (table["command"], table["seconds"], table["date"]) == ("voiceclaim x", 1.3, "2026-01-02")
    assert (table["notes"], table["figures"], table["seeds"]) == (["One thing differs."], ["figure1"], [1, 2])
    lines = (out / "table.md").read_text().splitlines()
    assert lines[0] == "# A paper"
    assert lines[4:11] == [
        r"| errors | 2441 | 2450 | a\|b |",
        "| rate | 4.55 | 9.00 |  |",
        "| rate again | 0.085 | 0.08449 |  |",
        "| score | 5323 | 5323.4 |  |",
        "| not in the paper | - | nan |  |",
        "| of numpy | 1.5 | 3.0 |  |",
        "| overflow | no solution | inf |  |",
    ]
    assert "- One thing differs." in lines
    assert re.fullmatch(r"Made by `voiceclaim x`, voiceclaim .*, 2026-01-02, 1.3 s\.", lines[-1])


def test_an_outcome_that_cannot_be_drawn_or_written_leaves_what_was_there(tmp_path):
    write(OUTCOME, tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken() -> Figure:
        raise MetricError("no scores")

    with pytest.raises(MetricError):
        write(Outcome("demo1999", "Another", (), figures={"figure1": blank, "figure2": broken}), tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        write(OUTCOME, tmp_path / "mine.txt")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# The YOHO protocol

VOICES = {"101": "anna", "102": "dexter", "104": "ivan"}
ENROLLED, VERIFIED = 8, 4


@pytest.fixture(scope="module")
def yoho(tmp_path_factory, demo):
    """Three synthetic voices as the LDC has YOHO: SPHERE files at 8 kHz, one a phrase, in sessions.

    One file in 101's VERIFY folder is really 102's voice.
    """
    root = tmp_path_factory.mktemp("corpus") / "YOHO"
    for part, kind, count in (("ENROLL", "enroll", ENROLLED), ("VERIFY", "verify", VERIFIED)):
        for speaker, voice in VOICES.items():
            for n, file in enumerate(sorted((demo / kind / voice).glob("*.flac"))[:count]):
                path = root / part / speaker / str(1 + n // 2) / f"{file.stem}.WAV"
                path.parent.mkdir(parents=True, exist_ok=True)
                samples, rate = soundfile.read(file)
                soundfile.write(path, samples, rate, format="NIST", subtype="PCM_16")
    stranger = sorted((demo / "verify" / VOICES["102"]).glob("*.flac"))[VERIFIED]
    mistaken = sorted((root / "VERIFY" / "101").rglob("*.WAV"))[0]
    soundfile.write(mistaken, *soundfile.read(stranger), format="NIST", subtype="PCM_16")
    return root


def test_every_utterance_is_claimed_for_every_speaker(yoho):
    protocol = protocol_of(yoho)
    assert [(name, len(utterances)) for name, utterances in protocol.enroll.items()] == [
        (speaker, ENROLLED) for speaker in VOICES
    ]
    files = {path.relative_to(yoho).as_posix() for path in (yoho / "VERIFY").rglob("*.WAV")}
    claims = {(trial.speaker, trial.path, trial.target) for trial in protocol.trials}
    assert claims == {(claim, file, f"/{claim}/" in file) for claim in VOICES for file in files}
    assert len(protocol.trials) == len(claims) == 3 * 3 * VERIFIED
    assert not {str(u.path) for us in protocol.enroll.values() for u in us} & {str(yoho / file) for file in files}


def test_the_first_speakers_are_enrolled_and_are_each_others_impostors(yoho):
    protocol = protocol_of(yoho, speakers=2)
    assert list(protocol.enroll) == ["101", "102"]
    assert len(protocol.trials) == 2 * 2 * VERIFIED
    with pytest.raises(InputError, match="4 speakers asked for, got 3"):
        protocol_of(yoho, speakers=4)


def test_a_trial_list_says_which_claims(yoho, tmp_path):
    for name in ("a.wav", "b.wav", "c.wav"):
        (tmp_path / name).write_bytes(b"")
    trials = tmp_path / "trials.txt"
    trials.write_text(
        "101 a.wav target\n102 a.wav nontarget\n104 a.wav nontarget\n"
        "104 b.wav target\n101 b.wav nontarget\n102 c.wav nontarget\n"
    )
    assert [(t.speaker, t.path) for t in protocol_of(yoho, trials).trials] == [
        ("101", "a.wav"), ("102", "a.wav"), ("104", "a.wav"), ("104", "b.wav"), ("101", "b.wav"),
    ]  # fmt: skip
    first = protocol_of(yoho, trials, 2)
    assert [(t.speaker, t.path, t.target) for t in first.trials] == [("101", "a.wav", True), ("102", "a.wav", False)]
    assert first.root == tmp_path
    # A folder of speakers without ENROLL will do where there is a list.
    assert list(protocol_of(yoho / "ENROLL", trials).enroll) == list(VOICES)


def test_a_corpus_of_another_shape_is_refused(yoho, tmp_path):
    with pytest.raises(InputError, match="must be a folder"):
        protocol_of(tmp_path / "nowhere")
    with pytest.raises(InputError, match="ENROLL and VERIFY"):
        protocol_of(tmp_path)
    (tmp_path / "Enroll").symlink_to(yoho / "ENROLL")
    with pytest.raises(InputError, match="VERIFY beside ENROLL"):
        protocol_of(tmp_path)
    (tmp_path / "verify" / "999").mkdir(parents=True)
    soundfile.write(tmp_path / "verify" / "999" / "a.wav", np.zeros(8000), 8000)
    with pytest.raises(InputError, match="none of its speakers"):
        protocol_of(tmp_path)
    (tmp_path / "trials.txt").write_text("bob a.wav target\n")
    with pytest.raises(InputError, match="another corpus"):
        protocol_of(yoho, tmp_path / "trials.txt")
    with pytest.raises(InputError):
        protocol_of(yoho, tmp_path / "none.txt")


# The command


@pytest.fixture(scope="module")
def again(yoho, tmp_path_factory):
    """The paper's table made again over the tree: the folder and what was printed."""
    out, printed = tmp_path_factory.mktemp("again") / "out", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["xin2002", "--corpus", str(yoho), "--out", str(out), "--jobs", "2"]) == 0
    return out, printed.getvalue()


def test_the_five_systems_stand_beside_the_paper(again):
    out, printed = again
    table = json.loads((out / "table.json").read_text())
    rates = {row["name"].lower(): row for row in table["rows"][:5]}
    assert {name: row["paper"] for name, row in rates.items()} == PAPER
    assert (table["speakers"], table["n_target"], table["n_nontarget"], table["n_failed"]) == (3, 12, 24, 0)
    assert table["machines"] == 3 + 3 + 3
    assert table["settings"]["codebook"]["centroids"] == 200
    assert "python -m benchmarks.papers xin2002 --corpus" in table["command"]
    for name, row in rates.items():
        assert f"| {name.upper()} |" in printed
        assert row["here"] == pytest.approx(table["eer_percent"][name], abs=0.006)
    assert "settings of configs/paper.toml" in printed


def test_the_one_mistaken_file_of_twelve_is_the_equal_error_rate(again):
    # The voices are far apart: 11 true claims score above all false ones but one, and the mistaken file is rejected.
    rates = json.loads((again[0] / "table.json").read_text())["eer_percent"]
    for name in ("poar", "boao", "poao", "rpoao"):
        assert rates[name] == pytest.approx(100 / 12, abs=1e-6), name
    assert 0 < rates["boar"] <= 100 / 12 + 1e-6, "ties at no frame accepted may be joined"


def test_both_figures_are_drawn_either_way(again):
    out, printed = again
    for name in ("figure1", "figure2", "figure1_thresholds", "figure2_thresholds"):
        assert imread(out / f"{name}.png").std() > 0.01
        assert (out / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert f"{name}.png" in printed


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("xin2002",), "needs --corpus"),
        (("xin2002", "--corpus", ".", "--tables", "."), "--tables does not apply to xin2002"),
        (("lin2007", "--corpus", "."), "--corpus does not apply to lin2007"),
        (("implied2020", "--tasks", "web"), "--tasks does not apply to implied2020"),
        (("vapnik1995",), "vapnik1995"),
    ],
)
def test_options_that_do_not_apply_are_refused_in_a_line(capsys, tmp_path, words, problem):
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# Figures


def test_the_curves_meet_the_diagonal_at_the_rates_that_are_marked():
    generator = np.random.default_rng(1)
    curves = {
        "BOAO": (generator.integers(3, 12, 40) / 12, generator.integers(0, 8, 200) / 12),
        "POAO": (generator.normal(2, 1, 40), generator.normal(0, 1, 200)),
    }
    lines = plot_fa_fr(curves, {"BOAO": 6.75}, title="Figure 2").axes[0].get_lines()
    assert [float(line.get_xdata()[0]) for line in lines if line.get_marker() == "x"] == [6.75]
    marks = [line.get_xydata()[0] for line in lines if line.get_marker() == "o"]
    rates = [100 * equal_error_rate(*pair).rate for pair in curves.values()]
    np.testing.assert_allclose(marks, np.repeat(rates, 2).reshape(2, 2))
