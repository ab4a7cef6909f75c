"""The configuration of one run: everything that defines its result, typed and checked.

Composed from ``recipes/`` by :mod:`seeupo_recipe.compose`. Both backends read the same config; the verl
backend also takes the keys under ``verl`` (verl's own config tree) as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings, resolve_settings
from seeupo_recipe.strict import ConfigError, build_strict

BACKENDS = ("verl", "lab")
SCALES = ("mini", "single_gpu", "paper")
ALGORITHMS = ("base", "seeupo", "grpo", "gspo", "rloo", "reinforce_pp", "ppo")


@dataclass(frozen=True)
class ModelConfig:
    """The policy's initial weights.

    Attributes:
        name: Name in tables and run ids.
        path: Local folder or hub name; ``{benchmark}`` is replaced by the benchmark's name.
        template: Context template, ``react`` or ``reasoning_augmented``.
        chat_template_kwargs: Extra arguments of the tokenizer's chat template.
    """

    name: str
    path: str
    template: str = "react"
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchmarkConfig:
    """Tasks and the bounds of an episode.

    Attributes:
        name: One of ``seeupo_recipe.envs.base.BENCHMARK_NAMES``.
        options: Arguments of the benchmark's factory.
        train_split: Tasks that are trained on.
        validation_split: Tasks of the periodic evaluation.
        test_split: Tasks of the final evaluation.
        max_turns: Assistant messages per episode (T).
        max_prompt_tokens: Longest context.
        max_new_tokens: Longest assistant message.
        paper_name: The benchmark's name in the paper's tables, if it is one of the paper's.
    """

    name: str
    train_split: str
    validation_split: str
    test_split: str
    max_turns: int
    max_prompt_tokens: int
    max_new_tokens: int
    options: Mapping[str, Any] = field(default_factory=dict)
    paper_name: str | None = None


@dataclass(frozen=True)
class CriticConfig:
    """PPO's critic.

    Attributes:
        learning_rate: AdamW rate (release: 1e-5).
        gamma: Discount per token.
        lam: Lambda of GAE.
        value_clip: Range of the clipped value loss (verl's default 0.5).
        whiten: Whether advantages are whitened over the batch's tokens (verl does).
        level: ``token`` (a value before every token), or ``turn``: a value before every turn, GAE over turns
            and the sequence ratio of a turn (lab only; not in the paper). ``gamma`` and ``lam`` are then per turn.
        path: Initial weights, default the policy's; ``{benchmark}`` is replaced.
    """

    learning_rate: float = 1e-5
    gamma: float = 1.0
    lam: float = 1.0
    value_clip: float = 0.5
    whiten: bool = True
    level: str = "token"
    path: str | None = None


@dataclass(frozen=True)
class AlgorithmConfig:
    """Which method trains, and its choices.

    Attributes:
        name: ``seeupo``, a baseline, or ``base`` for the untrained policy.
        steps_per_iteration: Baselines: ``one``, ``matched`` or a number of optimizer steps.
        inner_epochs: Passes over each pool or part (ppo_epochs).
        inner_mini_batches: Optimizer steps per pass.
        seeupo: Choices of SeeUPO (``AlgorithmSettings``), with ``profile``.
        surrogate: Clip range and coefficients.
        critic: PPO only.
    """

    name: str = "seeupo"
    steps_per_iteration: str | int = "one"
    inner_epochs: int = 1
    inner_mini_batches: int = 1
    seeupo: Mapping[str, Any] = field(default_factory=dict)
    surrogate: SurrogateSettings = SurrogateSettings()
    critic: CriticConfig = CriticConfig()

    def settings(self) -> AlgorithmSettings:
        """SeeUPO's choices, profile expanded."""
        return resolve_settings(self.seeupo, where="algorithm.seeupo")


@dataclass(frozen=True)
class TrainingConfig:
    """Size and optimizer of the training.

    Attributes:
        iterations: Rollout-and-update rounds; 0 for ``base``.
        tasks_per_iteration: Tasks per round (B; paper: 32).
        group_size: Rollouts per task (G; paper: 8).
        optimizer: ``adamw``, or plain ``sgd`` (no momentum).
        learning_rate: The optimizer's rate (paper: 1e-6).
        weight_decay: Weight decay (release: 0.01).
        beta1: AdamW's first-moment decay.
        beta2: AdamW's second-moment decay.
        grad_clip: Bound on the gradient norm (release: 1.0).
        temperature: Of the rollouts (release: 0.9).
        adapters: What is trained: all weights (``none``), one LoRA for all turns (``shared``), or one LoRA per
            turn, so that no update moves another turn's policy (``per_turn``). LoRA is for the lab only.
        adapter_rank: Rank of a LoRA.
        checkpoint_every: Iterations between checkpoints.
    """

    iterations: int
    tasks_per_iteration: int
    group_size: int
    learning_rate: float
    optimizer: str = "adamw"
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    grad_clip: float = 1.0
    temperature: float = 1.0
    adapters: str = "none"
    adapter_rank: int = 8
    checkpoint_every: int = 10


@dataclass(frozen=True)
class EvaluationConfig:
    """How policies are judged.

    Attributes:
        samples_per_task: k of avg@k and pass@k (paper: 4).
        temperature: Sampling temperature; 0 is refused with more than one sample.
        top_p: Nucleus sampling.
        top_k: Top-k sampling, -1 for off.
        every: Iterations between evaluations on the validation split; 0 for none.
        periodic_samples: Samples per task of the periodic evaluation.
    """

    samples_per_task: int = 4
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    every: int = 0
    periodic_samples: int = 1


@dataclass(frozen=True)
class RunConfig:
    """One run. ``verl`` holds keys of verl's own config tree, set as they are."""

    scale: str
    backend: str
    seed: int
    model: ModelConfig
    benchmark: BenchmarkConfig
    algorithm: AlgorithmConfig
    training: TrainingConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    verl: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _choice("scale", self.scale, SCALES)
        _choice("backend", self.backend, BACKENDS)
        _choice("algorithm.name", self.algorithm.name, ALGORITHMS)
        _choice("algorithm.critic.level", self.algorithm.critic.level, ("token", "turn"))
        _choice("training.optimizer", self.training.optimizer, ("adamw", "sgd"))
        _choice("training.adapters", self.training.adapters, ("none", "shared", "per_turn"))
        self._check_sizes()
        self._check_algorithm()
        self._check_lab_only()
        evaluation = self.evaluation
        if evaluation.temperature == 0 and max(evaluation.samples_per_task, evaluation.periodic_samples) > 1:
            raise ConfigError(
                "evaluation.temperature=0 makes all samples of a task equal: set samples_per_task=1, or a temperature"
            )

    def _check_sizes(self) -> None:
        training = self.training
        if (training.iterations == 0) != (self.algorithm.name == "base"):
            raise ConfigError(
                f"algorithm.name={self.algorithm.name} with training.iterations={training.iterations}: "
                "0 iterations are for algorithm=base, and only for it"
            )
        for name, value in (
            ("training.tasks_per_iteration", training.tasks_per_iteration),
            ("training.checkpoint_every", training.checkpoint_every),
            ("training.adapter_rank", training.adapter_rank),
            ("algorithm.inner_epochs", self.algorithm.inner_epochs),
            ("algorithm.inner_mini_batches", self.algorithm.inner_mini_batches),
            ("evaluation.samples_per_task", self.evaluation.samples_per_task),
        ):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
        if training.group_size < 2:
            raise ConfigError(f"training.group_size={training.group_size}: a group mean needs at least 2 rollouts")
        if training.temperature <= 0:
            raise ConfigError("training.temperature: rollouts of a group must differ, so it must be above 0")

    def _check_algorithm(self) -> None:
        algorithm = self.algorithm
        settings = algorithm.settings()
        if algorithm.name == "seeupo":
            if algorithm.steps_per_iteration != "one":
                raise ConfigError(
                    "algorithm.steps_per_iteration is for baselines; SeeUPO takes one step per turn pool "
                    "(inner_epochs and inner_mini_batches add more)"
                )
            rollouts = self.training.tasks_per_iteration * self.training.group_size
            if settings.correction_alignment == "balanced_position" and rollouts % settings.balance_partitions:
                raise ConfigError(
                    f"algorithm.seeupo.balance_partitions={settings.balance_partitions} does not divide the "
                    f"{rollouts} rollouts of an iteration"
                )
        elif algorithm.seeupo.keys() - {"profile"}:
            raise ConfigError(f"algorithm.seeupo has no effect on algorithm.name={algorithm.name}: remove it")
        steps = algorithm.steps_per_iteration
        if steps not in ("one", "matched") and not (isinstance(steps, int) and steps >= 1):
            raise ConfigError(f"algorithm.steps_per_iteration={steps!r}: choose one, matched or a number from 1")

    def _check_lab_only(self) -> None:
        for name, value, neutral in (
            ("algorithm.critic.level", self.algorithm.critic.level, "token"),
            ("training.adapters", self.training.adapters, "none"),
        ):
            if value != neutral and self.backend != "lab":
                raise ConfigError(f"{name}={value} runs in the lab only: set backend=lab (BACKEND=lab)")
        if self.training.adapters == "per_turn" and (
            self.algorithm.name != "seeupo" or self.algorithm.settings().order == "joint"
        ):
            raise ConfigError(
                "training.adapters=per_turn needs updates of one turn at a time: "
                "use algorithm=seeupo with an order other than joint"
            )

    @property
    def model_path(self) -> str:
        return self.model.path.replace("{benchmark}", self.benchmark.name)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with SeeUPO's profile expanded to every single choice."""
        plain = dataclasses.asdict(self)
        if self.algorithm.name == "seeupo":
            plain["algorithm"]["seeupo"] = self.algorithm.settings().as_dict()
        return plain


def build_config(values: Mapping[str, Any]) -> RunConfig:
    """Build and check a config from composed values.

    Raises:
        ConfigError: With one line that says what to change.
    """
    return build_strict(RunConfig, values, where="config")


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}: choose one of {', '.join(allowed)}")
