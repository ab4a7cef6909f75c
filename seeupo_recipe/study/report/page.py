"""Gather what the report shows and fill its template; equal records give equal bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from seeupo_recipe.algo import ALGORITHM_VERSION
from seeupo_recipe.records.run import FAILED, FINISHED, INTERRUPTED
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.spec import Study, make_target
from seeupo_recipe.study.store import NOT_RUN, RecordedRun, Store
from seeupo_recipe.study.tables.document import Document
from seeupo_recipe.study.transcripts import read_transcripts

TRANSCRIPT_TASKS = 4
TRANSCRIPT_SAMPLES = 2


def build_report(
    scale: str,
    studies: Mapping[str, Study],
    blocks: Mapping[str, Sequence[Block]],
    documents: Sequence[Document],
    figures: Sequence[tuple[str, Path]],
    store: Store,
) -> str:
    """The page's HTML.

    Args:
        scale: Scale of the runs.
        studies: Studies by name.
        blocks: Their blocks by name.
        documents: Tables and the comparison, in the order in which they are shown.
        figures: Caption and PNG file of every figure.
        store: All records, for provenance and what was left out.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("seeupo_recipe.study.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html.jinja").render(
        scale=scale,
        algorithm_version=ALGORITHM_VERSION,
        documents=documents,
        figures=[{"caption": caption, "source": _data_uri(path)} for caption, path in figures],
        states=_states(studies, blocks),
        problems=store.problems,
        provenance=_provenance(store),
        commands=_commands(studies, scale),
        transcripts=_script_json(_transcripts(store)),
    )


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def _script_json(value: Any) -> str:
    """JSON that cannot close its script element, whatever a model wrote into it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _states(studies: Mapping[str, Study], blocks: Mapping[str, Sequence[Block]]) -> list[dict[str, Any]]:
    """How many runs of each study's own cells are in which state, per backend and model."""
    rows = []
    for name, study in studies.items():
        for block in blocks[name] if study.cells_of is None else ():
            cells = block.cells.values()
            counts = {state: sum(c.count(state) for c in cells) for state in (FINISHED, FAILED, INTERRUPTED, NOT_RUN)}
            rows.append({"study": study.title, "backend": block.backend, "model": block.model, "counts": counts})
    return rows


def _provenance(store: Store) -> list[dict[str, str]]:
    """One line per distinct set of versions, commit and hardware, with the number of its runs."""
    counted: dict[tuple[str, ...], int] = {}
    for run in store.all:
        versions = run.manifest.get("versions", {})
        key = (
            run.config["backend"],
            run.config["benchmark"]["name"],
            run.context.benchmark_version,
            ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
            _commit(run),
            run.hardware,
        )
        counted[key] = counted.get(key, 0) + 1
    names = ("backend", "benchmark", "version", "packages", "commit", "machine")
    return [{**dict(zip(names, key, strict=True)), "runs": str(n)} for key, n in sorted(counted.items())]


def _commit(run: RecordedRun) -> str:
    commit, _, dirty = (run.manifest.get("commit") or "unknown").partition("+")
    return commit[:12] + ("+" + dirty if dirty else "")


def _commands(studies: Mapping[str, Study], scale: str) -> list[tuple[str, str]]:
    """The command that runs what is missing of each study and shows it."""
    return [
        (study.title, f"make {make_target(study)} SCALE={scale} BACKEND={study.defaults.backend}")
        for study in studies.values()
    ]


def _transcripts(store: Store) -> list[dict[str, Any]]:
    """A few episodes of the lowest finished seed of every cell; the untrained policy first."""
    finished = sorted((run for run in store.all if run.state == FINISHED), key=lambda run: (-run.seed, run.run_id))
    lowest = {run.key: run for run in finished}.values()
    shown = []
    for run in sorted(lowest, key=lambda r: (r.config["benchmark"]["name"], r.iterations > 0, r.run_id)):
        chosen = _chosen(run)
        if chosen:
            shown.append({"run": run.run_id, "name": _run_name(run), "group": _group(run), "episodes": chosen})
    return shown


def _chosen(run: RecordedRun) -> list[dict[str, Any]]:
    """The first tasks of every split, the first and last iteration, the first samples."""
    found = read_transcripts(run.record.folder)
    tasks: dict[str, list[str]] = {}
    ends: dict[str, set[int]] = {}
    for t in found:
        tasks.setdefault(t.split, [])
        if t.task_id not in tasks[t.split]:
            tasks[t.split].append(t.task_id)
        ends.setdefault(t.split, set()).add(t.iteration)
    return [
        t.plain()
        for t in found
        if t.task_id in tasks[t.split][:TRANSCRIPT_TASKS]
        and t.iteration in (min(ends[t.split]), max(ends[t.split]))
        and t.sample < TRANSCRIPT_SAMPLES
    ]


def _group(run: RecordedRun) -> str:
    """Runs of one group played the same tasks with the same model."""
    config = run.config
    return f"{config['scale']}/{config['backend']}/{config['benchmark']['name']}/{config['model']['name']}"


def _run_name(run: RecordedRun) -> str:
    config = run.config
    words = [config["benchmark"]["name"], config["model"]["name"], config["backend"], config["algorithm"]["name"]]
    labels = run.manifest.get("labels", {})
    if labels.get("variant"):
        words[-1] = labels["variant"]
    return " ".join([*words, f"seed {run.seed}"])
