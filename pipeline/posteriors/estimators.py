"""Table of all estimators of posteriors from single margins, by kind."""

from __future__ import annotations

from typing import Any

from pipeline.errors import ConfigError
from pipeline.posteriors.base import MarginPosterior
from pipeline.posteriors.gaussian import TiedGaussian, TwoGaussian
from pipeline.posteriors.newton import NewtonSigmoid
from pipeline.posteriors.nonparametric import CosineExpansion, HistogramPosterior, IsotonicPosterior
from pipeline.posteriors.platt import PlattSigmoid

POSTERIORS: dict[str, type[MarginPosterior]] = {
    estimator.kind: estimator
    for estimator in (
        PlattSigmoid,
        NewtonSigmoid,
        TiedGaussian,
        TwoGaussian,
        CosineExpansion,
        IsotonicPosterior,
        HistogramPosterior,
    )
}
"""Every fitted estimator by its kind, as settings files and tables name it."""


def make_posterior(kind: str, **settings: Any) -> MarginPosterior:
    """Return an unfitted estimator of a class's posterior given the margin of a machine.

    Parameters
    ----------
    kind : str
        A key of ``POSTERIORS``: "newton" and "platt" for sigmoids, "isotonic", and others.
    **settings
        Settings of that kind.

    Returns
    -------
    MarginPosterior

    Raises
    ------
    ConfigError
        For a kind not in ``POSTERIORS`` or an unknown setting.

    Examples
    --------
    >>> import numpy as np, pipeline
    >>> sigmoid = pipeline.make_posterior("newton").fit(np.array([-2.0, -1.0, 1.0, 2.0]), [0, 1, 0, 1])
    >>> bool(sigmoid.probability(np.array([3.0]))[0] > 0.5)
    True
    """
    if not isinstance(kind, str) or kind not in POSTERIORS:
        raise ConfigError(f"posterior: kind is one of {', '.join(POSTERIORS)}, got {kind!r}")
    try:
        return POSTERIORS[kind](**settings)
    except TypeError as error:
        raise ConfigError(f"posterior {kind!r}: {str(error).rpartition('() ')[2]}") from None
