"""The lab's training loop: one process, one thread, the same functions, episodes and records as verl's.

It exists for statistics: a 40-iteration run takes seconds, so that seeds, sweeps and ablations are cheap.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from seeupo_recipe.agents.episode import Limits, Trajectory
from seeupo_recipe.agents.facts import evaluation_rows, training_metrics, trajectory_facts
from seeupo_recipe.agents.rollout import play_batch
from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.algo.advantage import joint_advantages
from seeupo_recipe.algo.baselines import row_parts, step_count, trajectory_advantages
from seeupo_recipe.algo.gae import trajectory_gae, whiten
from seeupo_recipe.algo.sequential import plan_updates, sequential_update
from seeupo_recipe.envs.base import EpisodeKey, load_benchmark
from seeupo_recipe.lab.build import add_turn_policies, loss_form, make_critic, policy_optimizer
from seeupo_recipe.lab.policy import LabRow
from seeupo_recipe.lab.updater import LabUpdater
from seeupo_recipe.models.sampling import SamplingParams
from seeupo_recipe.models.tiny import load_model
from seeupo_recipe.records.run import FINISHED, RUNNING, finite
from seeupo_recipe.records.transcripts import Credit, TranscriptKeeper
from seeupo_recipe.runs import ROOT, Run
from seeupo_recipe.tasks import training_order


class LabTrainer:
    """Trains, evaluates and records one run."""

    def __init__(self, run: Run) -> None:
        config = run.config
        self.run, self.config = run, config
        self.benchmark = load_benchmark(config.benchmark.name, **config.benchmark.options)
        self.model, tokenizer = load_model(ROOT / config.model_path)
        self.template = ContextTemplate(tokenizer, config.model.template, dict(config.model.chat_template_kwargs))
        bounds = config.benchmark
        self.limits = Limits(bounds.max_turns, bounds.max_prompt_tokens, bounds.max_new_tokens)
        training = config.training
        reference = copy.deepcopy(self.model).eval() if config.algorithm.surrogate.kl_coefficient else None
        self.select = add_turn_policies(self.model, config)
        self.updater = LabUpdater(
            model=self.model,
            reference=reference,
            optimizer=policy_optimizer(self.model, config),
            grad_clip=training.grad_clip,
            temperature=training.temperature,
            pad_id=tokenizer.pad_token_id,
            form=loss_form(config),
            select=self.select,
        )
        self.critic = make_critic(config, tokenizer.pad_token_id) if config.algorithm.name == "ppo" else None
        self.numbers = {t: i for i, t in enumerate(self.benchmark.task_ids(bounds.train_split))}
        self.transcripts, self.credit = TranscriptKeeper(run.record, config, self.benchmark), Credit()
        self.iteration = 0

    # ---- the loop -------------------------------------------------------------------------------

    def fit(self) -> None:
        """Resume, train the remaining iterations, evaluate, and mark the run finished."""
        record, training = self.run.record, self.config.training
        self._resume()
        record.rewind(self.iteration)
        record.set_status(RUNNING, resumed_from=self.iteration)
        order = training_order(self.config, list(self.numbers))
        if self.iteration:
            self._evaluate_if_due()
        while self.iteration < training.iterations:
            metrics = self.train_iteration(self.iteration + 1, order[self.iteration])
            self.iteration += 1
            record.append_metrics(self.iteration, {"time": time.time(), **finite(metrics)})
            if self.iteration % training.checkpoint_every == 0 or self.iteration == training.iterations:
                self._save()
            self._evaluate_if_due()
        self._evaluate(self.config.benchmark.test_split, self.config.evaluation.samples_per_task)
        record.set_status(FINISHED)

    def train_iteration(self, iteration: int, tasks: Sequence[str]) -> dict[str, Any]:
        """Roll out, estimate advantages, update; returns the iteration's metrics."""
        started = time.perf_counter()
        keys = [
            EpisodeKey(self.config.seed, iteration, task, session)
            for task in sorted(tasks, key=self.numbers.__getitem__)
            for session in range(self.config.training.group_size)
        ]
        trajectories = self.rollout(keys, SamplingParams(self.config.training.temperature))
        rolled_out = time.perf_counter()
        tokens = self.updater.tokens
        before = (tokens.forward, tokens.backward)
        self.model.train()
        diagnostics = self.update(iteration, trajectories)
        finished = time.perf_counter()
        facts = {trajectory_id(t): trajectory_facts(t) for t in trajectories}
        self.transcripts.rollouts(facts, self.credit, iteration=iteration)
        return {
            **training_metrics(list(facts.values())),
            **diagnostics,
            "tokens/forward": tokens.forward - before[0],
            "tokens/backward": tokens.backward - before[1],
            "timing_s/gen": rolled_out - started,
            "timing_s/update_actor": finished - rolled_out,
            "timing_s/step": finished - started,
        }

    def rollout(self, keys: Sequence[EpisodeKey], params: SamplingParams) -> list[Trajectory]:
        """Play one episode per key with the present weights."""
        self.model.eval()
        return play_batch(self.benchmark, keys, self.model, self.template, self.limits, params, self.select)

    def update(self, iteration: int, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
        """All optimizer steps of one iteration."""
        played = [t for t in trajectories if t.outcome is not None and t.turns]
        rows = [row for t in played for row in turn_rows(t)]
        rewards = torch.tensor([t.outcome.reward for t in played], dtype=torch.float64)
        names = list(dict.fromkeys(t.key.task_id for t in played))
        groups = torch.tensor([names.index(t.key.task_id) for t in played])
        self.credit = Credit()
        metrics: dict[str, Any] = {"actor/entropy": self.updater.begin(rows), "update/rows": len(rows)}
        if self.config.algorithm.name == "seeupo":
            return metrics | self._update_sequentially(iteration, rows, played, rewards, groups)
        return metrics | self._update_at_once(iteration, rows, played, rewards, groups)

    # ---- SeeUPO and baselines -------------------------------------------------------------------

    def _update_sequentially(
        self,
        iteration: int,
        rows: Sequence[LabRow],
        played: Sequence[Trajectory],
        rewards: torch.Tensor,
        groups: torch.Tensor,
    ) -> dict[str, Any]:
        algorithm, settings = self.config.algorithm, self.config.algorithm.settings()
        advantages = joint_advantages(
            rewards,
            groups,
            normalization=settings.normalization,
            std_floor=settings.std_floor,
            clamp=settings.advantage_clamp,
        )
        plan = plan_updates(
            rows,
            settings,
            seed=self.config.seed,
            iteration=iteration,
            inner_mini_batches=algorithm.inner_mini_batches,
            horizon=self.config.benchmark.max_turns,
        )
        self.credit.advantages = by_id = dict(zip(map(trajectory_id, played), advantages.tolist(), strict=True))
        metrics = sequential_update(
            plan,
            by_id,
            self.updater,
            settings,
            inner_epochs=algorithm.inner_epochs,
            used_weights=self.credit.weights,
        )
        return {**metrics, "order": [update.turn + 1 for update in plan]}

    def _update_at_once(
        self,
        iteration: int,
        rows: Sequence[LabRow],
        played: Sequence[Trajectory],
        rewards: torch.Tensor,
        groups: torch.Tensor,
    ) -> dict[str, Any]:
        """A baseline: every optimizer step takes a part of the rows of all turns."""
        algorithm = self.config.algorithm
        steps = step_count(algorithm.steps_per_iteration, len({row.turn for row in rows}))
        parts = row_parts(len(rows), steps * algorithm.inner_mini_batches, seed=self.config.seed, iteration=iteration)
        place = {trajectory_id(t): i for i, t in enumerate(played)}
        weights, metrics = self._baseline_weights(rows, rewards, groups, place)
        stats: list[Mapping[str, float]] = []
        for _ in range(algorithm.inner_epochs):
            for part in parts:
                picked = [rows[i] for i in part]
                width = max(len(row.response_ids) for row in picked)
                weight = weights[part] if weights.dim() == 1 else weights[part, :width]
                stats.append(self.updater.step(picked, weight, denominator=len(picked), last=False))
        norms = [s["grad_norm"] for s in stats]
        sampled = sum(s["rows"] for s in stats)
        for key in ("clipped", "ratio_deviation", "kl_old", "kl_ref"):
            metrics[f"actor/{key}"] = sum(s[key] for s in stats) / sampled
        metrics.update(
            {
                "update/optimizer_steps": len(stats),
                "update/grad_norm_mean": sum(norms) / len(norms),
                "update/grad_norm_max": max(norms),
            }
        )
        return metrics

    def _baseline_weights(
        self, rows: Sequence[LabRow], rewards: torch.Tensor, groups: torch.Tensor, place: Mapping[str, int]
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Advantage of each row, (R,), or of each token for PPO, (R, L), after the critic's update."""
        index = torch.tensor([place[row.trajectory] for row in rows])
        if self.critic is None:
            advantages = trajectory_advantages(self.config.algorithm.name, rewards, groups)
            self.credit.advantages = dict(zip(place, advantages.tolist(), strict=True))
            return advantages[index], {}
        choices = self.config.algorithm.critic
        old, mask = self.critic.values(rows)
        advantages, returns = trajectory_gae(
            old,
            mask,
            rewards[index],
            [row.trajectory for row in rows],
            [row.turn for row in rows],
            gamma=choices.gamma,
            lam=choices.lam,
        )
        spread = returns[mask].var()
        metrics = {"critic/explained_variance": float(1 - (returns - old)[mask].var() / spread) if spread > 0 else 0.0}
        losses = self._update_critic(rows, old, returns)
        metrics["critic/loss"] = sum(losses) / len(losses)
        weights = whiten(advantages, mask) if choices.whiten else advantages
        return (weights[:, 0] if choices.level == "turn" else weights), metrics

    def _update_critic(self, rows: Sequence[LabRow], old: torch.Tensor, returns: torch.Tensor) -> list[float]:
        """The critic takes the same parts as the policy."""
        algorithm = self.config.algorithm
        steps = step_count(algorithm.steps_per_iteration, len({row.turn for row in rows}))
        parts = row_parts(
            len(rows), steps * algorithm.inner_mini_batches, seed=self.config.seed, iteration=self.iteration + 1
        )
        return [
            self.critic.step([rows[i] for i in part], old[part], returns[part])
            for _ in range(algorithm.inner_epochs)
            for part in parts
        ]

    # ---- evaluation and checkpoints -------------------------------------------------------------

    def _evaluate_if_due(self) -> None:
        evaluation = self.config.evaluation
        if evaluation.every and self.iteration % evaluation.every == 0:
            self._evaluate(self.config.benchmark.validation_split, evaluation.periodic_samples)

    def _evaluate(self, split: str, samples: int) -> None:
        done = self.run.record.evaluated(self.iteration, split)
        keys = [
            EpisodeKey(self.config.seed, 0, task, sample)
            for task in self.benchmark.task_ids(split)
            for sample in range(samples)
            if (task, sample) not in done
        ]
        choices = self.config.evaluation
        params = SamplingParams(choices.temperature, choices.top_p, choices.top_k)
        facts = [trajectory_facts(t) for t in self.rollout(keys, params)] if keys else []
        self.transcripts.evaluation(facts, iteration=self.iteration, split=split)
        self.run.record.append_evaluations(
            evaluation_rows(facts, self.benchmark, iteration=self.iteration, split=split)
        )

    @property
    def _checkpoint(self) -> Path:
        return self.run.outputs / "checkpoint.pt"

    def _save(self) -> None:
        state = {"iteration": self.iteration, "model": self.model.state_dict()}
        state["optimizer"] = self.updater.optimizer.state_dict()
        if self.critic is not None:
            state["critic"] = self.critic.critic.state_dict()
            state["critic_optimizer"] = self.critic.optimizer.state_dict()
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._checkpoint.with_suffix(".tmp")
        torch.save(state, temporary)
        os.replace(temporary, self._checkpoint)

    def _resume(self) -> None:
        if not self._checkpoint.exists():
            return
        state = torch.load(self._checkpoint, weights_only=True)
        self.iteration = state["iteration"]
        self.model.load_state_dict(state["model"])
        self.updater.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.critic.load_state_dict(state["critic"])
            self.critic.optimizer.load_state_dict(state["critic_optimizer"])


def trajectory_id(trajectory: Trajectory) -> str:
    """Unique within an iteration."""
    return f"{trajectory.key.task_id}/{trajectory.key.session}"


def turn_rows(trajectory: Trajectory) -> list[LabRow]:
    """One row per turn."""
    return [
        LabRow(trajectory_id(trajectory), i, tuple(turn.prompt_ids), tuple(turn.response_ids))
        for i, turn in enumerate(trajectory.turns)
    ]
