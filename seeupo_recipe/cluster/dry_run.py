"""Every cell composed and checked, then one cell per benchmark and algorithm trained for two iterations on the CPU.

The algorithm's settings, T and G are those of the real cell. Model, tokenizer, lengths, batch and machine are not; the
report lists every setting that differs.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seeupo_recipe.cluster.cell_process import Outcome, run_in_process
from seeupo_recipe.cluster.cells import Cell, verl_tree
from seeupo_recipe.cluster.environments import check_environment
from seeupo_recipe.cluster.shape import model_shape
from seeupo_recipe.cluster.standin import benchmark_actions, save_standin
from seeupo_recipe.cluster.validate import validate
from seeupo_recipe.compose import compose_config
from seeupo_recipe.config import BenchmarkConfig, ModelConfig, RunConfig
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.runs import outputs_root
from seeupo_recipe.strict import ConfigError

ITERATIONS, TASKS = 2, 2
PROMPT, MESSAGE, OBSERVATION = 3000, 24, 60
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
CPU = {
    "VERL_PLATFORM": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
CELL_SECONDS = 420
DRIFT = 1e-4
UNPATHED = ("seeupo_run", "data.seeupo_run", "trainer.experiment_name", "trainer.default_local_dir")


@dataclass(frozen=True)
class DryCell:
    """A cell and the small config that stands for it on the CPU."""

    cell: Cell
    config: RunConfig


@dataclass
class Report:
    """What was done.

    Attributes:
        checked: Names of the cells that verl and the plugin accept.
        refused: Name and reason of those they do not.
        not_run: Name and reason of cells whose environment is not set up here.
        runs: Cell name -> facts of its two iterations.
        failed: Cell name -> what went wrong.
        differences: verl key -> (value of the real cell, value here), for one cell that ran.
    """

    checked: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.refused and not self.failed


def check_all(cells: Sequence[Cell], report: Report) -> None:
    """Compose and check every cell, with a stand-in for the files of its model."""
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            family = model_shape(cell.config).family
            model = Path(folder) / family
            if not model.exists():
                save_standin(model, (), family, **SIZES)
            try:
                validate(cell.config, model)
            except ConfigError as error:
                report.refused[cell.name] = str(error)
            else:
                report.checked.append(cell.name)


def representatives(cells: Sequence[Cell]) -> list[Cell]:
    """One cell per benchmark and row that trains, taking turns between the models."""
    models = list(dict.fromkeys(cell.config.model.name for cell in cells))
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.config.training.iterations:
            groups.setdefault((cell.config.benchmark.name, cell.row), []).append(cell)
    chosen = []
    for number, group in enumerate(groups.values()):
        wanted = models[number % len(models)]
        chosen.append(next((c for c in group if c.config.model.name == wanted), group[0]))
    return chosen


def shrink(cell: Cell, folder: Path) -> DryCell:
    """The small config of a cell; writes its stand-in model under ``folder``.

    Raises:
        ConfigError: If the benchmark's environment is not set up.
    """
    real = cell.config
    family = model_shape(real).family
    model = folder / f"{real.benchmark.name}-{family}"
    benchmark = _reachable_benchmark(real.benchmark, model)
    if not model.exists():
        save_standin(model, benchmark_actions(benchmark.name), family, **SIZES)
    check_environment(benchmark)
    config = dataclasses.replace(
        real,
        model=ModelConfig(f"standin-{family}", str(model), real.model.template, real.model.chat_template_kwargs),
        benchmark=benchmark,
        training=dataclasses.replace(real.training, iterations=ITERATIONS, tasks_per_iteration=TASKS),
        algorithm=dataclasses.replace(
            real.algorithm, critic=dataclasses.replace(real.algorithm.critic, path=None)
        ),
        evaluation=dataclasses.replace(real.evaluation, samples_per_task=1, every=0),
        verl=_cpu_tree(real),
    )
    return DryCell(cell, config)


def _reachable_benchmark(real: BenchmarkConfig, model: Path) -> BenchmarkConfig:
    """The real benchmark with short lengths; for AppWorld without its official data, our own tasks on its engine."""
    small = {"max_prompt_tokens": PROMPT, "max_new_tokens": MESSAGE}
    options = dict(real.options)
    for option in ("observation_chars", "observation_tokens"):
        if option in options:
            options[option] = OBSERVATION
    if "tokenizer" in options:
        options["tokenizer"] = str(model)
    candidates = [dataclasses.replace(real, options=options, **small)]
    if real.name == "appworld":
        mini = {"reward": options["reward"], "max_turns": real.max_turns, "observation_tokens": OBSERVATION}
        candidates.append(dataclasses.replace(real, name="appworld-mini", options=mini, **small))
    reasons = []
    for candidate in candidates:
        try:
            check_environment(candidate, episode=False)
        except ConfigError as error:
            reasons.append(str(error))
        else:
            return candidate
    raise ConfigError("; ".join(reasons))


def _cpu_tree(real: RunConfig) -> dict[str, Any]:
    """The mini scale's verl settings, with what the real cell sets about the computation itself."""
    mini = compose_config(["scale=mini"]).verl
    model = real.verl["actor_rollout_ref"]["model"]
    kept = {key: model[key] for key in ("use_fused_kernels", "fused_kernel_options", "enable_gradient_checkpointing")}
    tree = OmegaConf.merge(mini, {"actor_rollout_ref": {"model": kept}, "seeupo": real.verl["seeupo"]})
    tree.ray_kwargs.ray_init.num_gpus = 2  # as many pools as PPO has; a pool is one process here
    for section in (tree.actor_rollout_ref.actor, tree.critic):
        for key in ("ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu"):
            section.pop(key, None)
    return OmegaConf.to_container(tree)


def differences(dry: DryCell) -> dict[str, tuple[Any, Any]]:
    """Every key of verl's config that differs between the real cell and the small one, paths of the run aside."""
    from seeupo_recipe.verl_plugin.translate import flatten

    real, small = (flatten(OmegaConf.to_container(verl_tree(c), resolve=False)) for c in (dry.cell.config, dry.config))
    keys = [key for key in sorted({*real, *small}) if not key.startswith(UNPATHED)]
    return {key: (real.get(key), small.get(key)) for key in keys if real.get(key) != small.get(key)}


def facts(record: RunRecord, config: RunConfig) -> dict[str, Any]:
    """What two iterations showed; raises if they did not do what the algorithm says.

    Raises:
        AssertionError: With the first thing that is wrong.
    """
    lines = record.metrics()
    assert record.finished and len(lines) == ITERATIONS, f"{len(lines)} of {ITERATIONS} iterations were recorded"
    expected = TASKS * config.training.group_size
    for line in lines:
        played = line["train/trajectories"] + line["train/environment_failures"]
        assert played == expected, f"{played} of {expected} trajectories came back"
        steps = line["update/optimizer_steps"]
        wanted = len(line["order"]) if config.algorithm.name == "seeupo" else 1
        assert steps == wanted, f"{steps} optimizer steps instead of {wanted}"
        drift = line["update/rollout_drift"]
        assert drift < DRIFT, f"rollout and trainer log-probabilities differ by {drift:.2g}"
    evaluations = len(record.evaluations())
    return {
        "seconds": round(sum(line["timing_s/step"] for line in lines) / ITERATIONS, 1),
        "turns": max(max(line["order"]) for line in lines) if config.algorithm.name == "seeupo" else None,
        "mean_turns": round(sum(line["train/turns_mean"] for line in lines) / ITERATIONS, 1),
        "rows": [line["update/rows"] for line in lines],
        "steps": [line["update/optimizer_steps"] for line in lines],
        "drift": max(line["update/rollout_drift"] for line in lines),
        "failures": sum(line["train/environment_failures"] for line in lines),
        "evaluated": evaluations,
    }


def dry_run(cells: Sequence[Cell], report: Report, *, train: bool = True, say: Any = print) -> Report:
    """Check all ``cells`` and train the representatives; ``say`` gets a line per step."""
    check_all(cells, report)
    say(f"{len(report.checked)} of {len(cells)} cells composed and accepted by verl's dataclasses and the plugin")
    if not train:
        return report
    folder = outputs_root() / "dry-run"
    with tempfile.TemporaryDirectory() as models:
        for cell in representatives(cells):
            try:
                dry = shrink(cell, Path(models))
            except ConfigError as error:
                report.not_run[cell.name] = str(error)
                say(f"{cell.name}: checked, not run: {error}")
                continue
            report.differences = report.differences or differences(dry)
            outcome = run_in_process(dry.config, folder / cell.name.replace(" ", "--"), CPU, timeout=CELL_SECONDS)
            _take(report, dry, outcome, say)
    return report


def _take(report: Report, dry: DryCell, outcome: Outcome, say: Any) -> None:
    name = dry.cell.name
    try:
        if outcome.error or outcome.record is None:
            raise AssertionError(outcome.error)
        report.runs[name] = {"benchmark": dry.config.benchmark.name, **facts(outcome.record, dry.config)}
        say(f"{name}: {ITERATIONS} iterations in {outcome.seconds:.0f} s with start and evaluation")
    except AssertionError as error:
        report.failed[name] = f"{error} (log: {outcome.log})"
        say(f"{name}: FAILED: {report.failed[name]}")
