"""Running scores of small trained populations against literal loops, and thresholds from held-out trials."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import SYSTEMS
from scipy.spatial.distance import cdist

from pipeline.config import MachineConfig, PitchConfig
from pipeline.errors import MetricError
from pipeline.features.stream import FeatureBlock
from pipeline.machines.gmm import AdaptedMixtures, map_mean_offsets
from pipeline.machines.margins import Population
from pipeline.machines.pitch import PRIOR_FRAMES, PitchCounts, PitchHistograms
from pipeline.machines.pool import Pool
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import SupervectorMachines
from pipeline.machines.training import train_population
from pipeline.machines.ubm import train_ubm
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.calibration import LogisticCalibration, SystemCalibration
from pipeline.scoring.claims import ClaimScorer, ScoringSettings
from pipeline.scoring.fitting import fit_threshold
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import HeldOutTrials

SPEAKERS = 4
DIMENSION = 5
SEEDS = st.integers(0, 2**32 - 1)
HALF_DB = 20.0
MEAN_PRIOR = 30.0
# Not those that a fit would give: what matters here is that they are followed.
SUM = LogisticCalibration(
    ("supervector_rival", "supervector", "worst_rival"),
    np.array([2.0, 0.7, 0.4]),
    offset=-1.3,
    duration=0.6,
    usual_frames=150.0,
)
SAME = LogisticCalibration(("fused",), np.ones(1), offset=0.0, duration=0.0, usual_frames=150.0)
FUSION = SystemCalibration("fused", (("all", SAME),), (("all", SUM),))


@cache
def population(speakers: int = SPEAKERS) -> Population:
    generator = np.random.default_rng(0)
    books = [generator.normal(0.3 * n, 0.4, (9 + 3 * n, DIMENSION)) for n in range(speakers)]
    people = train_population(
        Pool.of(books, 0.5), MachineConfig(kinds=("one_vs_one", "one_class", "one_vs_rest"), sigma=0.5, nu=0.2)
    )
    spoken = [[near(book, seed).vectors for seed in range(4)] for book in books]
    less_mean = [[x - x.mean(axis=0) for x in parts] for parts in spoken]
    return replace(
        people,
        utterance={
            **utterance_machines(spoken, np.inf, "", 1),
            **utterance_machines(less_mean, MEAN_PRIOR, "normalised_", 2),
            "pitch": pitch_histograms(speakers),
        },
    )


def utterance_machines(spoken: list[list[np.ndarray]], mean_prior: float, prefix: str, analyses: int) -> dict:
    frames = np.concatenate([x for parts in spoken for x in parts])
    space = train_ubm(frames, components=8, relevance=2.0, seed=0, half_db=HALF_DB, mean_prior=mean_prior)
    vectors = [
        np.stack(
            [np.tile(space.vector(space.statistics(*space.weighed(x, np.ones(len(x))))), analyses) for x in parts]
        ).astype(np.float32)
        for parts in spoken
    ]
    statistics = [sum(space.statistics(*space.weighed(x, np.ones(len(x)))) for x in parts) for parts in spoken]
    offsets = np.stack([map_mean_offsets(one, (), relevance=2.0, group_relevance=4.0) for one in statistics])
    training = SupervectorTraining(vectors, ridge=1.0)
    supervector = SupervectorMachines((space,) * analyses, training.solution.mean, training.solution.coef)
    return {f"{prefix}supervector": supervector, f"{prefix}gmm": AdaptedMixtures((space,), offsets)}


def pitch_histograms(speakers: int) -> PitchHistograms:
    counts = PitchCounts(PitchConfig())
    shares = np.random.default_rng(1).dirichlet(np.ones(counts.settings.bins), speakers)
    return PitchHistograms((counts,), shares.astype(np.float32))


def block_of(vectors: np.ndarray, below_peak: np.ndarray | None = None) -> FeatureBlock:
    count = len(vectors)
    generator = np.random.default_rng(count)
    pitches = np.stack((generator.uniform(6.1, 8.6, count), generator.uniform(0.0, 1.0, count)), axis=1)
    return FeatureBlock(vectors, count, np.zeros(count) if below_peak is None else below_peak, {"pitch": pitches})


def speech(frames: int, seed: int = 1) -> FeatureBlock:
    """Speech of nobody in particular, some of it loud."""
    generator = np.random.default_rng(seed)
    return block_of(generator.normal(0.4, 0.5, (frames, DIMENSION)), generator.uniform(0.0, 40.0, frames))


def near(book: np.ndarray, seed: int) -> FeatureBlock:
    """Loud speech close to the centroids of ``book``."""
    frames = np.repeat(book, 4, axis=0)
    return block_of(frames + 0.1 * np.random.default_rng(seed).standard_normal(frames.shape))


def scorer(
    claims: list[int],
    systems: tuple[str, ...] = SYSTEMS,
    *,
    speakers: int = SPEAKERS,
    dtype: str = "float64",
    frame_subsampling: int = 1,
) -> ClaimScorer:
    scoring = ScoringSettings(
        FixedSigmoid(), dtype=dtype, fusions={"fused": FUSION}, frame_subsampling=frame_subsampling
    )
    return ClaimScorer(population(speakers), claims, systems, scoring)


def scores(made: ClaimScorer, *blocks: FeatureBlock) -> dict[str, np.ndarray]:
    running = made.start()
    for block in blocks:
        running.push(block)
    return running.scores()


def assert_equal_scores(made: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    assert made.keys() == expected.keys()
    for name, values in made.items():
        np.testing.assert_allclose(values, expected[name], atol=tolerance, rtol=0, err_msg=name)


# The scores themselves, written out claim by claim and frame by frame.


def literal_scores(people: Population, speech: FeatureBlock, claim: int, frame_subsampling: int) -> dict[str, float]:
    """Every system for one claim: from coefficients, one frame at a time, and from the machines over segments."""
    pool, everybody = people.pool, range(len(people))
    kernel = np.exp(-cdist(speech.vectors, pool.centroids, "sqeuclidean") / (2 * pool.sigma**2))

    def s(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    def pair(k: np.ndarray, i: int, j: int) -> float:
        machine = people.pairs.against(i)[j]
        return k[pool.rows(i)] @ machine.own - k[pool.rows(j)] @ machine.rival + machine.bias

    frames: dict[str, list[float]] = {name: [] for name in ("boar", "poar", "boao", "poao", "rpoao")}
    rivals: dict[tuple[str, int], list[float]] = {}
    for k in kernel[::frame_subsampling]:
        h = [float(k @ people.one_vs_rest_coef[:, n] + people.one_vs_rest_bias[n]) for n in everybody]
        q = [s(k[pool.rows(n)] @ people.one_class_coef[pool.rows(n)] + people.one_class_bias[n]) for n in everybody]
        f = [[pair(k, i, j) if i != j else 0.0 for j in everybody] for i in everybody]
        r = [[s(f[i][j]) if i != j else 0.0 for j in everybody] for i in everybody]
        refined = [[r[i][j] * (q[i] + q[j]) for j in everybody] for i in everybody]
        won = [sum(f[i][j] > 0 for j in everybody if j != i) for i in everybody]
        best = max(everybody, key=lambda i: (won[i], sum(r[i])))
        frames["boar"].append(float(h[claim] > 0))
        frames["poar"].append(math.log(s(h[claim]) / sum(s(one) for one in h)))
        frames["boao"].append(float(best == claim))
        frames["poao"].append(math.log(sum(r[claim]) / sum(map(sum, r))))
        frames["rpoao"].append(math.log(sum(refined[claim]) / sum(map(sum, refined))))
        for j in everybody:
            if j != claim:
                rivals.setdefault(("worst_rival", j), []).append(r[claim][j])
                rivals.setdefault(("refined_worst_rival", j), []).append(refined[claim][j])
    scores = {name: math.fsum(values) / len(values) for name, values in frames.items()}
    for name in ("worst_rival", "refined_worst_rival"):
        scores[name] = min(math.fsum(v) / len(v) for (system, _), v in rivals.items() if system == name)
    weights = 1 / (1 + np.exp((speech.below_peak - HALF_DB) / 3))
    for branch, prefix in (("supervector", ""), ("normalised_supervector", "normalised_")):
        machines, x = people.utterance[branch], speech.vectors
        so_far, whole = np.zeros_like(x), np.zeros(DIMENSION)
        if prefix:
            so_far = np.stack([x[: t + 1].sum(axis=0) / (t + 1 + MEAN_PRIOR) for t in range(len(x))])
            whole = x.sum(axis=0) / (len(x) + MEAN_PRIOR)
        statistics = machines.ubms[0].statistics(*machines.ubms[0].weighed(x - whole, weights, like=x - so_far))
        margins = machines.margins([statistics] * len(machines.ubms))
        scores[f"{prefix}supervector"] = margins[claim]
        scores[f"{prefix}supervector_rival"] = margins[claim] - max(margins[j] for j in everybody if j != claim)
        models = people.utterance[f"{prefix}gmm"].margins([statistics])
        others = [models[j] for j in everybody if j != claim]
        scores[f"{prefix}gmm"] = models[claim] - sum(others) / len(others)
        scores[f"{prefix}gmm_rival"] = models[claim] - max(others)
    histograms = people.utterance["pitch"]
    octaves, voicing = speech.of("pitch").T
    places = np.floor((octaves - np.log2(65)) / np.log2(420 / 65) * histograms.shares.shape[1]).astype(int)
    loud = voicing / (1 + np.exp((speech.below_peak - histograms.ubms[0].settings.half_db) / 3))
    pitches = [loud @ np.log(row.astype(float))[places] / (loud.sum() + PRIOR_FRAMES) for row in histograms.shares]
    scores["pitch_rival"] = pitches[claim] - max(pitches[j] for j in everybody if j != claim)
    won = scores["worst_rival"]
    scores["fused"] = (
        -1.3
        + 0.6 * math.log(len(speech.vectors) / 150)
        + 2.0 * scores["supervector_rival"]
        + 0.7 * scores["supervector"]
        + 0.4 * math.log(won / (1 - won))
    )
    return scores


@pytest.mark.parametrize(("speakers", "frame_subsampling"), [(2, 1), (SPEAKERS, 1), (SPEAKERS, 3), (SPEAKERS, 50)])
def test_scores_are_the_systems_written_out_frame_by_frame(speakers, frame_subsampling):
    x = speech(40)
    made = scores(scorer(list(range(speakers)), speakers=speakers, frame_subsampling=frame_subsampling), x)
    assert set(made) == set(SYSTEMS)
    for claim in range(speakers):
        expected = literal_scores(population(speakers), x, claim, frame_subsampling)
        assert set(expected) == set(SYSTEMS)
        for name, value in expected.items():
            # Machines over whole segments sum in single precision.
            exact = not (RULES[name].kind or RULES[name].parts)
            assert made[name][claim] == pytest.approx(value, abs=1e-9 if exact else 1e-6), name


# One pass, any chunks, any claims.


@settings(max_examples=20, deadline=None)
@given(
    claims=st.lists(st.integers(0, SPEAKERS - 1), min_size=1, max_size=6),
    systems=st.lists(st.sampled_from(SYSTEMS), min_size=1, unique=True),
)
def test_claims_scored_together_score_as_they_do_alone(claims, systems):
    x = speech(50)
    together = scores(scorer(claims, tuple(systems)), x)
    assert tuple(together) == tuple(systems)
    for slot, claim in enumerate(claims):
        for name in systems:
            alone = scores(scorer([claim], (name,)), x)
            np.testing.assert_allclose(together[name][slot], alone[name][0], atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_scores_in_less_precision_are_close_to_those_in_double(seed):
    x, everybody = speech(80, seed), list(range(SPEAKERS))
    double = scores(scorer(everybody), x)
    for dtype, tolerance in (("mixed", 1e-6), ("float32", 1e-4)):
        for name, values in scores(scorer(everybody, dtype=dtype), x).items():
            # A counted frame whose margin rounds to the other side of zero moves a share by one frame.
            allowed = tolerance if not RULES[name].binary else 1 / 80 + tolerance
            np.testing.assert_allclose(values, double[name], atol=allowed, err_msg=f"{name}, {dtype}")


# Systems that sum others.


def test_sum_of_systems_without_a_calibration_has_no_score():
    made = ClaimScorer(population(), [0, 1], ("fused", "supervector"), ScoringSettings(FixedSigmoid()))
    assert set(scores(made, speech(50))) == {"supervector"}


def test_sum_of_systems_asks_a_population_for_the_machines_of_its_calibration_alone():
    people = population()
    raw = people.utterance["supervector"]
    without = replace(people, utterance={"supervector": raw})
    how = ScoringSettings(FixedSigmoid(), fusions={"fused": FUSION})
    made, expected = (scores(ClaimScorer(one, [0, 1], ("fused",), how), speech(50)) for one in (without, people))
    np.testing.assert_array_equal(made["fused"], expected["fused"])


def test_quiet_frames_hardly_matter_to_segments_and_fully_to_the_frame_rules():
    loud, noise = speech(60, 1), speech(60, 2)
    quiet = block_of(noise.vectors, np.full(60, HALF_DB + 60.0))
    made = scorer([0, 1])
    before, after = scores(made, block_of(loud.vectors)), scores(made, block_of(loud.vectors), quiet)
    np.testing.assert_allclose(after["supervector"], before["supervector"], atol=1e-6)
    assert np.abs(after["worst_rival"] - before["worst_rival"]).max() > 1e-3


# Small populations.


def test_alone_every_system_reads_the_one_class_machine():
    people, x = population(1), speech(60)
    kernel = np.exp(-cdist(x.vectors, people.pool.centroids, "sqeuclidean") / (2 * 0.5**2))
    f = kernel @ people.one_class_coef + people.one_class_bias[0]
    q = 1 / (1 + np.exp(-f))
    assert 0 < np.mean(f > 0) < 1
    expected = {"mean": q.mean(), "log": np.log(q).mean()}
    for name, values in scores(scorer([0], speakers=1), x).items():
        assert values == pytest.approx([expected[RULES[name].alone]], abs=1e-12), name


def test_nothing_is_scored_before_the_first_frame():
    running = scorer([0]).start()
    running.push(block_of(np.empty((0, DIMENSION))))
    assert running.frames == 0
    with pytest.raises(ValueError, match="no frame"):
        running.scores()


# Held-out trials.


def trials(
    target: list[float], nontarget: list[float], *, population: int = 10, system: str = "poao", first: int = 0
) -> HeldOutTrials:
    """Target trials with the scores ``target``, and nontarget ones; speakers are numbered from ``first``."""
    speakers = np.arange(first, first + len(target) + len(nontarget), dtype=np.uint64)
    claims = speakers.copy()
    claims[len(target) :] += np.uint64(1)
    return HeldOutTrials(
        claims=claims,
        speakers=speakers,
        population=np.full(len(speakers), population),
        scores={system: np.array([*target, *nontarget], dtype=float)},
        frames=np.arange(100, 100 + len(speakers)),
        unknown=np.zeros(len(speakers), dtype=bool),
    )


def test_false_accept_rate_needs_no_target_trials():
    assert fit_threshold(trials([], [0.0, 1.0]), "poao", population=10, false_accept=0.5) > 0.0


@pytest.mark.parametrize(
    ("target", "nontarget", "asked", "message"),
    [
        ([], [], {"system": "poao"}, "holds no held-out utterances"),
        ([], [0.0, 1.0], {"system": "poao"}, "holds no held-out utterances"),
        ([], [], {"system": "poao", "false_accept": 0.1}, "other speakers"),
        ([0.3], [], {"system": "poao", "false_accept": 0.01}, "other speakers"),
        ([1.0], [0.0], {"system": "boar"}, "'boar'"),
        ([1.0], [0.0], {"system": "poao", "false_accept": 1.5}, "false accept rate"),
    ],
)
def test_what_trials_cannot_say_is_an_error(target, nontarget, asked, message):
    with pytest.raises(MetricError, match=message):
        fit_threshold(trials(target, nontarget), population=10, **asked)


def test_later_trials_follow_the_earlier_ones():
    both = HeldOutTrials.joined([trials([1.0, 2.0], [0.0]), trials([3.0], [-1.0, -2.0], population=20, first=50)])
    np.testing.assert_array_equal(both.scores["poao"], [1, 2, 0, 3, -1, -2])
    np.testing.assert_array_equal(both.speakers, [0, 1, 2, 50, 51, 52])
    np.testing.assert_array_equal(both.claims, [0, 1, 3, 50, 52, 53])
    np.testing.assert_array_equal(both.population, [10, 10, 10, 20, 20, 20])
    np.testing.assert_array_equal(both.frames, [100, 101, 102, 100, 101, 102])
    assert len(both.unknown) == 6


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20), st.integers(0, 5))
def test_trials_without_a_speaker_hold_neither_their_claims_nor_their_speech(pairs, speaker):
    # Ids fill 64 bits.
    shift = 2**64 - 6
    made = HeldOutTrials(
        claims=np.array([claim + shift for claim, _ in pairs], dtype=np.uint64),
        speakers=np.array([voice + shift for _, voice in pairs], dtype=np.uint64),
        population=np.full(len(pairs), 5),
        scores={"poao": np.arange(len(pairs), dtype=float)},
        frames=200 + np.arange(len(pairs)),
        unknown=np.arange(len(pairs)) % 2 == 1,
    )
    left = made.without(speaker + shift)
    kept = [n for n, pair in enumerate(pairs) if speaker not in pair]
    np.testing.assert_array_equal(left.scores["poao"], kept)
    assert [int(claim) - shift for claim in left.claims] == [pairs[n][0] for n in kept]
    assert [int(voice) - shift for voice in left.speakers] == [pairs[n][1] for n in kept]
    np.testing.assert_array_equal(left.frames, [200 + n for n in kept])
    np.testing.assert_array_equal(left.unknown, [n % 2 == 1 for n in kept])
    assert len(left) == len(left.population) == len(kept)


@pytest.mark.parametrize(
    ("sizes", "population", "kept"),
    [
        ((10, 10), 10, (10, 10)),
        ((4, 10), 10, (10,)),  # fewer than half
        ((5, 10), 10, (5, 10)),  # exactly half
        ((2, 3), 100, (2, 3)),  # nothing better there
        ((1, 2), 2, (2,)),  # one speaker has no rivals: another unit
        ((1, 1), 2, (1, 1)),
        ((1,), 1, (1,)),
        ((30, 2), 4, (30, 2)),  # speakers have been removed
    ],
)
def test_comparable_trials_are_those_of_at_least_half_the_population(sizes, population, kept):
    made = replace(trials([0.0] * len(sizes), []), population=np.array(sizes))
    np.testing.assert_array_equal(made.comparable(population).population, kept)


@pytest.mark.parametrize("system", ["poar", "poao", "rpoao", "boao", "worst_rival", "supervector_rival"])
def test_a_mean_log_posterior_is_as_far_from_chance_whatever_the_population(system):
    at_six, at_ten = trials([-1.2], [-3.0], population=6, system=system), trials([-1.2], [-3.0], system=system)
    mixed = HeldOutTrials.joined([replace(one, prefixes={50: dict(one.scores)}) for one in (at_six, at_ten)])
    shift = np.log(6 / 10) if system in {"poar", "poao", "rpoao"} else 0.0
    made = mixed.comparable(10)
    for scores in (made.scores[system], made.prefixes[50][system]):
        np.testing.assert_allclose(scores, [-1.2 + shift, -3.0 + shift, -1.2, -3.0])


def test_threshold_leaves_out_trials_of_a_much_smaller_population():
    old = trials([-50.0, -60.0], [-70.0, -80.0], population=2)
    new = trials([2.0, 3.0], [0.0, 1.0], population=12, first=10)
    assert fit_threshold(HeldOutTrials.joined([old, new]), "poao", population=12) == 1.5
    assert fit_threshold(old, "poao", population=2) == -65.0


@pytest.mark.parametrize("now", [3, 12, 40])
def test_threshold_of_a_log_posterior_moves_with_chance_and_others_stay(now):
    for system, expected in (("poao", 1.5 + np.log(12 / now)), ("worst_rival", 1.5)):
        made = trials([2.0, 3.0], [0.0, 1.0], population=12, system=system)
        np.testing.assert_allclose(fit_threshold(made, system, population=now), expected, rtol=1e-12)


@pytest.mark.parametrize("system", ["boar", "boao"])
def test_a_claim_that_no_frame_supports_is_below_every_threshold(system):
    assert fit_threshold(trials([0.0, 0.0], [0.0, 0.0], system=system), system, population=10) > 0.0
