"""Speakers from store to store: what is exact, what is refused, what an export and a store hold and what not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from test_enrollment import arrays_of, assert_same, content

from pipeline.commands.speakers import speakers as command
from pipeline.corpus import Utterance
from pipeline.enrollment import enroll, remove_speaker
from pipeline.errors import SpeakerExistsError, TransferError, UnknownSpeakerError, VoiceclaimError
from pipeline.frontend import read_samples
from pipeline.store import SpeakerStore
from pipeline.transfer import export_speakers, import_speakers
from pipeline.transfer_file import read_export
from pipeline.updates import Decision
from pipeline.verification import Verifier

SMALL = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def exported(store, tmp_path_factory) -> Path:
    """Everybody in the session's store."""
    path = tmp_path_factory.mktemp("exported") / "all.speakers"
    export_speakers(store, path)
    return path


def scores(store: SpeakerStore, claim: str, file: Path) -> dict[str, float | None]:
    return {system: Verifier(store, claim, system=system).verify_file(file).score for system in store.systems}


# Round trips


def test_everybody_exported_into_a_new_store_are_the_same_bit_for_bit(store, exported, voices, heard, tmp_path):
    report = import_speakers(tmp_path / "new", exported)
    source = SpeakerStore.open(store)
    assert report.imported == voices
    assert report.held_out_trials == len(source.trials)
    assert_same(report.store, source)
    assert report.store.config == source.config
    about = [speaker.model_dump(exclude={"file"}) for speaker in report.store.speakers]
    assert about == [speaker.model_dump(exclude={"file"}) for speaker in source.speakers]
    for claim in voices[:2]:
        assert scores(report.store, claim, heard("anna")) == scores(source, claim, heard("anna"))
        np.testing.assert_array_equal(report.store.fingerprints(claim), source.fingerprints(claim))
        ours, theirs = (Verifier(one, claim).verify_file(heard("ivan")) for one in (report.store, source))
        assert ours == theirs


@pytest.mark.parametrize("settings_", [(), ("posterior.kind=platt",), ("segments.crowd=9", "segments.most=30")])
def test_some_exported_into_a_new_store_are_what_is_left_when_the_others_are_removed(
    tmp_path, recordings, tiny_with, settings_
):
    source = tmp_path / "source"
    enroll(source, {name: recordings[name] for name in ("anna", "dexter", "ivan")}, tiny_with(*settings_))
    enroll(source, {name: recordings[name] for name in ("lars", "hugo")})
    export_speakers(source, tmp_path / "x", ["hugo", "dexter", "ivan"])
    for name in ("anna", "lars"):
        left = remove_speaker(source, name)
    found = import_speakers(tmp_path / "new", tmp_path / "x")
    assert found.imported == ("dexter", "ivan", "hugo")
    assert_same(found.store, left)
    for ours, theirs in zip(found.store.files.speakers(), left.files.speakers(), strict=True):
        assert set(ours.names()) == set(theirs.names())
        for name in ours.names():
            np.testing.assert_array_equal(ours.read(name), theirs.read(name), err_msg=name)
    if settings_ == ("posterior.kind=platt",):
        for name in left.files.posteriors().names():
            ours, theirs = (one.files.posteriors().read(name) for one in (found.store, left))
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_one_alone_has_the_threshold_of_one_alone(store, tmp_path, recordings, heard, tiny):
    export_speakers(store, tmp_path / "x", ["lars"])
    found = import_speakers(tmp_path / "new", tmp_path / "x").store
    alone = enroll(tmp_path / "alone", {"lars": recordings["lars"]}, tiny).store
    for file in (heard("lars"), heard("anna")):
        ours, theirs = (Verifier(one, "lars").verify_file(file) for one in (found, alone))
        assert (ours.score, ours.decision) == (theirs.score, theirs.decision)


def test_a_speaker_imported_among_others_has_the_machines_that_enrolling_there_gives(
    copied, tmp_path, recordings, heard, tiny
):
    """But for held-out trials against the people there, which would take the recordings."""
    enroll(copied, {"hugo": recordings["hugo"]})
    export_speakers(copied, tmp_path / "x", ["hugo"])
    remove_speaker(copied, "hugo")
    shutil.copytree(copied, tmp_path / "other")
    ours = import_speakers(tmp_path / "other", tmp_path / "x").store
    theirs = enroll(copied, {"hugo": recordings["hugo"]}).store
    found, expected = arrays_of(ours), arrays_of(theirs)
    of_trials = {name for name in expected if name.startswith("scores of")} | {"frames", "outsider", "population"}
    for name in expected.keys() - of_trials:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    file = heard("hugo")
    for claim in ("hugo", "anna"):
        found, expected = scores(ours, claim, file), scores(theirs, claim, file)
        assert found.pop("fused") != expected.pop("fused")  # weighed by held-out trials
        assert found == expected
    ids = {speaker.id for speaker in ours.speakers if speaker.name == "hugo"}
    assert set(ours.trials.claims[np.isin(ours.trials.speakers, list(ids))].tolist()) == ids


def test_stores_without_segment_machines_exchange_speakers_whoever_came_first(tmp_path, recordings, tiny_with, heard):
    settings_ = tiny_with('machines.kinds=["one_vs_one","one_class"]')
    enroll(tmp_path / "a", {name: recordings[name] for name in ("anna", "ivan")}, settings_)
    enroll(tmp_path / "b", {name: recordings[name] for name in ("dexter", "lars")}, settings_)
    export_speakers(tmp_path / "a", tmp_path / "x", ["ivan"])
    ours = import_speakers(tmp_path / "b", tmp_path / "x").store
    theirs = enroll(tmp_path / "c", {name: recordings[name] for name in ("dexter", "lars", "ivan")}, settings_).store
    for claim in ("ivan", "lars"):
        assert scores(ours, claim, heard("ivan")) == scores(theirs, claim, heard("ivan"))


def test_speakers_from_a_store_without_models_do_not_fit_one_with_them_and_fit_one_without(
    copied, tmp_path, recordings, tiny_with, heard
):
    plain = tiny_with('machines.kinds=["one_vs_one","one_class","segment"]')
    enroll(tmp_path / "a", {name: recordings[name] for name in ("anna", "ivan", "karla")}, plain)
    export_speakers(tmp_path / "a", tmp_path / "x", ["karla"])
    refused(
        copied, tmp_path / "x", "the store has speaker models .mixture in machines.kinds., and the speakers come from"
    )
    left = remove_speaker(tmp_path / "a", "karla")
    back = import_speakers(tmp_path / "a", tmp_path / "x").store
    assert back.population().segments.models is None
    assert "mixture" not in left.systems
    assert Verifier(back, "karla", system="fused").verify_file(heard("karla")).decision is Decision.ACCEPTED


def test_background_speakers_stay_background_speakers(copied, tmp_path, recordings):
    enroll(copied, {"hugo": recordings["hugo"]}, role="background")
    export_speakers(copied, tmp_path / "x", ["hugo"])
    found = import_speakers(tmp_path / "new", tmp_path / "x").store
    assert [(speaker.name, speaker.role) for speaker in found.speakers] == [("hugo", "background")]
    assert found.names == ()


# What does not fit


def refused(target: Path, file: Path, words: str, error: type[VoiceclaimError] = TransferError) -> None:
    """Importing fails in these words, and the target stays as it was."""
    before = content(target) if target.exists() else None
    with pytest.raises(error, match=words):
        import_speakers(target, file)
    assert (content(target) if target.exists() else None) == before


def test_a_store_of_another_mixture_other_features_or_the_same_people_is_refused(
    store, copied, exported, tmp_path, recordings, tiny, tiny_with
):
    refused(copied, exported, "enrolled already: 'anna'", SpeakerExistsError)
    others = {name: recordings[name] for name in ("hugo", "karla")}
    enroll(tmp_path / "b", others, tiny)
    refused(tmp_path / "b", exported, "made in another mixture than that of .*b, which was first enrolled with other")
    enroll(tmp_path / "c", others, tiny_with("features.order=16"))
    refused(tmp_path / "c", exported, "features or their scaling are not those of")
    plain = tiny_with('machines.kinds=["one_vs_one","one_class"]')
    enroll(tmp_path / "d", others, plain)
    export_speakers(tmp_path / "d", tmp_path / "plain")
    refused(copied, tmp_path / "plain", "the store has segment machines")
    enroll(tmp_path / "e", others, tiny_with('machines.kinds=["one_vs_one","one_class"]', "posterior.kind=platt"))
    remove_speaker(tmp_path / "e", "hugo")
    remove_speaker(tmp_path / "e", "karla")
    refused(tmp_path / "e", tmp_path / "plain", "posteriors were fitted as")


def test_a_speaker_who_is_enrolled_is_known_under_another_name(copied, exported, tmp_path):
    renamed = rewritten(exported, tmp_path / "x", lambda table: table["speakers"][0].update(name="anne"))
    for name in ("dexter", "ivan", "lars"):
        remove_speaker(copied, name)
    refused(copied, renamed, "enrolled already as 'anna': 'anne'", SpeakerExistsError)


def test_an_export_is_never_written_over_something(store, tmp_path):
    (tmp_path / "x").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, words in (
        ("x", "there is something"), ("link", "there is something"), ("no/x", "cannot be"), ("a\0b", "cannot be"),
    ):  # fmt: skip
        with pytest.raises(TransferError, match=words):
            export_speakers(store, tmp_path / path, ["anna"])
    assert (tmp_path / "x").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(UnknownSpeakerError, match="'annna'"):
        export_speakers(store, tmp_path / "y", ["anna", "annna"])
    assert not (tmp_path / "y").exists()


# Damage and forgery


def rewritten(path: Path, to: Path, change) -> Path:
    """The file with its header changed, and the checksum of the header made right again."""
    from pipeline.transfer_file import _digest

    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        table = json.loads(file.metadata()["voiceclaim"])
    change(table)
    text = json.dumps(table)
    save_file(arrays, to, {"voiceclaim": text, "sha256": _digest(text)})
    return to


def test_the_files_own_description_is_true(exported, tiny):
    """The header is plain JSON, and whoever follows the docstring can read and check the file without this package."""
    import hashlib

    with safe_open(exported, "numpy") as file:
        text = file.metadata()["voiceclaim"]
        assert hashlib.sha256(text.encode()).hexdigest() == file.metadata()["sha256"]
        table = json.loads(text)
        assert (table["format"], table["version"]) == ("voiceclaim-speakers", 1)
        assert table["config"]["features"] == tiny.features.model_dump(mode="json")
        assert [speaker["name"] for speaker in table["speakers"]] == ["anna", "dexter", "ivan", "lars"]
        for name in file.keys():  # noqa: SIM118
            array = file.get_tensor(name)
            about = f"{array.dtype.str} {array.shape}".encode()
            assert hashlib.sha256(about + array.tobytes()).hexdigest() == table["checksums"][name]
    assert exported.stat().st_mode & 0o077 == 0


@SMALL
@given(st.data())
def test_no_bit_of_an_export_can_be_turned_unseen(store, exported, tmp_path, data):
    sound = exported.read_bytes()
    length = int.from_bytes(sound[:8], "little")
    place = data.draw(st.integers(0, 8 + length - 1) | st.integers(0, len(sound) - 1))
    changed = bytearray(sound)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    (tmp_path / "x").write_bytes(changed)
    try:
        found = read_export(tmp_path / "x")
    except TransferError as error:
        assert str(tmp_path / "x") in str(error)
        return
    # Blanks that pad the header are all that may change.
    expected = read_export(exported)
    assert found.speakers == expected.speakers
    for ours, theirs in zip(found.arrays, expected.arrays, strict=True):
        assert {name: array.tobytes() for name, array in ours.items()} == {
            name: array.tobytes() for name, array in theirs.items()
        }


@pytest.mark.parametrize("size", [0, 7, 8, 100, 5000])
def test_a_file_cut_short_or_something_else_is_no_export(exported, tmp_path, size):
    (tmp_path / "x").write_bytes(exported.read_bytes()[:size])
    refused(tmp_path / "new", tmp_path / "x", "x: ")
    (tmp_path / "x").write_bytes(b"RIFF" + bytes(range(256)) * 20)
    refused(tmp_path / "new", tmp_path / "x", "not a file of exported speakers")
    save_file({"a": np.zeros(3)}, tmp_path / "x")
    refused(tmp_path / "new", tmp_path / "x", "an array file, but not one of exported speakers")
    for path in (tmp_path, tmp_path / "none"):
        refused(tmp_path / "new", path, "cannot be read from it")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.update(version=2), "format version 2, this program reads 1"),
        (lambda t: t.update(format="x"), "format: "),
        (lambda t: t.update(more=1), "more: Extra"),
        (lambda t: t["speakers"][0].update(name=""), r"speakers\.0\.name"),
        (lambda t: t["speakers"][0].update(name="dexter"), "name 'dexter' is there twice"),
        (lambda t: t["speakers"][0].update(id="1" * 17), r"speakers\.0\.id"),
        (lambda t: t["speakers"][0].update(centroids=39), r"array 'speaker\.0\.centroids' must be"),
        (lambda t: t["speakers"][0].update(seconds=float("nan")), "x: "),
        (lambda t: t["speakers"].pop(), "nothing is known of array 'speaker.3"),
        (lambda t: t["speakers"].clear(), "speakers: "),
        (lambda t: t["config"]["features"].update(order=12), "must be"),
        (lambda t: t["config"].update(features=3), "features: "),
        (lambda t: t["config"]["features"].update(standardize=True), "standardize and the scaling"),
        (lambda t: t.update(scaling={"mean": [0.0], "scale": [1.0]}), "standardize and the scaling"),
        (lambda t: t["checksums"].popitem(), "is not both there and in the header"),
        (lambda t: t["checksums"].update({"mixture.means": "0" * 64}), "'mixture.means' has not the checksum"),
    ],
)
def test_a_header_made_by_hand_is_refused_by_what_is_wrong_with_it(exported, tmp_path, change, words):
    refused(tmp_path / "new", rewritten(exported, tmp_path / "x", change), words)


@pytest.mark.parametrize(
    ("name", "forged", "words"),
    [
        ("speaker.0.centroids", lambda a: a * np.nan, "must hold numbers"),
        ("speaker.0.centroids", lambda a: a * 1e200, "must hold numbers"),
        ("speaker.0.centroids", lambda a: a.astype(np.int64), "of kind 'i'"),
        ("speaker.1.stretches", lambda a: a[:, 1:], "must be"),
        ("mixture.variances", lambda a: 0 * a, "must hold numbers"),
        ("trials.score.worst_rival", lambda a: a[1:], "must be"),
        ("trials.frames", lambda a: 0 * a, "must hold numbers"),
    ],
)
def test_numbers_made_by_hand_are_refused_with_right_checksums_too(exported, tmp_path, name, forged, words):
    from pipeline.transfer_file import _checksum, _digest

    with safe_open(exported, "numpy") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        table = json.loads(file.metadata()["voiceclaim"])
    arrays[name] = np.ascontiguousarray(forged(arrays[name]))
    table["checksums"][name] = _checksum(arrays[name])
    text = json.dumps(table)
    save_file(arrays, tmp_path / "x", {"voiceclaim": text, "sha256": _digest(text)})
    refused(tmp_path / "new", tmp_path / "x", words)


# The command


def test_the_command_exports_imports_and_logs(copied, tmp_path, capsys):
    log, file = tmp_path / "changes.jsonl", tmp_path / "x.speakers"
    command(copied, "export", "lars", out=file, log=log, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"exported": ["lars"], "file": str(file)}
    command(copied, "remove", "lars", log=log, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"removed": "lars", "left": 3}
    command(copied, "import", str(file), log=log, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["imported"], told["speakers"]) == (["lars"], 4)
    for words in (("remove", "larss"), ("import", str(file)), ("import", str(tmp_path / "none"))):
        with pytest.raises((UnknownSpeakerError, SpeakerExistsError, TransferError)):
            command(copied, *words, log=log)
    command(copied, "export", out=tmp_path / "all", everybody=True)
    assert "exported 4 speakers" in capsys.readouterr().out
    lines = [json.loads(line) for line in log.read_bytes().splitlines()[1:]]
    assert [(line["event"], line["speaker"], line["decision"], line.get("error")) for line in lines] == [
        ("export", "lars", "exported", None),
        ("remove", "lars", "removed", None),
        ("import", "lars", "imported", None),
        ("remove", "larss", None, "UnknownSpeakerError"),
        ("import", "everybody in the file", None, "SpeakerExistsError"),
        ("import", "everybody in the file", None, "TransferError"),
    ]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("export", "anna"), {}),
        (("export",), {"out": Path("x")}),
        (("export", "anna"), {"out": Path("x"), "everybody": True}),
        (("import",), {}),
        (("remove", "anna"), {"everybody": True}),
        (("show", "anna"), {"out": Path("x")}),
        (("list",), {"log": Path("x")}),
        (("exprot", "anna"), {"out": Path("x")}),
    ],
)
def test_words_that_make_no_sense_together_are_refused(copied, words, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = content(copied)
    with pytest.raises(typer.BadParameter):
        command(copied, *words, **options)
    assert content(copied) == before
    assert not (tmp_path / "x").exists()


# Privacy: docs/privacy.md


def test_names_are_in_the_manifest_and_nowhere_else_and_no_audio_is_anywhere(tmp_path, recordings, tiny):
    names = {"Zoe Wanamaker": "anna", "Yngwie Malmsteen": "ivan"}
    speakers = {name: tuple(Utterance(name, one.path) for one in recordings[voice]) for name, voice in names.items()}
    enroll(tmp_path / "s", speakers, tiny)
    export_speakers(tmp_path / "s", tmp_path / "s" / "x.speakers")
    kept = content(tmp_path / "s")
    for name in names:
        assert {file for file, data in kept.items() if name.encode() in data} == {"manifest.json", "x.speakers"}
        assert not any(name.split()[0].lower() in file.lower() for file in kept)
    for utterances in speakers.values():
        for one in utterances:
            stem = one.path.stem.encode()
            assert not any(stem in data or str(one.path).encode() in data for data in kept.values())
            samples, _ = read_samples(one)
            loud = int(np.argmax(np.abs(samples)))
            part = samples[loud - 8 : loud + 8]  # two milliseconds of speech
            assert len(set(part)) > 8
            for coded in (part, part.astype("<f4"), (part * 2**15).astype("<i2"), (part * 2**31).astype("<i4")):
                assert not any(coded.tobytes() in data for data in kept.values())


def test_a_removed_speaker_is_in_no_file_of_the_store(copied):
    before = SpeakerStore.open(copied)
    file = before.files.speakers()[1]
    traces = {name: np.ascontiguousarray(file.read(name)) for name in ("centroids", "stretches", "fingerprints", "own")}
    rows = [
        array.reshape(len(array), -1)[:40].tobytes() if array.ndim == 1 else array[0].tobytes()
        for array in traces.values()
    ]
    assert all(any(row in data for data in content(copied).values()) for row in rows)
    name, number = before.speakers[1].name, before.speakers[1].id
    remove_speaker(copied, name)
    left = content(copied)
    assert not any(row in data for row in rows for data in left.values())
    for trace in (name.encode(), f"{number:016x}".encode(), number.to_bytes(8, "little"), str(number).encode()):
        assert not any(trace in data for data in left.values())
        assert not any(trace.decode("latin-1") in file for file in left)
