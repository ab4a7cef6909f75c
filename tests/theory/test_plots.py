"""Every figure is drawn from its games, with finite data."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from seeupo_recipe.theory import plots

QUICK = ("orders", "bias", "drift", "length", "shared")


@pytest.mark.parametrize("name", QUICK)
def test_figures_show_finite_curves_with_labels(name):
    figure = plots.FIGURES[name]()
    for axes in figure.axes:
        assert axes.get_xlabel() and axes.get_ylabel() and axes.get_title()
        assert axes.lines
        for line in axes.lines:
            assert np.isfinite(np.asarray(line.get_ydata(), dtype=float)).all()
    plt.close(figure)


@pytest.mark.slow
def test_all_figures_are_written_as_png_and_pdf(tmp_path):
    written = plots.draw_all(tmp_path)
    assert {p.name for p in written} == {f"{n}.{s}" for n in plots.FIGURES for s in ("png", "pdf")}
    assert all(p.stat().st_size > 5000 for p in written)
