"""What `tables`, `figures`, `compare` and `report` write, and where; none of it trains."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from seeupo_recipe.runs import ROOT, outputs_root, results_root
from seeupo_recipe.study import paper
from seeupo_recipe.study.cells import Selection
from seeupo_recipe.study.collect import Block, collect
from seeupo_recipe.study.compare import comparison
from seeupo_recipe.study.spec import Study, load_study, study_names
from seeupo_recipe.study.store import Store, load_store
from seeupo_recipe.study.tables.document import Document, csv_text
from seeupo_recipe.study.tables.render import document


def plots_root() -> Path:
    """Folder of figures: ``SEEUPO_PLOTS`` or ``plots/`` of the checkout."""
    return Path(os.environ.get("SEEUPO_PLOTS", ROOT / "plots"))


@dataclass(frozen=True)
class Builder:
    """Builds what one scale's records show.

    Attributes:
        scale: The scale.
        names: Studies, all of ``recipes/study`` if empty.
        overrides: Hydra overrides of the cells that are looked for; with any, what is built goes to
            ``outputs/`` so that it cannot be taken for the standard result.
    """

    scale: str
    names: Sequence[str] = ()
    overrides: tuple[str, ...] = ()
    _blocks: dict[str, list[Block]] = field(default_factory=dict)
    _drawn: list[Path] = field(default_factory=list)

    @cached_property
    def studies(self) -> Mapping[str, Study]:
        """The asked studies that exist at this scale, by name."""
        loaded = {study.name: study for study in map(load_study, self.names or study_names())}
        if self.names:
            for study in loaded.values():
                study.matrix(self.scale)
        return {name: study for name, study in loaded.items() if self.scale in study.scales}

    @cached_property
    def store(self) -> Store:
        return load_store(self.scale)

    def blocks(self, study: Study) -> list[Block]:
        """A study's blocks; those of the study whose cells it shows are shared."""
        if study.name not in self._blocks:
            self._blocks[study.name] = collect(study, Selection(self.scale, overrides=self.overrides), self.store)
        return self._blocks[study.name]

    @property
    def _results(self) -> Path:
        return (outputs_root() / "custom" if self.overrides else results_root()) / self.scale

    @property
    def _plots(self) -> Path:
        return outputs_root() / "custom" / self.scale / "plots" if self.overrides else plots_root() / self.scale

    @cached_property
    def documents(self) -> list[Document]:
        """Tables of the studies that have one."""
        return [
            document(study, self.scale, self.blocks(study), self.store.problems)
            for study in self.studies.values()
            if study.table
        ]

    def tables(self) -> list[Path]:
        """Write every table as Markdown and CSV."""
        return [path for doc in self.documents for path in _write(self._results / "tables", doc)]

    def figures(self, *, redraw: bool = True) -> list[Path]:
        """Write every figure as PNG and PDF, with its data as CSV; see ``draw_studies``."""
        from seeupo_recipe.study.figures.draw import draw_studies

        shown = [(study, self.blocks(study)) for study in self.studies.values() if study.figures]
        self._drawn[:] = draw_studies(shown, self.scale, self._plots, redraw=redraw)
        return self._drawn

    def compare(self) -> list[Path]:
        """Write the comparison with the paper, and what is computed of the paper's own numbers."""
        written = _write(self._results, self._comparison)
        for name, frame in (
            ("grim", paper.grim()),
            ("averages", paper.averages()),
            ("intervals", paper.intervals()),
            ("differences", paper.differences()),
        ):
            path = results_root() / "paper" / f"{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(csv_text(frame))
            written.append(path)
        return written

    def report(self) -> list[Path]:
        """Write the report, with the figures of ``plots/``, drawn where they are missing or out of date."""
        from seeupo_recipe.study.report import build_report

        drawn = [path for path in self._drawn or self.figures(redraw=False) if path.suffix == ".png"]
        captions = {figure.name: figure.title for study in self.studies.values() for figure in study.figures}
        figures = [(_caption(path, captions), path) for path in drawn]
        blocks = {name: self.blocks(study) for name, study in self.studies.items()}
        documents = [self._comparison, *self.documents]
        page = build_report(self.scale, self.studies, blocks, documents, figures, self.store)
        path = self._results / "report.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)
        return [path]

    @cached_property
    def _comparison(self) -> Document:
        whole = Builder(self.scale, (), self.overrides, self._blocks) if self.names else self
        return comparison(whole.studies, {name: self.blocks(s) for name, s in whole.studies.items()}, self.scale)


def _caption(path: Path, captions: Mapping[str, str]) -> str:
    name, _, backend = path.stem.rpartition("-")
    return f"{name}, through {backend}: {captions[name]}"


def _write(folder: Path, doc: Document) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in doc.files().items():
        (folder / name).write_text(text)
        written.append(folder / name)
    return written
