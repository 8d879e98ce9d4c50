"""Figures of error rates and of calibration, at the column widths of a printed paper.

Each function takes scores, draws, and returns a Figure; ``save_figure`` writes it. The same scores give the
same SVG, byte for byte: no date, no random ids, text kept as text.
"""

from pipeline.plots.calibration import plot_bayes_error, plot_reliability
from pipeline.plots.det import det_grid, plot_det
from pipeline.plots.scores import plot_error_rates, plot_histogram
from pipeline.plots.style import save_figure

__all__ = [
    "det_grid",
    "plot_bayes_error",
    "plot_det",
    "plot_error_rates",
    "plot_histogram",
    "plot_reliability",
    "save_figure",
]
