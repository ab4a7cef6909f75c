"""The command line of evaluations: ``python -m seeupo_recipe.study.evaluation`` (``make eval``)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from seeupo_recipe.agents.endpoint import ChatEndpoint, EndpointError
from seeupo_recipe.compose import compose_config, options
from seeupo_recipe.config import RunConfig
from seeupo_recipe.envs.base import Benchmark, load_benchmark
from seeupo_recipe.records.run import RecordError
from seeupo_recipe.runs import ROOT
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.study.evaluation.session import EndpointPlayer, Evaluation, LocalPlayer, Player, open_evaluation
from seeupo_recipe.study.evaluation.tables import evaluation_document
from seeupo_recipe.study.spec import nearest

INTERRUPTED_CODE = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate; returns the exit status: 0, 1 if the endpoint failed, 2 for wrong arguments, 130 on Ctrl-C."""
    parsed = _parser().parse_args(arguments)
    try:
        _run(parsed)
    except (ConfigError, RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except EndpointError as error:
        print(f"error: {error}; what was played is kept, the same command goes on from there", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED_CODE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m seeupo_recipe.study.evaluation", description=__doc__)
    parser.add_argument("items", nargs="*", metavar="key=value", help="Hydra overrides, as for training")
    parser.add_argument("--bench", default="vaulthop", help="a file of recipes/benchmark")
    parser.add_argument(
        "--model", required=True, help="a file of recipes/model, a model's folder, or an endpoint's URL"
    )
    parser.add_argument("--model-name", default=os.environ.get("MODEL_NAME"), help="model at the endpoint")
    parser.add_argument("--k", type=int, default=4, help="samples per task")
    parser.add_argument("--split", help="default: the recipe's test split")
    parser.add_argument("--tasks", default="", help="number of tasks, or task ids with commas; default: all")
    parser.add_argument("--concurrency", type=int, default=32, help="episodes at a time")
    parser.add_argument("--out", type=Path, help="folder of the record; default: results/eval/<what is evaluated>")
    return parser


def _run(parsed: argparse.Namespace) -> None:
    if parsed.concurrency < 1:
        raise ConfigError(f"CONCURRENCY={parsed.concurrency}: give a number from 1")
    if parsed.bench not in options("benchmark"):
        raise ConfigError(f"BENCH={parsed.bench}: {nearest(parsed.bench, options('benchmark'))}")
    endpoint = None
    if "://" in parsed.model:
        endpoint = ChatEndpoint(parsed.model, parsed.model_name, connections=parsed.concurrency)
        chosen = [f"model.name='{endpoint.model}'", f"model.path='{endpoint.url}'"]
    else:
        chosen = _local_model(parsed.model)
    config = _config(parsed, chosen)
    benchmark = load_benchmark(config.benchmark.name, **config.benchmark.options)
    split = parsed.split or config.benchmark.test_split
    tasks = _tasks(benchmark, split, parsed.tasks)
    player = _player(endpoint, config, parsed.concurrency)
    evaluation = open_evaluation(config, benchmark, split, tasks, player.weights, parsed.out)
    with evaluation.record.locked():
        missing = len(evaluation.missing())
        for _ in track(evaluation.run(player), total=missing, description="episodes", console=Console(stderr=True)):
            pass
        _show(evaluation)


def _player(endpoint: ChatEndpoint | None, config: RunConfig, concurrency: int) -> Player:
    """Who plays.

    Raises:
        ConfigError: If a local model's weights are not there, or it is no chat model.
    """
    if endpoint is not None:
        return EndpointPlayer(endpoint, config, concurrency)
    folder = ROOT / config.model_path
    if not folder.is_dir():
        raise ConfigError(
            f"MODEL={config.model.name}: no weights in {config.model_path}; a mini model needs make warm-start, "
            "a larger one a server whose URL is given as MODEL"
        )
    try:
        return LocalPlayer(folder, config, concurrency)
    except ValueError as error:
        raise ConfigError(f"MODEL={config.model.name}: {error}") from None


def _local_model(model: str) -> list[str]:
    """Overrides that choose a recipe's model or a folder.

    Raises:
        ConfigError: If ``model`` is neither.
    """
    if model in options("model"):
        return [f"model={model}"]
    folder = Path(model).resolve()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"MODEL={model}: neither a URL, nor a folder with a config.json, nor a recipe: "
            f"{nearest(model, options('model'))}"
        )
    return [f"model.name='{folder.parent.name if folder.name == 'export' else folder.name}'", f"model.path='{folder}'"]


def _config(parsed: argparse.Namespace, chosen: Sequence[str]) -> RunConfig:
    if parsed.k < 1:
        raise ConfigError(f"K={parsed.k}: give a number from 1")
    for item in parsed.items:
        if "=" not in item:
            raise ConfigError(f"{item!r} is not of the form key=value")
    fixed = ["backend=lab", "algorithm=base", f"benchmark={parsed.bench}", f"evaluation.samples_per_task={parsed.k}"]
    return compose_config([*fixed, *chosen, *parsed.items])


def _tasks(benchmark: Benchmark, split: str, selection: str) -> Sequence[str]:
    """The chosen task ids of a split.

    Raises:
        ConfigError: For an unknown split or task.
    """
    try:
        known = list(benchmark.task_ids(split))
    except ValueError as error:
        raise ConfigError(f"SPLIT={split}: {error}") from None
    if not selection:
        return known
    if selection.isdecimal() and int(selection) > 0:
        return known[: int(selection)]
    tasks = [task for task in selection.split(",") if task]
    for task in tasks:
        if task not in known:
            raise ConfigError(f"TASKS={task}: not in split {split}; {nearest(task, known)}")
    return tasks


def _show(evaluation: Evaluation) -> None:
    """Write ``evaluation.md`` and the CSV files beside the record, and print the tables."""
    config, sampling = evaluation.config, evaluation.config.evaluation
    intro = [
        f"Model {config.model.name}; {len(evaluation.tasks)} tasks of split {evaluation.split}, {evaluation.k} samples "
        f"each, temperature {sampling.temperature:g}, top-p {sampling.top_p:g}; at most {config.benchmark.max_turns} "
        "assistant messages.",
        f"Benchmark version: {evaluation.benchmark.version}.",
    ]
    title = f"{evaluation.benchmark.name}: {config.model.name}"
    document = evaluation_document(evaluation.rows(), evaluation.k, name=title, intro=intro)
    for name, text in document.files().items():
        (evaluation.record.folder / name).write_text(text)
    print(document.markdown())
    print(f"record, transcripts and tables: {evaluation.record.folder}")


if __name__ == "__main__":
    sys.exit(main())
