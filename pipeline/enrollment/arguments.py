"""Checks of the arguments of an enrollment, and of the store, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.audio.corpus import Utterance
from pipeline.config import ChecksConfig, Config
from pipeline.errors import ConfigError, InputError, SpeakerExistsError
from pipeline.names import check_new_names
from pipeline.scoring.rules import systems_of
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Role


def agreed_settings(store: Path, known: SpeakerModel | None, config: Config | None) -> Config:
    """Return the settings of the ``known`` model, or ``config`` for a new store; raises ConfigError if they differ."""
    if not isinstance(config, Config | None):
        raise ConfigError(
            f"settings: a Config was expected, got {type(config).__name__}; pipeline.load_config makes one"
        )
    if known is None:
        return _with_machines(Config() if config is None else config)
    if config is not None and known.config not in (config, config.narrowed):
        differing = [key for key in Config.model_fields if getattr(config, key) != getattr(known.config, key)]
        raise ConfigError(
            f"{store}: the store was enrolled with other settings (they differ in {', '.join(differing)});"
            " leave the settings out to add to it, or enroll into a new store"
        )
    return known.config


def checks_of(settings: Config, quality: ChecksConfig | None) -> ChecksConfig:
    """Return ``quality``, or the checks of the ``settings``; raises ConfigError for anything else."""
    if not isinstance(quality, ChecksConfig | None):
        raise ConfigError(
            f"quality: a ChecksConfig was expected, got {type(quality).__name__}; load_config(...).checks is one"
        )
    return settings.checks if quality is None else quality


def _with_machines(config: Config) -> Config:
    """Return ``config`` if it trains the machines of its default system, however many enroll; raises ConfigError."""
    systems = systems_of(config.machines.kinds, every_pair=config.machines.cohort == "all")
    try:
        SpeakerModel(config, where="scoring.system").check_system(None, systems)
    except InputError as error:
        raise ConfigError(str(error)) from None
    return config


def check_covered(
    model: SpeakerModel | None, speakers: Mapping[str, Sequence[Utterance]], role: Role, *, add: bool
) -> None:
    """Raise InputError if enrolling everybody anew would lose a speaker of the store, or change a speaker's role."""
    if add:
        raise InputError("enroll: recordings are added to what is there, or everybody is enrolled anew, not both")
    if model is None:
        return
    if others := [one for one in model.speakers if one.role != role]:
        raise InputError(
            f"{model.where}: {others[0].name!r} is enrolled as a {others[0].role}, but everybody was to be enrolled"
            f" anew as a {role}; where there are both, remove those of one kind and enroll them again"
        )
    if lost := [one.name for one in model.speakers if not speakers.get(one.name)]:
        raise InputError(
            f"{model.where}: to enroll everybody anew takes recordings of everybody in the store, but there are none of"
            f" {', '.join(map(repr, lost[:5]))}{' ...' if len(lost) > 5 else ''}; add these, or remove them first"
        )


def check_names(
    store: Path, known: SpeakerModel | None, speakers: Mapping[str, Sequence[Utterance]], *, add: bool
) -> None:
    """Raise InputError for no speakers or for invalid names, SpeakerExistsError for names that are taken."""
    if not speakers:
        raise InputError(f"{store}: nobody to enroll: no speakers were given")
    taken = set() if known is None or add else {speaker.name for speaker in known.speakers}
    if doubles := sorted(taken & set(speakers)):
        raise SpeakerExistsError(
            f"{store}: enrolled already: {', '.join(map(repr, doubles[:5]))}"
            f"{' ...' if len(doubles) > 5 else ''}; add to them (enroll --add, add=True, or PUT at a service), remove"
            " them first, or leave them out"
        )
    enrolled = [] if known is None else [speaker.name for speaker in known.speakers]
    check_new_names(sorted(set(speakers) - set(enrolled)), enrolled)
