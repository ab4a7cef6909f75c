"""Every choice of SeeUPO, in one dataclass, with the paper's and the release's values as profiles.

The defaults are the ``as_paper`` profile. ``as_released`` follows the authors' public code
(branch ``seeupo`` of modelscope/AgentEvolver, spring 2026), ``as_released_aligned`` the same code
with the one fault mended that multiplies M into other trajectories.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seeupo_recipe.strict import ConfigError, build_strict

CHOICES: dict[str, tuple[str, ...]] = {
    "order": ("reverse", "natural", "random", "joint"),
    "normalization": ("batch", "group", "none"),
    "loss_ratio": ("length_normalised", "product", "token"),
    "correction": ("on", "off", "pool_centred"),
    "correction_ratio": ("length_normalised", "product"),
    "correction_alignment": ("trajectory", "balanced_position"),
    "ratio_denominator": ("iteration_start", "turn_start"),
    "pool_denominator": ("trajectories", "real_rows"),
}

Interval = tuple[float, float]


@dataclass(frozen=True)
class AlgorithmSettings:
    """The choices that define one SeeUPO update.

    Attributes:
        order: Order of the turn pools within an iteration (paper: reverse; Table 4 compares natural
            and random). ``joint`` takes all pools in one step, without M (not in the paper).
        normalization: Scaling of the centred advantage (paper section 4.2, Table 5).
        std_floor: A standard deviation at or below it divides nothing (release: 1e-6).
        advantage_clamp: Bounds on the normalised advantage (release: [-3, 3]; paper: none).
        loss_ratio: Ratio inside equation (6). ``length_normalised`` is the GSPO form the paper
            names, ``product`` the plain sequence ratio, ``token`` the token-level loss that the
            release runs in fact, since nothing reads its ``loss_mode``.
        correction: Whether M multiplies the advantage (equations 7 and 8); ``off`` leaves A,
            ``pool_centred`` subtracts the product-weighted mean of M over the pool (not in the paper).
        correction_ratio: Ratio inside equation (8).
        correction_ratio_clamp: Bounds on one turn's factor (release: [0.8, 1.2]; paper: none).
        correction_product_clamp: Bounds on the running product (release: [0.8, 1.2]; paper: none).
        correction_alignment: ``trajectory`` keys M by trajectory. ``balanced_position`` reproduces the
            release, where M is a bare vector while each turn's rows are reordered by length
            balancing, so that M meets other trajectories.
        balance_partitions: Data-parallel ranks of that balancing (release: 8 GPUs).
        log_ratio_clamp: Bound on the absolute log-ratio before ``exp`` (release: 10; paper: none).
        ratio_denominator: Weights below the ratio: theta_k for every turn (paper), or the weights
            at the start of each turn (release).
        pool_denominator: What the pool's objective is divided by: all trajectories of the iteration,
            placeholders adding 0 (paper), or the pool's real rows.
        step_empty_pools: Whether a pool without real rows takes an optimizer step (release: yes, so
            Adam's momentum and weight decay move the weights; paper: placeholders are no-ops).
    """

    order: str = "reverse"
    normalization: str = "batch"
    std_floor: float = 1e-6
    advantage_clamp: Interval | None = None
    loss_ratio: str = "length_normalised"
    correction: str = "on"
    correction_ratio: str = "length_normalised"
    correction_ratio_clamp: Interval | None = None
    correction_product_clamp: Interval | None = None
    correction_alignment: str = "trajectory"
    balance_partitions: int = 8
    log_ratio_clamp: float | None = None
    ratio_denominator: str = "iteration_start"
    pool_denominator: str = "trajectories"
    step_empty_pools: bool = False

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name}={value!r}: choose one of {', '.join(allowed)}")
        for name in ("advantage_clamp", "correction_ratio_clamp", "correction_product_clamp"):
            bounds = getattr(self, name)
            if bounds is not None:
                low, high = bounds
                if not low < high:
                    raise ConfigError(f"{name}={list(bounds)}: the lower bound must be below the upper one")
                object.__setattr__(self, name, (float(low), float(high)))
        if self.std_floor < 0:
            raise ConfigError(f"std_floor={self.std_floor}: must not be negative")
        if self.log_ratio_clamp is not None and self.log_ratio_clamp <= 0:
            raise ConfigError(f"log_ratio_clamp={self.log_ratio_clamp}: must be positive, or null for none")
        if self.balance_partitions < 1:
            raise ConfigError(f"balance_partitions={self.balance_partitions}: must be at least 1")
        self._refuse_impossible()

    def _refuse_impossible(self) -> None:
        if self.order == "joint" and self.correction != "off":
            raise ConfigError("order=joint updates all turns at once, so no turn precedes another: set correction=off")
        if self.order == "joint" and self.ratio_denominator == "turn_start":
            raise ConfigError("order=joint has no turn starts: set ratio_denominator=iteration_start")
        if self.order == "joint" and self.step_empty_pools:
            raise ConfigError("order=joint has no empty pools: set step_empty_pools=false")
        if self.correction == "off":
            for name, neutral in (
                ("correction_ratio_clamp", None),
                ("correction_product_clamp", None),
                ("correction_alignment", "trajectory"),
            ):
                if getattr(self, name) != neutral:
                    raise ConfigError(f"correction=off leaves {name} without effect: remove {name}")
        if self.correction == "pool_centred" and self.correction_alignment != "trajectory":
            raise ConfigError("correction=pool_centred needs correction_alignment=trajectory")

    def as_dict(self) -> dict[str, Any]:
        """All resolved choices as plain JSON values, for the run record."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


@dataclass(frozen=True)
class SurrogateSettings:
    """Constants of the pool's objective.

    Attributes:
        clip_low: epsilon below 1 (paper: 0.2).
        clip_high: epsilon above 1 (paper: 0.2).
        kl_coefficient: Weight of the KL term to the reference policy (paper: 0.002); 0 turns it off.
        entropy_coefficient: Weight of the entropy bonus (release: 0).
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coefficient: float = 0.002
    entropy_coefficient: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.clip_low < 1 or self.clip_high <= 0:
            raise ConfigError(f"clip_low={self.clip_low} must lie in (0, 1) and clip_high={self.clip_high} above 0")
        if self.kl_coefficient < 0:
            raise ConfigError(f"kl_coefficient={self.kl_coefficient}: must not be negative")


_RELEASED: dict[str, Any] = {
    "advantage_clamp": (-3.0, 3.0),
    "loss_ratio": "token",
    "correction_ratio_clamp": (0.8, 1.2),
    "correction_product_clamp": (0.8, 1.2),
    "correction_alignment": "balanced_position",
    "log_ratio_clamp": 10.0,
    "ratio_denominator": "turn_start",
    "step_empty_pools": True,
}

PROFILES: dict[str, dict[str, Any]] = {
    "as_paper": {},
    "as_released": _RELEASED,
    "as_released_aligned": {**_RELEASED, "correction_alignment": "trajectory"},
}


def resolve_settings(given: Mapping[str, Any], *, where: str = "seeupo") -> AlgorithmSettings:
    """Expand ``given['profile']`` and apply the other keys on top.

    Args:
        given: Keys of :class:`AlgorithmSettings`, each settable alone, and optionally ``profile``.
        where: Name of the config section, for messages.

    Raises:
        ConfigError: For an unknown key (with the nearest valid one), an unknown profile, a value
            out of range, or a combination that cannot work.
    """
    given = dict(given)
    profile = given.pop("profile", "as_paper")
    if profile not in PROFILES:
        raise ConfigError(f"{where}.profile={profile!r}: choose one of {', '.join(PROFILES)}")
    return build_strict(AlgorithmSettings, {**PROFILES[profile], **given}, where=where)
