"""Settings: the files that come along, what is refused and how, overrides."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline.config import Config, FeatureSettings, ScoringConfig, load_config, parse_config
from pipeline.errors import ConfigError
from pipeline.resources import find_config
from pipeline.scoring.rules import RULES

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def keys_of(model: type[BaseModel]) -> set[str]:
    """Dotted names of every setting of a section and its subsections, but those that are not given at all."""
    outcome = set()
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            outcome |= {f"{name}.{key}" for key in keys_of(kind)}
        elif field.default is not None:
            outcome.add(name)
    return outcome


def keys_in(table: dict) -> set[str]:
    """Dotted names of every value of a TOML table."""
    outcome = set()
    for name, value in table.items():
        outcome |= {f"{name}.{key}" for key in keys_in(value)} if isinstance(value, dict) else {name}
    return outcome


def written(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


# The files that come along


def test_the_default_file_names_every_setting_with_its_default():
    assert load_config(CONFIGS / "default.toml") == Config()
    assert keys_in(tomllib.loads((CONFIGS / "default.toml").read_text(encoding="utf-8"))) == keys_of(Config)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_settings_file_loads_and_says_what_it_holds(path):
    config = load_config(path)
    for key in keys_in(table := tomllib.loads(path.read_text(encoding="utf-8"))):
        value, expected = config, table
        for part in key.split("."):
            value, expected = getattr(value, part), expected[part]
        assert (list(value) if isinstance(value, tuple) else value) == expected, key
    assert load_config(find_config(path.stem)) == config
    if path.stem == "paper":
        assert find_config("xin2002") == find_config("paper")
    assert RULES[config.scoring.system].needs <= set(config.machines.kinds)


def test_settings_that_are_not_given_keep_their_defaults_and_none_can_be_changed(tmp_path):
    config = load_config(written(tmp_path, "[features]\norder = 17\n"))
    assert config.features.order == 17
    assert config.features.rate == Config().features.rate
    assert config.codebook == Config().codebook
    with pytest.raises(ConfigError, match=r"^FeatureSettings: rate: settings cannot be changed"):
        config.features.rate = 8000
    with pytest.raises(ConfigError, match=r"^Config: seed: settings cannot be changed"):
        del config.seed
    assert (config.features.rate, config.seed) == (16000, 0)


# What is refused

REFUSED = [
    ("sede = 1", "sede"),
    ("[features]\nraet = 8000", "features.raet"),
    ("[features.vad]\nrange = 30.0", "features.vad.range"),
    ("seed = 1.5", "seed"),
    ("seed = true", "seed"),
    ("seed = 4294967296", "seed"),
    ("features = 3", "features"),
    ('[features]\nrate = "8000"', "features.rate"),
    ("[features]\nrate = 8000.0", "features.rate"),
    ("[features]\nframe_ms = nan", "features.frame_ms"),
    ('[features]\nkind = "rasta"', "features.kind"),
    ("[features.vad]\nrange_db = 0.0", "features.vad.range_db"),
    ("[features.vad]\nlow_hz = 600.0", "features.vad.low_hz"),
    ("[features.vad]\nhigh_hz = 900.0", "features.vad.high_hz"),
    ("[features.vad]\nmin_margin_db = 9.0\nmax_margin_db = 8.0", "features.vad"),
    ("[machines]\nnu = 1.0", "machines.nu"),
    ('[machines]\nkinds = "one_class"', "machines.kinds"),
    ('[machines]\nkinds = ["one_class", "one_vs_all"]', "machines.kinds.1"),
    ('[machines]\nkinds = ["one_class", "one_class"]', "machines.kinds"),
    ('[machines]\nkinds = ["one_vs_one"]', "machines"),
    ('[machines]\none_class_scale = "platt"', "machines.one_class_scale"),
    ("[machines]\none_class_scale = -2.0", "machines.one_class_scale"),
    ("[supervector]\nhalf_db = inf", "supervector.half_db"),
    ("[supervector]\nspeeds = [1.0]", "supervector.speeds"),
    *((f"[gmm]\ngroups = {groups}", "gmm.groups") for groups in ("[8, 8]", "[1, 8, 32]")),
    *((f"[gmm]\ngroups = {groups}", "gmm.groups.0") for groups in ("[0]", "[2.5]")),
    *((f"[machines]\ncohort = {value}", "machines.cohort") for value in ("0", "-3", "1.5", '"some"', "true")),
    ('[augmentation]\nkinds = ["noise", "babble", "noise"]', "augmentation.kinds"),
    ("[augmentation]\nmin_snr_db = 10.0\nmax_snr_db = 9.0", "augmentation"),
    ("[augmentation]\nshare = 0.0", "augmentation.share"),
    ("[augmentation]\nshare = 1.5", "augmentation.share"),
    ("[threshold]\nprior = 0.0", "threshold.prior"),
    ("[checks]\nduplicates = true", "checks.duplicates"),
]


@pytest.mark.parametrize(("text", "key"), REFUSED, ids=[text.replace("\n", " ") for text, _ in REFUSED])
def test_an_unknown_key_a_wrong_type_or_an_impossible_value_is_named_with_its_file_and_in_python(tmp_path, text, key):
    path, table, told = written(tmp_path, text), tomllib.loads(text), []
    for source, wrong in (
        (str(path), lambda: load_config(path)),
        ("Config", lambda: Config(**table)),
        ("Config", lambda: Config().model_copy(update=table)),
        ("Config", lambda: Config.model_validate(table)),
    ):
        with pytest.raises(ConfigError) as caught:
            wrong()
        told.append([line.removeprefix(source) for line in str(caught.value).splitlines()])
    assert told[0] and told == [told[0]] * 4
    assert all(line.startswith(f": {key}: ") for line in told[0]), told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"features": {"rate": "8000"}}', "features.rate: must be a whole number, got '8000'"),
        ("[]", "it is a section, whose settings are KEY, got []"),
        ("{", "it is not JSON: EOF while parsing"),
    ],
)
def test_wrong_settings_in_json_are_told_as_those_of_a_file(text, words):
    with pytest.raises(ConfigError) as caught:
        Config.model_validate_json(text)
    assert str(caught.value).startswith(f"Config: {words}")
    assert Config.model_validate_json('{"seed": 7}') == Config(seed=7)


@pytest.mark.parametrize("number", [np.int64(7), np.uint8(7)])
def test_numbers_of_numpy_are_those_of_python(number):
    config = Config(seed=number, gmm={"groups": [np.int32(9), number]}, threshold={"prior": np.float32(0.25)})
    assert config == Config(seed=7, gmm={"groups": (9, 7)}, threshold={"prior": 0.25})
    assert type(config.seed) is int


@pytest.mark.parametrize("overrides", [3, np.array(1.0), [3], [None]])
def test_overrides_that_are_no_texts_are_refused(overrides):
    with pytest.raises(ConfigError, match=r"section\.key=value was expected|texts section\.key=value were expected"):
        load_config(overrides=overrides)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "here: it is a section, whose settings are KEY, got None"),
        ({1: 2}, "here: 1: the name of a setting is text, got 1"),
    ],
)
def test_what_is_no_table_of_settings_is_refused(table, words):
    with pytest.raises(ConfigError) as caught:
        parse_config(table, source="here")
    assert str(caught.value) == words


def test_every_mistake_of_a_file_is_reported_at_once(tmp_path):
    path = written(tmp_path, "sede = 1\n[machines]\nsigma = -1.0\n[scoring]\ndtype = 'half'\n")
    with pytest.raises(ConfigError, match=r"(?s)machines\.sigma.*-1.*scoring\.dtype.*sede"):
        load_config(path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "notepad.toml"
    path.write_bytes(b"\xef\xbb\xbfseed = 7\r\n")
    assert load_config(path).seed == 7


def test_what_is_not_toml_or_no_file_is_refused_by_name(tmp_path):
    path = tmp_path / "my.toml"
    for content in (b"seed = ", b"[features\n", b"seed = 1\nseed = 2\n", b"\xff\xfe\x00", b"\x89PNG\r\n"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=rf"{path}: not TOML, lines key = value under "):
            load_config(path)
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(ConfigError, match=f"{path.name}: settings cannot be read"):
            load_config(path)


# Overrides


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("features.rate=8000", "features", "rate", 8000),
        (" codebook.centroids = 100", "codebook", "centroids", 100),
        ("machines.sigma=2.5e-1", "machines", "sigma", 0.25),
        ("features.deltas=false", "features", "deltas", False),
        ("scoring.system=rpoao", "scoring", "system", "rpoao"),
        ('scoring.system="rpoao"', "scoring", "system", "rpoao"),
        ('machines.kinds=["one_class", "one_vs_one"]', "machines", "kinds", ("one_class", "one_vs_one")),
        ("machines.one_class_scale=schoelkopf", "machines", "one_class_scale", "schoelkopf"),
        ("gmm.groups=[]", "gmm", "groups", ()),
    ],
)
def test_an_override_changes_its_setting_and_nothing_else(override, section, key, value):
    changed = load_config(None, [override])
    assert getattr(getattr(changed, section), key) == value
    expected = getattr(Config(), section).model_copy(update={key: value})
    assert changed == Config().model_copy(update={section: expected})


def test_overrides_win_over_the_file_and_later_ones_over_earlier_ones(tmp_path):
    path = written(tmp_path, "seed = 1\n[codebook]\ncentroids = 50\nmax_iterations = 7\n")
    config = load_config(path, ["codebook.centroids=60", "codebook.centroids=70"])
    assert (config.seed, config.codebook.centroids, config.codebook.max_iterations) == (1, 70, 7)


# Whole ranges


@settings(deadline=None)
@example(16_000, 5.0, 1.0, 39, 60)
@given(st.integers(4000, 96000), st.floats(5, 200), st.floats(1, 100), st.integers(1, 39), st.integers(8, 128))
def test_a_frame_is_taken_exactly_when_it_holds_its_step_and_its_order(rate, frame_ms, step_ms, order, bands):
    analysis = {"kind": "plp", "order": order, "bands": bands}
    frames = {"rate": rate, "frame_ms": frame_ms, "step_ms": step_ms}
    table = {"features": {**frames, **analysis, "supervector": analysis, "gmm": analysis, "normalised": analysis}}
    narrowed = min(rate, 8000)  # a store of narrow-band speech
    if step_ms <= frame_ms and round(narrowed * frame_ms / 1000) > order + 1 and order < bands:
        outcome = parse_config(table, source="here").features
        assert 1 <= outcome.frame_step <= outcome.frame_length
        assert outcome.dimensions == dict.fromkeys(("frames", "supervector", "gmm", "normalised"), 2 * order)
    else:
        with pytest.raises(ConfigError, match="here: features"):
            parse_config(table, source="here")


@settings(deadline=None)
@given(st.sampled_from([8000, 11025, 16000, 22050, 44100]), st.integers(1, 30), st.integers(0, 500))
def test_the_least_frames_are_the_fewest_that_last_min_seconds(rate, step_ms, hundredths):
    config = Config(
        features=FeatureSettings(rate=rate, step_ms=float(step_ms)),
        scoring=ScoringConfig(min_seconds=hundredths / 100),
    )
    step, frames = config.features.step_seconds, config.min_frames
    assert frames >= 1
    assert frames * step >= hundredths / 100 - 1e-6
    assert frames == 1 or (frames - 1) * step < hundredths / 100


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("codebook.centroids=eight", "codebook.centroids: must be a whole number, got 'eight'"),
        ("codebook.centroids=0", "codebook.centroids: must be at least 1, got 0"),
        ("threshold.prior=1.0", "threshold.prior: must be below 1, got 1.0"),
        ("threshold.cost_miss=0", "threshold.cost_miss: must be above 0, got 0"),
        ("threshold.holdout=0.7", "threshold.holdout: must be at most 0.5, got 0.7"),
        ("features.pitch=maybe", "features.pitch: must be true or false, got 'maybe'"),
        ("machines.kinds=gmm", 'machines.kinds: must be a list, got \'gmm\'; a list is written ["a", "b"]'),
        ("embedding.path=3", "embedding.path: must be text, got 3"),
        ("checks.noise=no", "checks.noise: must be 'off', 'warn' or 'refuse', got 'no'"),
        ("machines.cohort=some", "machines.cohort: must be 'all' or a whole number, got 'some'"),
        ("features=3", "features: it is a section, whose settings are features.KEY, got 3"),
        ("codebook.centroids=", "codebook.centroids: must be a whole number, got ''"),
        ("seed.x=3", "seed: must be a whole number, got {'x': 3}"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(override, words):
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[override])
    assert str(caught.value) == f"settings: {words}"


def test_a_wrong_override_is_not_put_down_to_the_file_alone(tmp_path):
    path = written(tmp_path, "[machines]\nC = 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["machines.C=much"])
    assert str(caught.value) == f"{path}, as overridden: machines.C: must be a number, got 'much'"
