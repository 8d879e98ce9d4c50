"""Types of settings' values, and the base class of all sections of settings."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline.config.explanations import explaining
from pipeline.errors import ConfigError

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
    """Return ``values``; raises ValueError if one is repeated."""
    if len(set(values)) != len(values):
        raise ValueError("the same kind is named twice")
    return values


class Section(BaseModel):
    """A frozen section of settings: unknown keys and wrong types are errors; a list is accepted for a tuple.

    Raises ConfigError that names each wrong setting, and for an attempt to change a setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    if not TYPE_CHECKING:  # type checkers infer the names of the settings from pydantic's own methods

        def __init__(self, /, **settings: Any) -> None:
            with explaining(type(self), type(self).__name__):
                super().__init__(**settings)

        # Makes pydantic itself collect the mistakes in nested sections, with their full names.
        __init__.__pydantic_base_init__ = True

        @classmethod
        def model_validate(cls, obj: Any, **options: Any) -> Self:
            """Return the section with the settings ``obj``; raises ConfigError."""
            with explaining(cls, cls.__name__):
                return super().model_validate(obj, **options)

        @classmethod
        def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
            """Return the section with the settings in JSON; raises ConfigError."""
            with explaining(cls, cls.__name__):
                return super().model_validate_json(json_data, **options)

        def __setattr__(self, name: str, value: Any = None) -> None:
            raise ConfigError(
                f"{type(self).__name__}: {name}: settings cannot be changed; model_copy(update={{...}}) returns others"
            )

        __delattr__ = __setattr__

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002
        """Return a copy with the settings in ``update`` changed; raises ConfigError."""
        return type(self)(**{**dict(self), **(update or {})})

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, settings: Any) -> Any:
        """Return ``settings`` with lists as tuples, and NumPy integers as Python's."""
        return {key: _plain(value) for key, value in settings.items()} if isinstance(settings, Mapping) else settings


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
