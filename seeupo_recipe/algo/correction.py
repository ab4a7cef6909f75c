"""M, the weight that earlier updates of an iteration put on a turn (equations 7 and 8).

M starts as the joint advantage and, after turn t has been updated, is multiplied by that turn's ratio
under the new and the old weights. It is a constant in every loss. The state is keyed by trajectory id:
a batch may be reordered, split or padded between turns without touching it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from seeupo_recipe.algo.alignment import balanced_positions
from seeupo_recipe.algo.settings import AlgorithmSettings, Interval

RowLengths = Mapping[tuple[str, int], int]


class TurnCorrection:
    """The running M of one iteration.

    Args:
        advantages: Joint advantage of each trajectory id.
        settings: Uses the ``correction*`` choices and ``balance_partitions``.
        row_lengths: Tokens of row (trajectory id, turn); needed by
            ``correction_alignment=balanced_position`` only.

    Raises:
        ValueError: If ``row_lengths`` is missing where it is needed.
    """

    def __init__(
        self,
        advantages: Mapping[str, float],
        settings: AlgorithmSettings,
        row_lengths: RowLengths | None = None,
    ) -> None:
        self._index = {trajectory: i for i, trajectory in enumerate(advantages)}
        self._advantages_N = torch.tensor(list(advantages.values()), dtype=torch.float64)
        self._product_N = torch.ones_like(self._advantages_N)
        self._settings = settings
        self._row_lengths = row_lengths
        if settings.correction_alignment == "balanced_position" and row_lengths is None:
            raise ValueError("correction_alignment=balanced_position needs the length of every row")

    def weights(self, trajectories: Sequence[str], turn: int) -> torch.Tensor:
        """Return M_{t+1} of the given rows of turn ``turn``; float64, shape (R,), no gradient."""
        rows_R = self._rows(trajectories)
        advantages_R = self._advantages_N[rows_R]
        if self._settings.correction == "off":
            return advantages_R
        product_R = self._product_N[self._slots(trajectories, turn)]
        weights_R = product_R * advantages_R
        if self._settings.correction == "pool_centred" and len(trajectories):
            weights_R = weights_R - product_R * (weights_R.sum() / product_R.sum())
        return weights_R

    def record(self, trajectories: Sequence[str], turn: int, log_ratio_R: torch.Tensor) -> None:
        """Multiply in the ratio of the updated turn (equation 8).

        Args:
            trajectories: Trajectory id of each row, any order.
            turn: The turn that was updated.
            log_ratio_R: Log of new over old weights, in the form of ``correction_ratio``.
        """
        if self._settings.correction == "off":
            return
        slots_R = self._slots(trajectories, turn)
        factor_R = _clamped(log_ratio_R.detach().double().cpu().exp(), self._settings.correction_ratio_clamp)
        self._product_N[slots_R] = _clamped(
            self._product_N[slots_R] * factor_R, self._settings.correction_product_clamp
        )

    @property
    def products(self) -> dict[str, float]:
        """The running product of ratios of each trajectory id (1 before any update)."""
        return {trajectory: float(self._product_N[i]) for trajectory, i in self._index.items()}

    def _rows(self, trajectories: Sequence[str]) -> torch.Tensor:
        return torch.tensor([self._index[t] for t in trajectories], dtype=torch.long)

    def _slots(self, trajectories: Sequence[str], turn: int) -> torch.Tensor:
        """Where each row reads and writes its product."""
        if self._settings.correction_alignment == "trajectory":
            return self._rows(trajectories)
        position = balanced_positions(
            list(self._index), turn, self._row_lengths, partitions=self._settings.balance_partitions
        )
        return torch.tensor([position[t] for t in trajectories], dtype=torch.long)


def _clamped(values: torch.Tensor, bounds: Interval | None) -> torch.Tensor:
    return values if bounds is None else values.clamp(*bounds)
