"""Kinds of values that settings have, and the section that all sections of settings are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MachineKind = Literal[
    "one_vs_one", "one_class", "one_vs_rest", "supervector", "gmm", "normalised_supervector", "normalised_gmm",
    "pitch", "embedding",
]  # fmt: skip
Analysis = Literal["frames", "supervector", "gmm", "normalised", "pitch", "embedding"]
Augmentation = Literal["telephone", "babble", "noise", "room", "codec", "band", "coloured"]
Action = Literal["off", "warn", "refuse"]
System = Literal[
    "boar", "poar", "boao", "poao", "rpoao", "worst_rival", "refined_worst_rival",
    "supervector", "supervector_rival", "gmm", "gmm_rival",
    "normalised_supervector", "normalised_supervector_rival", "normalised_gmm", "normalised_gmm_rival",
    "pitch_rival", "embedding", "embedding_rival", "fused",
]  # fmt: skip

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``values``; raises ValueError where one is there twice."""
    if len(set(values)) != len(values):
        raise ValueError("the same kind is named twice")
    return values


class Section(BaseModel):
    """A frozen section of settings: unknown keys and other types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
