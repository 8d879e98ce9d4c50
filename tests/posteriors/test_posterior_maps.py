"""Posterior maps (per-machine calibration): evaluation, fitting to held-out frames, and maps of a store."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.corpus import Utterance
from pipeline.config import Config, FeatureSettings, MachineConfig, PosteriorConfig
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.holdout import cut_of, join_trials
from pipeline.enrollment.removal import remove_speaker
from pipeline.features.frontend import read_features
from pipeline.features.stream import FeatureBlock, joined
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.margins import Margins, MarginScorer, Population
from pipeline.machines.pool import Pool
from pipeline.machines.training import train_population
from pipeline.posteriors.estimators import POSTERIORS, make_posterior
from pipeline.posteriors.map_fitting import (
    HeldOutMaps,
    half_of,
    own_map,
    pooled_map,
    pooled_maps,
    pooled_sample,
)
from pipeline.posteriors.newton import NewtonSigmoid
from pipeline.posteriors.posterior_maps import (
    KINDS,
    KNOTS,
    QUADRATIC,
    MachinePosterior,
    evaluate,
    identity_map,
    map_name,
)
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.claims import ClaimScorer, ScoringSettings
from pipeline.scoring.rules import RULES
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

ALL_KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})
SEEDS = st.integers(0, 2**32 - 1)
DIMENSION = 5
MACHINES = MachineConfig(kinds=("one_vs_one", "one_class", "one_vs_rest"), sigma=0.5, nu=0.2)


def config(kind: str = "newton", **posterior: float) -> Config:
    """Frames of 5 features; nothing here reads audio."""
    features = FeatureSettings(order=DIMENSION, deltas=False)
    return Config(features=features, machines=MACHINES, posterior=PosteriorConfig(kind=kind, **posterior))


# Posteriors made up.


def random_map(random: np.random.Generator, form: str) -> np.ndarray:
    if form == "quadratic":
        return random.normal(size=QUADRATIC)
    low = random.normal()
    return np.concatenate(((low, low + random.uniform(0.5, 3.0)), random.normal(size=KNOTS)))


def random_posterior(seed: int, speakers: int, form: str, gaps: float = 0.3) -> MachinePosterior:
    """Any maps at all, some of them missing."""
    random = np.random.default_rng(seed)

    def rows(count: int) -> np.ndarray:
        length = QUADRATIC if form == "quadratic" else KNOTS + 2
        made = np.array([random_map(random, form) for _ in range(count)]).reshape(count, length)
        made[random.random(count) < gaps] = np.nan
        return made

    counts = [{"pair": n, "one_class": 1, "one_vs_rest": 1} for n in range(speakers)]
    sources = [{map_name(kind): rows(many) for kind, many in each.items()} for each in counts]
    return MachinePosterior(sources, {kind: random_map(random, form) for kind in KINDS})


def random_margins(seed: int, speakers: int, frames: int = 4) -> Margins:
    random = np.random.default_rng([seed, 1])
    upper = np.triu(random.normal(size=(frames, speakers, speakers)), 1)
    one_class, rest = random.normal(size=(2, frames, speakers))
    return Margins(np.arange(speakers), upper - upper.transpose(0, 2, 1), one_class, rest)


forms = pytest.mark.parametrize("form", ["quadratic", "table"])


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_table_is_read_as_straight_lines_between_its_knots_and_flat_beyond(seed):
    random = np.random.default_rng(seed)
    tables = np.array([[random_map(random, "table") for _ in range(3)] for _ in range(2)])
    margins = random.normal(0, 3, (50, 2, 3))
    result = evaluate(tables, margins)
    for c, n in np.ndindex(2, 3):
        low, high, values = tables[c, n, 0], tables[c, n, 1], tables[c, n, 2:]
        expected = np.interp(margins[:, c, n], np.linspace(low, high, KNOTS), values)
        np.testing.assert_allclose(result[:, c, n], expected, rtol=1e-9, atol=1e-9)


@forms
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_the_two_posteriors_of_a_pair_sum_to_one_exactly(form, seed):
    posterior, margins = random_posterior(seed, 5, form), random_margins(seed, 5)
    result = posterior.pair(margins.pair, margins.claims)
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_array_equal(result[:, off], -result.transpose(0, 2, 1)[:, off])


@forms
def test_claims_in_any_set_of_them_are_scored_as_among_all(form):
    posterior, margins = random_posterior(4, 5, form), random_margins(4, 5)
    for _ in range(2):
        for claims in map(np.array, permutations(range(5), 2)):
            for name in ("poar", "poao", "rpoao", "worst_rival", "refined_worst_rival"):
                among = RULES[name].frame(margins, posterior)[:, claims]
                np.testing.assert_allclose(RULES[name].frame(margins.select(claims), posterior), among, rtol=1e-12)


@forms
def test_single_precision_agrees(form):
    posterior, margins = random_posterior(5, 4, form), random_margins(5, 4)
    single = posterior.pair(margins.pair.astype("float32"), margins.claims)
    assert single.dtype == np.float32
    # A random table changes by about 1 from knot to knot.
    np.testing.assert_allclose(single, posterior.pair(margins.pair, margins.claims), atol=1e-3)


@pytest.mark.parametrize("numbers", [QUADRATIC, KNOTS + 2])
def test_where_nothing_was_fitted_the_fixed_sigmoid_stands(numbers):
    margins = np.linspace(-10, 10, 41)[:, None]
    np.testing.assert_allclose(evaluate(identity_map(2.5, numbers)[None], margins), 2.5 * margins, atol=1e-12)


# Fitting one map.

NONE = np.empty(0)


def sides(seed: int, count: int = 200, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(shift, 1.0, count), random.normal(-shift, 0.8, 3 * count)


def as_trials(*parts: tuple[tuple[np.ndarray, np.ndarray], float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Margins, classes and weights of parts whose classes count so much each."""
    f = [margins for part, _ in parts for margins in part]
    w = [np.full(len(margins), count / len(margins)) for part, count in parts for margins in part]
    y = [np.full(len(margins), k % 2 == 0) for k, margins in enumerate(f)]
    return np.concatenate(f), np.concatenate(y), np.concatenate(w)


def own(trials, count: float, sample=(NONE, NONE), kind: str = "newton", **settings_: float) -> np.ndarray:
    return own_map(PosteriorConfig(kind=kind, **settings_), trials, count, sample)


def test_own_trials_and_the_pooled_sample_are_one_weighted_fit():
    trials, pool = sides(0, 40, 0.3), sides(1)
    by_hand = NewtonSigmoid().fit(*as_trials((trials, 25.0), (pool, 70.0)))
    np.testing.assert_allclose(own(trials, 25.0, pool, pooling=70.0), [0.0, -by_hand.A_, -by_hand.B_], rtol=1e-9)
    slopes = [own(trials, 25.0, pool, pooling=pooling)[1] for pooling in (0.0, 10.0, 100.0, 1e6)]
    assert slopes == sorted(slopes)
    assert slopes[0] == pytest.approx(-NewtonSigmoid().fit(*as_trials((trials, 25.0))).A_)
    assert slopes[-1] == pytest.approx(-NewtonSigmoid().fit(*as_trials((pool, 1e6))).A_, rel=1e-3)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_maps_are_what_the_estimator_says(kind):
    trials = sides(3)
    numbers = own(trials, 50.0, kind=kind)
    options = {"crossing": "bayes"} if kind == "tied_gaussian" else {}
    by_hand = make_posterior(kind, **options).fit(*as_trials((trials, 50.0)))
    knots = np.linspace(*(numbers[:2] if len(numbers) > QUADRATIC else (-4.0, 4.0)), KNOTS)
    values = evaluate(numbers[None], knots[:, None])[:, 0]
    np.testing.assert_allclose(values, by_hand.log_odds(knots), atol=1e-8 if len(numbers) == QUADRATIC else 0.02)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_a_machine_with_margins_of_one_side_only_has_no_map(kind):
    for missing in ((NONE, NONE), (np.ones(3), NONE), (NONE, np.ones(3))):
        none = own(missing, 1.0, sides(0), kind=kind)
        assert np.isnan(none).all()
        pooled = pooled_map(PosteriorConfig(kind=kind), missing)
        np.testing.assert_allclose(pooled, identity_map(1.0, len(none)), rtol=1e-6)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_equal_margins_and_single_trials_make_finite_maps(kind):
    for trials in ((np.ones(5), np.ones(4)), (np.ones(1), np.zeros(1)), (np.zeros(1), np.zeros(1))):
        values = evaluate(own(trials, 2.0, kind=kind)[None], np.array([[-5.0], [0.0], [0.5], [1.0], [5.0]]))
        assert np.isfinite(values).all()


# A population and what was held out.


@cache
def books(speakers: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    return tuple(random.normal(0.3 * n, 0.4, (9 + 3 * n, DIMENSION)) for n in range(speakers))


@cache
def people(speakers: int) -> Population:
    return train_population(Pool.of(books(5)[:speakers], 0.5), MACHINES)


def spoken(speaker: int, seed: int, frames: int = 60) -> FeatureBlock:
    random, book = np.random.default_rng([speaker, seed]), books(5)[speaker]
    vectors = book[random.integers(0, len(book), frames)] + 0.3 * random.standard_normal((frames, DIMENSION))
    return FeatureBlock(vectors, frames, np.zeros(frames))


def held_out(speakers: int, trials: int = 3, frames: int = 60) -> list[list[FeatureBlock]]:
    return [[spoken(n, seed, frames) for seed in range(trials)] for n in range(speakers)]


def margins_of(population: Population, trials: list[FeatureBlock]) -> Margins:
    everybody = np.arange(len(population))
    return MarginScorer(population, everybody, ALL_KINDS)(np.concatenate([trial.vectors for trial in trials]))


def test_maps_are_fitted_to_the_margins_of_held_out_frames_of_both_sides():
    trials = held_out(4)
    maps = HeldOutMaps(config(pooling=0.0), people(4), trials).fitted()
    margins = [margins_of(people(4), its_trials) for its_trials in trials]
    count = 180 * 0.1  # three trials of 60 frames of 10 ms, one in 0.1 s counting
    for later, earlier in ((1, 0), (3, 1), (3, 2)):
        expected = own((margins[later].pair[:, later, earlier], margins[earlier].pair[:, later, earlier]), count)
        np.testing.assert_allclose(maps.speakers[later]["pair_map"][earlier], expected, rtol=1e-4)
    for kind in ("one_class", "one_vs_rest"):
        values = [getattr(its, kind)[:, 2] for its in margins]
        expected = own((values[2], np.concatenate([values[0], values[1], values[3]])), count)
        np.testing.assert_allclose(maps.speakers[2][f"{kind}_map"][0], expected, rtol=1e-4)


def test_long_held_out_speech_is_thinned_and_counts_the_same():
    trials = held_out(3, frames=600)
    # Every fourth of 1800 frames, so that no more than 500 are left.
    thinned = [[FeatureBlock(t.vectors[::4], 150, np.zeros(150)) for t in its_trials] for its_trials in trials]
    values = [margins_of(people(3), its_trials).one_class[:, 1] for its_trials in thinned]
    expected = own((values[1], np.concatenate((values[0], values[2]))), 180.0)
    fitted = HeldOutMaps(config(pooling=0.0), people(3), trials).fitted().speakers[1]["one_class_map"][0]
    np.testing.assert_allclose(fitted, expected, rtol=1e-4)


def test_maps_for_one_half_of_the_trials_know_nothing_of_them():
    trials = held_out(4, trials=4)
    changed = [
        [spoken(0, 99) if half_of(speaker, number) == 0 else trial for number, trial in enumerate(its_trials)]
        for speaker, its_trials in enumerate(trials)
    ]
    before, after = (HeldOutMaps(config("isotonic"), people(4), each) for each in (trials, changed))
    for one, other in zip(before.fitted(1).speakers, after.fitted(1).speakers, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(other[name], values)
    maps = [held.fitted(0).speakers[2]["one_class_map"] for held in (before, after)]
    assert not np.array_equal(*maps)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_fitted_posteriors_are_better_than_fixed_ones_on_new_frames(kind):
    posterior = HeldOutMaps(config(kind), people(4), held_out(4, frames=200)).posterior()
    loss = np.zeros(2)
    for speaker in range(4):
        margins = margins_of(people(4), [spoken(speaker, 50, 300)])
        for place, maps in enumerate((FixedSigmoid(), posterior)):
            pair = np.delete(maps.pair(margins.pair, margins.claims)[:, speaker], speaker, axis=1)
            loss[place] += np.logaddexp(0, -pair).mean()
    assert loss[1] < loss[0]


def test_pairs_with_those_enrolled_before_take_the_pooled_map():
    trials = held_out(4)
    first = HeldOutMaps(config("histogram"), people(2), trials[:2]).fitted()
    later = HeldOutMaps(config("histogram"), people(4), trials[2:], first.speakers).fitted()
    assert len(later.speakers) == 2
    assert np.isnan(later.speakers[0]["pair_map"]).all()
    assert np.isnan(later.speakers[1]["pair_map"][:2]).all()
    assert np.isfinite(later.speakers[1]["pair_map"][2]).all()
    posterior = MachinePosterior([*first.speakers, *later.speakers], later.pooled)
    margins = margins_of(people(4), trials[3])
    result = posterior.pair(margins.pair, margins.claims)[:, 3, 0]
    np.testing.assert_allclose(result, evaluate(later.pooled["pair"][None], margins.pair[:, 3, :1])[:, 0], rtol=1e-6)


def test_the_pooled_sample_has_every_speaker_in_it_and_pairs_from_both_sides():
    trials = held_out(3)
    maps = HeldOutMaps(config(), people(3), trials).fitted()
    positive, negative = pooled_sample(maps.speakers, "pair")
    np.testing.assert_allclose(np.sort(positive), np.sort(-negative), rtol=1e-6)
    assert maps.pooled["pair"][2] == pytest.approx(0.0, abs=1e-6)
    without = pooled_maps(config(), maps.speakers[:2])
    assert not np.array_equal(without["one_class"], maps.pooled["one_class"])


@pytest.mark.parametrize("kind", POSTERIORS)
def test_one_speaker_and_two_have_posteriors_too(kind):
    alone = HeldOutMaps(config(kind), people(1), held_out(1)).posterior()
    x = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(alone.one_class(x), x, rtol=1e-5, atol=1e-6)
    two = HeldOutMaps(config(kind), people(2), held_out(2, trials=1))
    for half in (0, 1, None):
        posterior, margins = two.posterior(half), margins_of(people(2), [spoken(1, 9)])
        for name in ("poar", "poao", "rpoao", "worst_rival"):
            assert np.isfinite(np.delete(RULES[name].frame(margins, posterior), 1, axis=-1)).all()
        # With two speakers eq. 13 is one pair machine.
        result = RULES["poao"].frame(margins, posterior)
        np.testing.assert_allclose(np.exp(result).sum(axis=1), 1.0, rtol=1e-9)


# Stores.


@pytest.fixture(scope="module")
def made(tmp_path_factory, recordings, voices, tiny_with) -> tuple[Path, Config]:
    """Three voices enrolled together, then one more."""
    path = tmp_path_factory.mktemp("posteriors") / "voices.store"
    settings_ = tiny_with("posterior.kind=isotonic")
    before = enroll(path, {name: recordings[name] for name in voices[:3]}, settings_).model.posterior_maps()
    after = enroll(path, {voices[3]: recordings[voices[3]]}).model.posterior_maps()
    for old, new in zip(before, after, strict=False):
        for name, array in old.items():
            np.testing.assert_array_equal(new[name], array, err_msg=name)
    return path, settings_


def test_store_comes_back_with_its_posteriors(made, heard, voices):
    path, settings_ = made
    store = Store(path).load()
    assert store.config == settings_
    files = store.posterior_maps()
    assert [len(arrays["pair_map"]) for arrays in files] == [0, 1, 2, 3]
    assert np.isfinite(files[2]["pair_map"]).all()
    assert np.isnan(files[3]["pair_map"]).all(), "nobody was held out together with the fourth"
    again = pooled_maps(settings_, files)
    np.testing.assert_array_equal(store.shared["posterior.pair_map"], again["pair"])
    result = Verifier(store, voices[1], system="rpoao").verify_file(heard(voices[1]))
    memory = MachinePosterior(files, again)
    scorer = ClaimScorer(store.population(), [1], ["rpoao"], ScoringSettings(memory, settings_.scoring.dtype))
    running = scorer.start()
    running.push(read_features(Utterance("", heard(voices[1])), settings_.features))
    assert result.score == pytest.approx(float(running.scores()["rpoao"][0]), rel=1e-9)


def test_nothing_of_a_removed_speaker_is_left_in_the_maps(made, tmp_path, voices, heard):
    path = Path(shutil.copy(made[0], tmp_path / "copy.store"))
    before = Store(path).load().posterior_maps()
    after = remove_speaker(path, voices[1])
    np.testing.assert_array_equal(after.posterior_maps()[1]["pair_map"], before[2]["pair_map"][:1])
    expected = pooled_maps(made[1], [arrays for number, arrays in enumerate(before) if number != 1])
    for kind in KINDS:
        np.testing.assert_array_equal(after.shared[f"posterior.{map_name(kind)}"], expected[kind])
    assert Verifier(after, voices[2], system="rpoao").verify_file(heard(voices[2])).score is not None


def test_held_out_trials_are_scored_by_maps_that_they_had_no_part_in(tmp_path, recordings, voices, tiny_with):
    settings_ = tiny_with("posterior.kind=newton")
    store = enroll(tmp_path / "s", {name: recordings[name] for name in voices[:3]}, settings_).model
    read = [[read_features(u, settings_.features) for u in recordings[name]] for name in voices[:3]]
    cuts = [cut_of(blocks, settings_) for blocks in read]
    kept = [joined(cut.kept(blocks)).vectors for cut, blocks in zip(cuts, read, strict=True)]
    population = train_population(
        Pool.of([fit_codebook(x, settings_.codebook, seed=0) for x in kept], settings_.machines.sigma),
        settings_.machines,
    )
    trials = [join_trials(cut.held(blocks), 200) for cut, blocks in zip(cuts, read, strict=True)]
    maps = HeldOutMaps(settings_, population, trials)
    expected = []
    for speaker, its_trials in enumerate(trials):
        for number, trial in enumerate(its_trials):
            posterior = maps.posterior(1 - half_of(speaker, number))
            running = ClaimScorer(population, range(3), ["rpoao"], ScoringSettings(posterior)).start()
            running.push(trial)
            expected.append(running.scores()["rpoao"])
    result = store.trials().scores["rpoao"][~store.trials().unknown].reshape(-1, 3)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    for arrays, fitted in zip(store.posterior_maps(), maps.fitted().speakers, strict=True):
        np.testing.assert_allclose(arrays["one_class_map"], fitted["one_class_map"], rtol=1e-6)
