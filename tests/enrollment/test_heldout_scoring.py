"""Held-out trials: true and false claims, and false claims by people whom the machines were trained without."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.linear_model import Ridge

from pipeline.config import Config, MachineConfig, ScoringConfig, SupervectorConfig, ThresholdConfig
from pipeline.enrollment import heldout_scoring
from pipeline.enrollment.heldout_scoring import HeldOutScoring
from pipeline.features.stream import FeatureBlock
from pipeline.machines.branches import SUPERVECTOR, UtteranceKind
from pipeline.machines.gmm import AdaptedMixtures
from pipeline.machines.margins import Population
from pipeline.machines.pool import Pool
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import SupervectorMachines, unit
from pipeline.machines.training import train_population
from pipeline.machines.ubm import UniversalBackgroundModel, loudness, train_ubm
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.claims import ClaimScorer, ScoringSettings
from pipeline.scoring.trials import HeldOutTrials

DIMENSION = 5
RIDGE = 0.5
MACHINES = MachineConfig(
    kinds=("one_vs_one", "one_class", "one_vs_rest", "supervector", "gmm"),
    sigma=0.5,
    nu=0.2,
)
SETTINGS = Config(
    machines=MACHINES,
    supervector=SupervectorConfig(half_db=25.0),
    scoring=ScoringConfig(system="refined_worst_rival", dtype="float64"),
)
SEGMENT_SYSTEMS, GMM_SYSTEMS = ("supervector", "supervector_rival"), ("gmm", "gmm_rival")
RIVAL_SYSTEMS = ("worst_rival", "refined_worst_rival")


@cache
def books(speakers: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(0.3 * n, 0.4, (9 + 3 * n, DIMENSION)) for n in range(speakers)]


def spoken(speaker: int, seed: int, frames: int = 60) -> FeatureBlock:
    """Speech of one speaker: noisy centroids, some of them loud."""
    random, book = np.random.default_rng([speaker, seed]), books(5)[speaker]
    vectors = book[random.integers(0, len(book), frames)] + 0.2 * random.standard_normal((frames, DIMENSION))
    return FeatureBlock(vectors, frames, random.uniform(0.0, 35.0, frames))


@cache
def segment_data(speakers: int) -> tuple[UniversalBackgroundModel, list[np.ndarray]]:
    """The UBM, and each speaker's segments (S_n, D)."""
    parts = [[spoken(n, seed).vectors for seed in range(4 + n)] for n in range(speakers)]
    space = train_ubm(
        np.concatenate([x for some in parts for x in some]), components=8, relevance=2.0, seed=0, half_db=25.0
    )
    vectors = [
        np.stack([space.vector(space.statistics(*space.weighed(x, np.ones(len(x))))) for x in some]) for some in parts
    ]
    return space, [some.astype(np.float32) for some in vectors]


@cache
def trained(speakers: int) -> tuple[Population, dict[UtteranceKind, SupervectorTraining]]:
    space, vectors = segment_data(speakers)
    training = SupervectorTraining(vectors, ridge=RIDGE)
    population = train_population(Pool.of(books(5)[:speakers], 0.5), MACHINES)
    shifts = np.random.default_rng(3).standard_normal((speakers, *space.means.shape)).astype(np.float32)
    supervector = SupervectorMachines((space,), training.solution.mean, training.solution.coef)
    machines = {"supervector": supervector, "gmm": AdaptedMixtures((space,), shifts)}
    return replace(population, utterance=machines), {SUPERVECTOR: training}


def ids_of(speakers: int) -> list[int]:
    """Ids that fill 64 bits and are not the speakers' numbers."""
    return [2**64 - 1 - 7 * n for n in range(speakers)]


def scoring(speakers: int, claims: list[int] | None = None, settings: Config = SETTINGS) -> HeldOutScoring:
    claims = list(range(speakers)) if claims is None else claims
    return HeldOutScoring(settings, *trained(speakers), claims, ids_of(speakers))


def scores_among(population: Population, claims: list[int], systems: tuple[str, ...], x: FeatureBlock) -> dict:
    how = ScoringSettings(FixedSigmoid(), frame_subsampling=SETTINGS.scoring.frame_subsampling)
    made = ClaimScorer(population, claims, systems, how).start()
    made.push(x)
    return made.scores()


def part(trials: HeldOutTrials, name: str, *, unknown: bool) -> np.ndarray:
    return trials.scores[name][trials.unknown == unknown]


# Who claims to be whom


@pytest.mark.parametrize("speaker", range(4))
def test_every_claim_is_tried_and_every_false_one_again_by_an_outsider(speaker):
    ids = ids_of(4)
    trials = scoring(4).score(speaker, [spoken(speaker, 9, 70)])[0]
    assert trials.claims[~trials.unknown].tolist() == ids
    assert trials.claims[trials.unknown].tolist() == [i for i in ids if i != ids[speaker]]
    assert set(trials.speakers.tolist()) == {ids[speaker]}
    np.testing.assert_array_equal(trials.frames, 70)
    np.testing.assert_array_equal(trials.population, 4)
    assert {*SEGMENT_SYSTEMS, *RIVAL_SYSTEMS, "poar", "alone.mean", "alone.log"} <= trials.scores.keys()
    assert "fused" not in trials.scores  # a sum of others
    for values in trials.scores.values():
        assert values.shape == (len(trials),)
        assert np.isfinite(values).all()


def test_background_speakers_claim_only_to_be_others_and_of_two_speakers_none_is_an_outsider():
    ids = ids_of(4)
    trials = scoring(4, claims=[2, 0]).score(3, [spoken(3, 9)])[0]
    assert trials.claims.tolist() == [ids[2], ids[0]] * 2
    assert trials.unknown.tolist() == [False, False, True, True]
    assert scoring(2).score(0, [spoken(0, 9)])[0].unknown.tolist() == [False, False]
    assert scoring(3).score(0, [spoken(0, 9)])[0].unknown.tolist() == [False] * 3 + [True] * 2


def test_others_are_drawn_anew_for_each_few_speakers_in_a_row_who_are_all_claimed(monkeypatch):
    monkeypatch.setattr(heldout_scoring, "SPEAKERS_A_DRAW", 2)
    few = HeldOutScoring(SETTINGS, *trained(5), list(range(5)), list(range(5)), most_others=1)
    claims = [set(few.score(speaker, [spoken(speaker, 9)])[0].claims.tolist()) for speaker in range(5)]
    assert claims[0] == claims[1] >= {0, 1}
    assert claims[2] == claims[3] >= {2, 3}
    assert max(map(len, claims)) <= 3
    assert len((claims[0] - {0, 1}) | (claims[2] - {2, 3}) | (claims[4] - {4})) > 1


def test_prefixes_are_shorter_than_a_trial_and_scored_as_trials_of_that_length():
    settings = SETTINGS.model_copy(update={"threshold": ThresholdConfig(trial_seconds=1.0)})
    x = spoken(1, 9, 120)
    whole = scoring(3, settings=settings).score(1, [x])[0]
    assert whole.prefixes.keys() == {50, 75}
    for frames, scores in whole.prefixes.items():
        (alone,) = scoring(3, settings=settings).score(1, [x.part(slice(0, frames))])
        assert scores.keys() == {"refined_worst_rival"}
        for name, values in scores.items():
            np.testing.assert_allclose(values, alone.scores[name], atol=1e-12)


@pytest.mark.parametrize("prefix_seconds", [(), (0.1, 0.3)])  # by kernel values, and by coefficients
def test_trials_of_speakers_scored_together_are_those_of_each_alone(monkeypatch, prefix_seconds):
    monkeypatch.setattr(heldout_scoring, "PREFIX_SECONDS", prefix_seconds)
    speech = [(2, [spoken(2, 9, 70), spoken(2, 8, 40)]), (0, []), (1, [spoken(1, 9, 70)])]
    parts = [(scoring(4), speech), (scoring(4), speech[:1])]
    together, again = heldout_scoring.score_together(parts)
    for (speaker, utterances), its_trials in zip([*speech, *speech[:1]], [*together, *again], strict=True):
        alone = scoring(4).score(speaker, utterances)
        assert len(its_trials) == len(alone) == len(utterances)
        for made, expected in zip(its_trials, alone, strict=True):
            assert made.claims.tolist() == expected.claims.tolist()
            assert made.frames.tolist() == expected.frames.tolist()
            for name, scores in expected.scores.items():
                np.testing.assert_allclose(made.scores[name], scores, atol=1e-5, err_msg=name)


def test_an_empty_set_of_trials_has_the_systems_of_those_joined_to_it():
    made = scoring(3)
    trials = made.score(1, [spoken(1, 9)])[0]
    assert len(made.none()) == 0
    joined = HeldOutTrials.joined([made.none(), trials])
    assert joined.scores.keys() == trials.scores.keys()
    np.testing.assert_array_equal(joined.claims, trials.claims)
    assert joined.claims.dtype == np.uint64


# Among rivals


@pytest.mark.parametrize("speakers", [2, 3, 4])
def test_claims_among_rivals_score_as_they_would_at_verification(speakers):
    x = spoken(1, 9)
    trials = scoring(speakers).score(1, [x])[0]
    systems = tuple(name for name in trials.scores if not name.startswith("alone."))
    expected = scores_among(trained(speakers)[0], list(range(speakers)), systems, x)
    for name, values in expected.items():
        # The segment machines are summed in single precision, and their solver is not. Those of GMMs are, too, and for
        # several utterances at once in another order.
        tolerance = {**dict.fromkeys(SEGMENT_SYSTEMS, 1e-5), **dict.fromkeys(GMM_SYSTEMS, 1e-6)}.get(name, 1e-12)
        np.testing.assert_allclose(part(trials, name, unknown=False), values, atol=tolerance, err_msg=name)


def test_every_trial_is_scored_by_the_one_class_machine_alone_too():
    x = spoken(2, 9)
    trials, people = scoring(4).score(2, [x])[0], trained(4)[0]
    scored = x.vectors[:: SETTINGS.scoring.frame_subsampling]
    kernel = np.exp(-cdist(scored, people.pool.centroids, "sqeuclidean") / (2 * 0.5**2))
    for n in range(4):
        rows = people.pool.rows(n)
        f = kernel[:, rows] @ people.one_class_coef[rows] + people.one_class_bias[n]
        claimed = trials.claims == np.uint64(ids_of(4)[n])
        np.testing.assert_allclose(trials.scores["alone.mean"][claimed], expit(f).mean(), rtol=1e-9)
        np.testing.assert_allclose(trials.scores["alone.log"][claimed], np.log(expit(f)).mean(), rtol=1e-9)


# By impostors whom nobody enrolled


def segment_margins_without(speakers: int, absent: int, x: FeatureBlock) -> np.ndarray:
    """Margins (N,) by scikit-learn's ridge regression on the segments of the others alone."""
    space, vectors = segment_data(speakers)
    counts = np.array([len(some) for some in vectors])
    stacked = np.concatenate(vectors).astype(float)
    mean, owners = stacked.mean(axis=0), np.repeat(np.arange(speakers), counts)
    targets = np.where(owners[:, None] == np.arange(speakers), 1.0, -1.0 / (speakers - 1))
    targets -= targets.mean(axis=0)
    kept = owners != absent
    model = Ridge(alpha=RIDGE, fit_intercept=False).fit(
        unit(stacked - mean)[kept], targets[kept], sample_weight=(counts.mean() / counts[owners])[kept]
    )
    vector = space.vector(space.statistics(*space.weighed(x.vectors, loudness(x.below_peak, 25.0))))
    return model.predict(unit(vector - mean)[None])[0]


@pytest.mark.parametrize("absent", range(4))
def test_outsiders_meet_machines_trained_without_them_and_are_nobodys_rival(absent):
    x, (people, _) = spoken(absent, 9), trained(4)
    trials, margins = scoring(4).score(absent, [x])[0], segment_margins_without(4, absent, x)
    others = [n for n in range(4) if n != absent]
    rivals = {n: [j for j in others if j != n] for n in others}
    weights = loudness(x.below_peak, SETTINGS.supervector.half_db)
    machines = people.utterance["gmm"]
    gmms = machines.margins([machines.ubms[0].statistics(*machines.ubms[0].weighed(x.vectors, weights))])
    for name, expected, atol in (
        ("supervector", margins[others], 1e-5),
        ("supervector_rival", [margins[n] - margins[rivals[n]].max() for n in others], 1e-5),
        ("gmm_rival", [gmms[n] - gmms[rivals[n]].max() for n in others], 1e-6),
        ("gmm", [gmms[n] - gmms[rivals[n]].mean() for n in others], 1e-6),
    ):
        np.testing.assert_allclose(part(trials, name, unknown=True), expected, atol=atol, err_msg=name)
    # A pair machine knows of two speakers only, so that a population without the outsider has the very same ones.
    left = train_population(Pool.of([books(5)[n] for n in others], 0.5), MACHINES)
    expected = scores_among(left, [0, 1, 2], RIVAL_SYSTEMS, x)
    for name in RIVAL_SYSTEMS:
        np.testing.assert_allclose(part(trials, name, unknown=True), expected[name], atol=1e-6, err_msg=name)
        among = np.delete(part(trials, name, unknown=False), absent)
        assert (expected[name] > among + 0.01).any(), "the speaker was nobody's worst rival to begin with"


def test_outsiders_are_harder_to_reject_than_rivals():
    """This is why false claims are tried both ways."""
    made, known, unknown = scoring(4), [], []
    for speaker in range(4):
        for seed in range(20, 26):
            trials = made.score(speaker, [spoken(speaker, seed)])[0]
            scores, false = trials.scores["supervector_rival"], trials.claims != trials.speakers
            known.append(scores[false & ~trials.unknown])
            unknown.append(scores[trials.unknown])
    assert np.mean(unknown) > np.mean(known) + 0.1


def test_kinds_without_segments_are_scored_without_a_solver():
    kinds = ("one_vs_one", "one_class")
    machines = MachineConfig(sigma=0.5, nu=0.2, kinds=kinds)
    settings = SETTINGS.model_copy(update={"machines": machines})
    population = train_population(Pool.of(books(5)[:3], 0.5), machines)
    x = spoken(0, 9)
    trials = HeldOutScoring(settings, population, {}, [0, 1, 2], ids_of(3)).score(0, [x])[0]
    assert not trials.scores.keys() & {*SEGMENT_SYSTEMS, "poar", "boar"}
    expected = scores_among(population, [0, 1, 2], ("worst_rival",), x)["worst_rival"]
    np.testing.assert_allclose(part(trials, "worst_rival", unknown=False), expected, atol=1e-12)
