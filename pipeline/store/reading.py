"""Reading of a speaker model from a store's rows: everything but the arrays, checked before it is used."""

from __future__ import annotations

import hmac
import json
import reprlib
from collections.abc import Container, Mapping, Sequence
from typing import Any, get_args

from pipeline.config import Config, parse_config
from pipeline.errors import ConfigError, StoreFormatError, StoreSealError
from pipeline.machines.branches import BACKGROUNDS, EMBEDDING, PITCH, UTTERANCE_KINDS
from pipeline.scoring.calibrations import Calibrations
from pipeline.scoring.trials import TRIAL_KINDS
from pipeline.store.arrays import Arrays, StoredArrays, StoredPairs
from pipeline.store.blobs import part_name
from pipeline.store.layout import CONDITIONS, TRIAL_ARRAYS, required_arrays
from pipeline.store.model import SpeakerModel
from pipeline.store.rows import LISTING, Rows, digest_of
from pipeline.store.speakers import Role, Speaker

FORMAT = "voiceclaim-store"
VERSION = 8
OLDEST = 7  # the version before arrays had parts
ABOUT = ("format", "version", "identity", "revision", "config", "calibrations")
_MOST = 2**40  # seconds, frames, utterances or centroids
_PLAIN, _SEALED = "sha256", "hmac-sha256"
_SELECT_SPEAKERS = (
    "SELECT id, number, name, role, seconds, frames, utterances, centroids FROM speaker ORDER BY number, id"
)


def read_model(rows: Rows) -> SpeakerModel:
    """Return the model, whose arrays are read when they are asked for; raises StoreFormatError or StoreSealError."""
    about, digest = about_of(rows)
    rows.identity = about["identity"]
    _check_version(rows, about)  # first, since other versions may compute digests in another way
    listing = rows.listing()
    _check_digest(rows, about, listing, digest)
    speakers = _speakers(rows)
    config, calibrations = _settings(rows, about)
    lengths = _lengths(rows, listing, speakers, config)
    shared = StoredArrays(rows, None, listing.get(None, {}), lengths)
    arrays = tuple(
        StoredArrays(rows, speaker.id, listing.get(speaker.id, {}), {**lengths, "k": speaker.centroids})
        for speaker in speakers
    )
    _check_names(rows, config, arrays, shared)
    _check_conditions(rows, calibrations, arrays)
    pairs = None
    if "one_vs_one" in config.machines.kinds:
        sizes = [(speaker.id, speaker.centroids) for speaker in speakers]
        pairs = StoredPairs(rows, sizes, None if config.machines.cohort == "all" else shared)
    return SpeakerModel(
        config=config,
        speakers=speakers,
        arrays=arrays,
        shared=shared,
        pairs=pairs,
        calibrations=calibrations,
        where=str(rows.path),
        identity=about["identity"],
        version=about["version"],
        revision=about["revision"],
        digest=digest,
        sealed=rows.key is not None,
    )


def about_of(rows: Rows) -> tuple[dict[str, Any], str]:
    """Return the store's row about itself, and its digest; raises StoreFormatError for values of a wrong type."""
    records = rows.run("SELECT format, version, identity, revision, config, calibrations, digest FROM store")
    if [[type(value) for value in record] for record in records] != [[str, int, str, int, str, str, str]]:
        raise StoreFormatError(f"{rows.path}: what the store says about itself is damaged, or was changed by hand")
    *values, digest = records[0]
    return dict(zip(ABOUT, values, strict=True)), digest


def _check_version(rows: Rows, about: Mapping[str, Any]) -> None:
    if about["format"] != FORMAT or not OLDEST <= about["version"] <= VERSION:
        what_to_do = "enroll again" if about["version"] < OLDEST else "made by a later program? Then upgrade this one"
        raise StoreFormatError(
            f"{rows.path}: format {reprlib.repr(about['format'])}, version {about['version']!r}, but this program reads"
            f" versions {OLDEST} to {VERSION}; {what_to_do}"
        )


def _settings(rows: Rows, about: Mapping[str, Any]) -> tuple[Config, Calibrations]:
    """Return the settings and the calibrations in the store's row about itself; raises StoreFormatError."""
    try:
        config = parse_config(json.loads(about["config"]), source="config")
        return config, Calibrations.from_json(json.loads(about["calibrations"]))
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreFormatError(
            f"{rows.path}: settings or calibrations cannot be read: {error}; if another version of this program made"
            " the store, use that one, or enroll again"
        ) from None


def _speakers(rows: Rows) -> tuple[Speaker, ...]:
    """Return the speakers in order; raises StoreFormatError for impossible values."""
    records = rows.run(_SELECT_SPEAKERS)
    for place, record in enumerate(records):
        number, _, role, seconds, *counts = record[1:]
        if (
            [type(value) for value in record] != [int, int, str, str, float, int, int, int]
            or number != place
            or role not in get_args(Role)
            or not all(0 <= count <= _MOST for count in (seconds, *counts))
        ):
            raise StoreFormatError(f"{rows.path}: the row of speaker number {place} is damaged, or was changed by hand")
    if len({record[2] for record in records}) < len(records):
        raise StoreFormatError(f"{rows.path}: a name is enrolled twice; damaged, or changed by hand")
    return tuple(Speaker(record[0], *record[2:]) for record in records)


def _check_names(rows: Rows, config: Config, arrays: Sequence[Container[str]], shared: Arrays) -> None:
    """Raise StoreFormatError unless every array that the settings ask for is listed."""
    own, everybody = required_arrays(config, len(arrays))
    missing = {name for listed in arrays for name in own if name not in listed}
    missing |= {name for name in everybody if name not in shared}
    for kind in TRIAL_KINDS:
        if f"{kind}trials.claims" in shared:
            missing |= {kind + name for name in TRIAL_ARRAYS if kind + name not in shared}
    if missing:
        raise StoreFormatError(f"{rows.path}: array {min(missing)!r} is missing; damaged, or changed by hand")


def _check_conditions(rows: Rows, calibrations: Calibrations, arrays: Sequence[Container[str]]) -> None:
    """Raise StoreFormatError for calibrations by condition without the arrays that measure the condition."""
    by_condition = any(one.changed for one in (*calibrations.whole.values(), *calibrations.sequential.values()))
    for name in CONDITIONS if by_condition else ():
        if not any(name in listed for listed in arrays):
            raise StoreFormatError(
                f"{rows.path}: no speaker has the array {name!r}, which calibrations by condition need; damaged, or"
                " changed by hand"
            )


def _lengths(rows: Rows, listing: LISTING, speakers: tuple[Speaker, ...], config: Config) -> dict[str, int]:
    """Return the lengths that shapes must agree with, from the listing."""
    features = config.features
    shared, dimensions = listing.get(None, {}), features.dimensions
    lengths: dict[str, int] = {
        **dict(dimensions.items()),
        "C": features.supervector.order + dimensions["supervector"],
        "N": len(speakers),
        "M": sum(speaker.centroids for speaker in speakers),
        f"{PITCH.array}.B": config.pitch.bins,
    }
    measured = [(f"{of.name}.K", f"{of.name}.means") for of in BACKGROUNDS]
    measured += [(f"{kind}T", f"{kind}trials.claims") for kind in TRIAL_KINDS]
    measured += [(f"{kind.array}.S", f"{kind.array}.inner.speakers") for kind in UTTERANCE_KINDS]
    measured.append((f"{EMBEDDING.array}.D", f"{EMBEDDING.array}.mean"))
    for length, name in measured:
        if name in shared:
            try:
                lengths[length] = shared[name].shape[0]
            except (ValueError, TypeError, IndexError, RecursionError):
                raise StoreFormatError(f"{rows.path}: array {name!r} is damaged: it has no shape") from None
    sizes = [(kind.array, lengths.get(f"{kind.array}.S")) for kind in UTTERANCE_KINDS]
    lengths |= {f"{name}.I": size * (size + 1) // 2 for name, size in sizes if size is not None}
    parts = {kind.array: [(f"{of.name}.K", of.analysis) for of in kind.backgrounds] for kind in UTTERANCE_KINDS}
    return lengths | {
        f"{name}.D": sum(lengths[count] * dimensions[analysis] for count, analysis in read)
        for name, read in parts.items()
        if all(count in lengths for count, _ in read)
    }


def store_digest(rows: Rows, about: Mapping[str, Any], listing: LISTING) -> str:
    """Return the digest over settings, speakers and the digests of all arrays, as text that names its kind.

    It covers the number of pair machines, too: with cohorts, the removal of one might go unnoticed.
    """
    arrays = sorted(
        [str(owner), part_name(name, number), entry.dtype, shape, digest.hex()]
        for owner, entries in listing.items()
        for name, entry in entries.items()
        for number, (shape, digest) in enumerate(entry.parts)
    )
    ((pairs,),) = rows.run("SELECT count(*) FROM pair")
    text = json.dumps([[about[column] for column in ABOUT], rows.run(_SELECT_SPEAKERS), arrays, pairs], default=repr)
    digest = digest_of(rows.key, FORMAT.encode(), text.encode("ascii")).hex()
    return f"{_PLAIN if rows.key is None else _SEALED}:{digest}"


def _check_digest(rows: Rows, about: Mapping[str, Any], listing: LISTING, given: str) -> None:
    is_sealed = given.startswith(f"{_SEALED}:")
    if rows.key is not None and not is_sealed:
        raise StoreSealError(
            f"{rows.path}: a key was given, but the store is not sealed: its seal was taken off, or it never had one"
            " (`voiceclaim seal` seals a store that you trust)"
        )
    if rows.key is None and is_sealed:
        raise StoreSealError(f"{rows.path}: the store is sealed; give its key, in the variable VOICECLAIM_STORE_KEY")
    if not hmac.compare_digest(given.encode(), store_digest(rows, about, listing).encode()):
        if is_sealed:
            raise StoreSealError(
                f"{rows.path}: the seal does not hold: the store was edited, or sealed under another key"
            )
        raise StoreFormatError(f"{rows.path}: the store does not match its digest; damaged, or changed by hand")
