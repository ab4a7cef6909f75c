"""Optimizer steps on turn rows in one process: the lab's ``Updater``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from seeupo_recipe.algo.gae import value_loss
from seeupo_recipe.algo.loss import pool_loss
from seeupo_recipe.algo.ratio import sequence_log_ratio
from seeupo_recipe.algo.settings import SurrogateSettings
from seeupo_recipe.lab.policy import LabRow, RowTensors, log_probs, row_tensors, values

Key = tuple[str, int]
CHUNK_ROWS = 64


@dataclass(frozen=True)
class LossForm:
    """Which surrogate a method steps on; see ``pool_loss``."""

    surrogate: SurrogateSettings
    loss_ratio: str
    log_ratio_clamp: float | None = None
    clip: bool = True
    token_sum: bool = False


@dataclass
class TokenCount:
    """Tokens that went through the policy and the reference (forward) and back (backward)."""

    forward: int = 0
    backward: int = 0


@dataclass
class LabUpdater:
    """Holds the policy and, per row, the denominator's and the reference's log-probabilities.

    Attributes:
        model: The policy.
        reference: Frozen copy for the KL term, or None without one.
        optimizer: Of the policy.
        grad_clip: Bound on the gradient norm.
        temperature: Of the rollouts.
        pad_id: Filler of padded rows.
        form: The surrogate.
        select: Makes the policy of a turn the active one, where turns have policies of their own.
        tokens: Running token counts.
    """

    model: PreTrainedModel
    reference: PreTrainedModel | None
    optimizer: torch.optim.Optimizer
    grad_clip: float
    temperature: float
    pad_id: int
    form: LossForm
    select: Callable[[int], None] | None = None
    tokens: TokenCount = field(default_factory=TokenCount)
    gradients: list[torch.Tensor] | None = None
    _old: dict[Key, torch.Tensor] = field(default_factory=dict)
    _ref: dict[Key, torch.Tensor] = field(default_factory=dict)

    def begin(self, rows: Sequence[LabRow]) -> float:
        """Compute theta_k's and the reference's log-probabilities of all rows, once per iteration.

        Returns:
            The policy's mean token entropy on them.
        """
        self._old, entropies = self._per_row(self.model, rows)
        self._ref = self._per_row(self.reference, rows)[0] if self.reference is not None else {}
        return float(torch.cat(list(entropies.values())).mean())

    def anchor(self, rows: Sequence[LabRow]) -> None:
        """Make the present weights the denominator of ``rows``."""
        self._old.update(self._per_row(self.model, rows)[0])

    def step(
        self, rows: Sequence[LabRow], weights_R: torch.Tensor, *, denominator: float, last: bool
    ) -> Mapping[str, float]:
        """One optimizer step; ``weights_R`` may be (R, L) for the token ratio.

        Without KL and entropy terms a row of weight 0 has no gradient and is not forwarded.
        """
        del last
        surrogate = self.form.surrogate
        if weights_R.dim() == 1 and not (surrogate.kl_coefficient or surrogate.entropy_coefficient):
            kept = [i for i, weight in enumerate(weights_R.tolist()) if weight]
            rows, weights_R = [rows[i] for i in kept], weights_R[kept]
        if not rows:
            return self._empty_step()
        tensors = self._tensors(rows)
        entropy = bool(self.form.surrogate.entropy_coefficient)
        self._activate(rows)
        log_probs_RL, entropy_RL = log_probs(self.model, tensors, self.temperature, entropy=entropy)
        terms = pool_loss(
            log_probs_RL,
            self._stack(self._old, rows, tensors),
            tensors.mask_RL,
            weights_R,
            denominator=denominator,
            surrogate=self.form.surrogate,
            loss_ratio=self.form.loss_ratio,
            log_ratio_clamp=self.form.log_ratio_clamp,
            clip=self.form.clip,
            token_sum=self.form.token_sum,
            ref_log_probs_RL=self._stack(self._ref, rows, tensors) if self._ref else None,
            entropy_RL=entropy_RL,
        )
        self.optimizer.zero_grad()
        terms.loss.backward()
        self.tokens.forward += sum(row.tokens for row in rows)
        self.tokens.backward += sum(row.tokens for row in rows)
        return {
            "loss": float(terms.loss.detach()),
            "grad_norm": self._apply_gradient(),
            "clipped": terms.clipped,
            "ratio_deviation": terms.ratio_deviation,
            "kl_old": terms.kl_old,
            "kl_ref": terms.kl_ref,
            "rows": terms.rows,
        }

    def log_ratio(self, rows: Sequence[LabRow], *, kind: str, clamp: float | None) -> torch.Tensor:
        """Log-ratio of the present weights to the denominator, float64, shape (R,)."""
        tensors = self._tensors(rows)
        self._activate(rows)
        with torch.no_grad():
            present_RL, _ = log_probs(self.model, tensors, self.temperature)
        self.tokens.forward += sum(row.tokens for row in rows)
        old_RL = self._stack(self._old, rows, tensors)
        return sequence_log_ratio(present_RL.double(), old_RL.double(), tensors.mask_RL, kind=kind, clamp=clamp)

    def _per_row(
        self, model: PreTrainedModel, rows: Sequence[LabRow]
    ) -> tuple[dict[Key, torch.Tensor], dict[Key, torch.Tensor]]:
        """Log-probabilities and entropies of each row's response, forwarded in chunks of similar length."""
        found: tuple[dict[Key, torch.Tensor], dict[Key, torch.Tensor]] = ({}, {})
        for chunk in self._chunks(rows):
            self._activate(chunk)
            with torch.no_grad():
                both = log_probs(model, self._tensors(chunk), self.temperature, entropy=True)
            for columns, values_RL in zip(found, both, strict=True):
                for row, values_L in zip(chunk, values_RL, strict=True):
                    columns[row.trajectory, row.turn] = values_L[: len(row.response_ids)]
        self.tokens.forward += sum(row.tokens for row in rows)
        return found

    def _chunks(self, rows: Sequence[LabRow]) -> Iterator[list[LabRow]]:
        """Rows of similar length, of one turn where turns have policies of their own."""
        for turn in sorted({row.turn for row in rows}) if self.select else [None]:
            ordered = sorted((row for row in rows if turn in (None, row.turn)), key=lambda row: row.tokens)
            for start in range(0, len(ordered), CHUNK_ROWS):
                yield ordered[start : start + CHUNK_ROWS]

    def _activate(self, rows: Sequence[LabRow]) -> None:
        if self.select:
            (turn,) = {row.turn for row in rows}
            self.select(turn)

    def _stack(self, columns: Mapping[Key, torch.Tensor], rows: Sequence[LabRow], tensors: RowTensors) -> torch.Tensor:
        picked = [columns[row.trajectory, row.turn] for row in rows]
        return torch.nn.utils.rnn.pad_sequence(picked, batch_first=True)[:, : tensors.mask_RL.shape[1]]

    def _tensors(self, rows: Sequence[LabRow]) -> RowTensors:
        return row_tensors(rows, self.pad_id)

    def _empty_step(self) -> dict[str, float]:
        """A step without gradient: momentum and weight decay still move the weights."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        sums = dict.fromkeys(("loss", "clipped", "ratio_deviation", "kl_old", "kl_ref", "rows"), 0.0)
        return {**sums, "grad_norm": self._apply_gradient()}

    def _apply_gradient(self) -> float:
        if self.gradients is not None:
            self.gradients.append(torch.cat([p.grad.flatten() for p in self.model.parameters()]).clone())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        return float(norm)


@dataclass
class CriticUpdater:
    """PPO's critic: values before an iteration's updates, then steps on the clipped value loss.

    With ``turn_level`` there is one value per row, that of the state in which the turn begins.
    """

    critic: PreTrainedModel
    optimizer: torch.optim.Optimizer
    grad_clip: float
    pad_id: int
    value_clip: float
    turn_level: bool = False

    def values(self, rows: Sequence[LabRow]) -> tuple[torch.Tensor, torch.Tensor]:
        """Values and mask of all rows, no gradient."""
        tensors = row_tensors(rows, self.pad_id)
        with torch.no_grad():
            return self._picked(values(self.critic, tensors)), self._picked(tensors.mask_RL)

    def step(self, rows: Sequence[LabRow], old_RL: torch.Tensor, returns_RL: torch.Tensor) -> float:
        """One optimizer step; returns the loss."""
        tensors = row_tensors(rows, self.pad_id)
        mask_RL = self._picked(tensors.mask_RL)
        width = mask_RL.shape[1]
        loss = value_loss(
            self._picked(values(self.critic, tensors)),
            old_RL[:, :width],
            returns_RL[:, :width],
            mask_RL,
            clip=self.value_clip,
            denominator=len(rows),
        )
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.grad_clip)
        self.optimizer.step()
        return float(loss.detach())

    def _picked(self, columns_RL: torch.Tensor) -> torch.Tensor:
        return columns_RL[:, :1] if self.turn_level else columns_RL
