"""The command line of studies: ``python -m seeupo_recipe.study``.

    run STUDY [key=value ...]      train and evaluate what is missing, then show the study's table or figures
    train [key=value ...]          train and evaluate one run
    tables [STUDY ...]             results/<scale>/tables: Markdown and CSV
    figures [STUDY ...]            plots/<scale>: PNG, PDF and CSV
    compare                        results/<scale>/comparison.md: verdicts on the paper's claims
    report                         results/<scale>/report.html: one page with everything; the four can be named
                                   together, which reads the records once
    status [STUDY ...]             which cells are finished, failed, interrupted or not run
    list                           the studies

Only ``run`` and ``train`` train; the others read records, and need neither torch nor verl nor an environment package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from seeupo_recipe.config import BACKENDS, SCALES
from seeupo_recipe.records.run import RecordError
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.study.build import Builder
from seeupo_recipe.study.cells import Selection, parse_seeds
from seeupo_recipe.study.spec import load_study, make_target, study_names
from seeupo_recipe.study.store import NOT_RUN

INTERRUPTED_CODE = 130
PRODUCTS = {
    "tables": "tables of recorded runs",
    "figures": "figures of recorded runs",
    "compare": "verdicts on the paper's claims",
    "report": "one HTML page with everything",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 if a cell failed, 2 for wrong arguments, 130 on Ctrl-C."""
    parser = _parser()
    parsed, rest = parser.parse_known_args(arguments)
    if any(item.startswith("-") for item in rest) or not hasattr(parsed, "items"):
        parser.parse_args(arguments)
    else:
        parsed.items += rest
    try:
        if parsed.scale not in SCALES:
            raise ConfigError(f"SCALE={parsed.scale}: choose one of {', '.join(SCALES)}")
        if getattr(parsed, "backend", None) not in (None, *BACKENDS):
            raise ConfigError(f"BACKEND={parsed.backend}: choose one of {', '.join(BACKENDS)}")
        return parsed.action(parsed)
    except (ConfigError, RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED_CODE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m seeupo_recipe.study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="train and evaluate what is missing of a study")
    run.add_argument("study", help="name of a file in recipes/study, an alias, or the path of a YAML file")
    run.add_argument("items", nargs="*", metavar="key=value", help="Hydra overrides of every cell")
    run.add_argument("--backend", help="default: the study's")
    run.add_argument("--models", type=_names, default=(), help="comma-separated; default: the study's")
    run.add_argument("--benchmarks", type=_names, default=(), help="comma-separated; default: the study's")
    run.add_argument("--variants", type=_names, default=(), help="comma-separated; default: the study's")
    run.add_argument("--seeds", default="", help="number of seeds, or a list such as 0,4")
    run.add_argument("--workers", type=int, default=0, help="lab: cells at a time; default: one per core")
    run.add_argument("--dry", action="store_true", help="list the cells and an estimate of the time; run nothing")
    run.set_defaults(action=_run)

    train = commands.add_parser("train", help="train and evaluate one run")
    train.add_argument("items", nargs="*", metavar="key=value", help="Hydra overrides")
    for name, default in (("algorithm", "seeupo"), ("benchmark", "vaulthop"), ("model", "tiny-qwen3")):
        train.add_argument(f"--{name}", default=default)
    train.add_argument("--backend", default="verl")
    train.add_argument("--seed", default="0")
    train.set_defaults(action=_train)

    for name, help_text in {**PRODUCTS, "status": "state of every cell"}.items():
        command = commands.add_parser(name, help=help_text)
        command.add_argument("items", nargs="*", metavar="STUDY | key=value", help="default: all studies")
        command.set_defaults(action=_status if name == "status" else _build, command=name)
    commands.add_parser("list", help="the studies").set_defaults(action=_list)
    for command in commands.choices.values():
        command.add_argument("--scale", default="mini")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _builder(parsed: argparse.Namespace) -> Builder:
    overrides = tuple(item for item in parsed.items if "=" in item)
    return Builder(parsed.scale, [i for i in parsed.items if "=" not in i and i not in PRODUCTS], overrides)


def _build(parsed: argparse.Namespace) -> int:
    builder = _builder(parsed)
    for product in dict.fromkeys([parsed.command, *(item for item in parsed.items if item in PRODUCTS)]):
        for path in getattr(builder, product)():
            print(path)
    return 0


def _run(parsed: argparse.Namespace) -> int:
    from seeupo_recipe.study.plan import make_plan, show_plan
    from seeupo_recipe.study.runner import run_plan

    if parsed.workers < 0:
        raise ConfigError(f"--workers={parsed.workers}: give a number from 1, or leave it out")
    _check_overrides(parsed.items)
    study = load_study(parsed.study)
    selection = Selection(
        parsed.scale,
        parsed.backend,
        parsed.models,
        parsed.benchmarks,
        parsed.variants,
        parse_seeds(parsed.seeds) if parsed.seeds else (),
        tuple(parsed.items),
    )
    plan = make_plan(study, selection, workers=parsed.workers)
    show_plan(plan, every=parsed.dry)
    if parsed.dry:
        return 0
    failed = run_plan(plan)
    _show(parsed.study, selection)
    return 1 if failed else 0


def _train(parsed: argparse.Namespace) -> int:
    from seeupo_recipe.study.plan import make_plan, show_plan
    from seeupo_recipe.study.runner import run_plan
    from seeupo_recipe.study.single import single_study

    _check_overrides(parsed.items)
    if not parsed.seed.isdecimal():
        raise ConfigError(f"SEED={parsed.seed}: give one number from 0")
    study = single_study(
        scale=parsed.scale,
        backend=parsed.backend,
        model=parsed.model,
        benchmark=parsed.benchmark,
        algorithm=parsed.algorithm,
        overrides=tuple(parsed.items),
    )
    plan = make_plan(study, Selection(parsed.scale, seeds=(int(parsed.seed),)))
    show_plan(plan, every=False)
    failed = run_plan(plan)
    (job,) = plan.jobs
    if job.run.record.finished:
        rows = [r for r in job.run.record.evaluations() if r["split"] == job.run.config.benchmark.test_split]
        scores = [r["score"] for r in rows if r["failure"] is None]
        print(
            f"test score {sum(scores) / len(scores):.3f} over {len(scores)} episodes; record: {job.run.record.folder}"
        )
    return 1 if failed else 0


def _check_overrides(items: Sequence[str]) -> None:
    for override in items:
        if "=" not in override:
            raise ConfigError(f"{override!r} is not of the form key=value")


def _show(name: str, selection: Selection) -> None:
    """Write the study's table and figures, and print the table."""
    builder = Builder(selection.scale, [name], selection.overrides)
    for doc in builder.documents:
        print(doc.markdown(details=False))
    for path in [*builder.tables(), *builder.figures()]:
        print(path)


def _status(parsed: argparse.Namespace) -> int:
    builder = _builder(parsed)
    for study in builder.studies.values():
        if study.cells_of:
            continue
        print(f"{study.title} ({study.name})")
        for block in builder.blocks(study):
            for cell in block.cells.values():
                if cell.summary != NOT_RUN:
                    print(f"  {block.backend:5} {cell.cell.name:50} {cell.summary}")
            absent = sum(cell.summary == NOT_RUN for cell in block.cells.values())
            if absent:
                print(f"  {block.backend:5} {block.model}: {absent} of {len(block.cells)} cells not run")
    for problem in builder.store.problems:
        print(problem)
    return 0


def _list(parsed: argparse.Namespace) -> int:
    for name in study_names():
        study = load_study(name)
        print(f"{name:12} make {make_target(study):24} {study.title}. {study.question}")
    return 0
