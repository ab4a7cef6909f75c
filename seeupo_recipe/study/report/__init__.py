"""One self-contained HTML page with every table, figure, verdict and transcript of a scale."""

from seeupo_recipe.study.report.page import build_report

__all__ = ["build_report"]
