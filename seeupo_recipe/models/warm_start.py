"""Supervised warm start of a tiny policy on noisy demonstrations, deterministic from its seed.

After ``min_steps`` training stops at the first check at which the sampled success rate on validation tasks
has reached the target, so that reinforcement learning has something to build on and room to improve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seeupo_recipe.agents.episode import Limits
from seeupo_recipe.agents.rollout import play_batch
from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.envs.base import EpisodeKey, Message, TeachableBenchmark
from seeupo_recipe.models.sampling import SamplingParams
from seeupo_recipe.models.tiny import build_model, build_tokenizer
from seeupo_recipe.records.identity import file_digest
from seeupo_recipe.seeding import stream


@dataclass(frozen=True)
class WarmStartSettings:
    """Settings of the supervised phase.

    Attributes:
        seed: Seed of weights, demonstrations and checks.
        batch_size: Demonstrations per step.
        learning_rate: Peak rate; linear warm-up over 50 steps, then cosine decay over ``max_steps``.
        min_steps: Steps before the first check of the success rate.
        max_steps: Steps before giving up.
        check_every: Steps between checks.
        target: Success rate to reach.
        ceiling: Success rate that must not be passed.
        width: Hidden size of the model.
        layers: Decoder layers of the model.
        split: Tasks on which the success rate is checked.
    """

    seed: int = 0
    batch_size: int = 64
    learning_rate: float = 3e-3
    min_steps: int = 400
    max_steps: int = 3000
    check_every: int = 100
    target: float = 0.15
    ceiling: float = 0.30
    width: int = 64
    layers: int = 2
    split: str = "validation"


class WarmStartError(RuntimeError):
    """The target success rate was not met; the message says how far it came."""


def warm_start(name: str, benchmark: TeachableBenchmark, settings: WarmStartSettings, folder: Path) -> dict:
    """Train, save weights and tokenizer to ``folder`` with ``provenance.json``, return the provenance.

    Raises:
        WarmStartError: If the success rate never lands between target and ceiling.
    """
    tokenizer = build_tokenizer(benchmark.vocabulary(), name=name)
    model = build_model(
        name,
        tokenizer,
        seed=settings.seed,
        max_length=benchmark.context_length,
        width=settings.width,
        layers=settings.layers,
    )
    steps, success = _train(model, tokenizer, benchmark, settings)
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    provenance = {
        "command": f"make warm-start MODEL={name} BENCH={benchmark.name}",
        "model": name,
        "benchmark": benchmark.name,
        "benchmark_version": benchmark.version,
        "settings": asdict(settings),
        "steps": steps,
        "validation_success": success,
        "parameters": sum(p.numel() for p in model.parameters()),
        "sha256": {"model.safetensors": file_digest(folder / "model.safetensors")},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")
    return provenance


def _train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    benchmark: TeachableBenchmark,
    settings: WarmStartSettings,
) -> tuple[int, float]:
    template = ContextTemplate(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, settings.max_steps))
    rng = stream("warm_start", settings.seed)
    success = 0.0
    for step in range(1, settings.max_steps + 1):
        conversations = [
            benchmark.demonstrate(f"demonstration-{rng.integers(2**31)}", rng) for _ in range(settings.batch_size)
        ]
        loss = _imitation_loss(model, template, conversations)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step >= settings.min_steps and step % settings.check_every == 0:
            success = _success(model, template, benchmark, settings)
            print(f"step {step}  loss {loss.item():.3f}  success {success:.3f}", flush=True)
            if success > settings.ceiling:
                raise WarmStartError(f"success {success:.3f} passed the ceiling {settings.ceiling} at step {step}")
            if success >= settings.target:
                return step, success
    raise WarmStartError(f"success {success:.3f} after {settings.max_steps} steps is below {settings.target}")


def _rate(step: int, total: int) -> float:
    return min(1.0, (step + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))))


def _imitation_loss(
    model: PreTrainedModel, template: ContextTemplate, conversations: Sequence[Sequence[Message]]
) -> torch.Tensor:
    """Mean cross-entropy of the assistant's tokens."""
    rows = [_tokens_and_mask(template, conversation) for conversation in conversations]
    longest = max(len(ids) for ids, _ in rows)
    ids_BL = torch.full((len(rows), longest), template.tokenizer.pad_token_id)
    target_BL = torch.full((len(rows), longest), -100)
    for i, (ids, mask) in enumerate(rows):
        ids_BL[i, : len(ids)] = torch.tensor(ids)
        target_BL[i, : len(ids)] = torch.tensor([t if m else -100 for t, m in zip(ids, mask, strict=True)])
    logits_BLV = model(input_ids=ids_BL).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits_BLV.flatten(0, 1), target_BL[:, 1:].flatten(), ignore_index=-100)


def _tokens_and_mask(template: ContextTemplate, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
    """Ids of the conversation and 1 on each token of an assistant message (its end token included)."""
    ids, mask = [], []
    for i, message in enumerate(messages):
        prefix = template.encode(messages[: i + 1])
        if prefix[: len(ids)] != ids:
            raise ValueError("the chat template rewrites earlier messages; it cannot be imitated message by message")
        mask += [int(message["role"] == "assistant")] * (len(prefix) - len(ids))
        ids = prefix
    return ids, mask


def _success(
    model: PreTrainedModel, template: ContextTemplate, benchmark: TeachableBenchmark, settings: WarmStartSettings
) -> float:
    limits = Limits(benchmark.max_turns, benchmark.context_length - benchmark.max_new_tokens, benchmark.max_new_tokens)
    keys = [EpisodeKey(settings.seed, 0, task, s) for task in benchmark.task_ids(settings.split) for s in range(4)]
    trajectories = play_batch(benchmark, keys, model.eval(), template, limits, SamplingParams())
    model.train()
    return sum(t.outcome.success for t in trajectories if t.outcome) / len(trajectories)


def main() -> None:
    """Command line: ``python -m seeupo_recipe.models.warm_start --model M --benchmark B --out DIR``."""
    import argparse

    from seeupo_recipe.envs.base import load_benchmark
    from seeupo_recipe.models.tiny import ARCHITECTURES
    from seeupo_recipe.strict import ConfigError

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", choices=sorted(ARCHITECTURES), required=True)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        benchmark = load_benchmark(arguments.benchmark)
    except ConfigError as error:
        parser.exit(2, f"error: {error}\n")
    settings = WarmStartSettings(seed=arguments.seed, **getattr(benchmark, "warm_start", {}))
    print(json.dumps(warm_start(arguments.model, benchmark, settings, arguments.out)))


if __name__ == "__main__":
    main()
