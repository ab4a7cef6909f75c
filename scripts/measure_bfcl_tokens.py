"""Tokens of BFCL contexts under the vocabulary of Qwen2.5 and Qwen3, along replays of the reference calls.

    pip install tiktoken && pip install --no-deps --target build/vocabulary dashscope==2.0.2  # ships qwen.tiktoken
    python scripts/measure_bfcl_tokens.py --vocabulary build/vocabulary/dashscope/resources/qwen.tiktoken

An expert plays every task of a split: a message with the reference calls of a user turn, then one that ends the turn.
The context of each message is counted with the tools as JSON and four tokens per message for the chat format; the
template's own words around the tools (about a hundred tokens) are missing, and a policy that thinks or errs takes
longer contexts. ``python -m seeupo_recipe.cluster plan`` reads the result.
"""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path

import numpy as np
import tiktoken

from seeupo_recipe.envs.base import Action, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl.qwen import to_text

OUT = Path(__file__).resolve().parents[1] / "results" / "paper_scale" / "bfcl_tokens.json"
# How Qwen cuts text into words before merging: letters, single digits, punctuation, line ends, spaces.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PER_MESSAGE = 4


def vocabulary(path: Path) -> tiktoken.Encoding:
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("qwen", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={})


def replay(benchmark, task_id: str, count) -> list[tuple[int, int]]:
    """Tokens of context and message at every turn of an expert's episode."""
    task = benchmark.tasks[task_id]
    environment = benchmark.make(EpisodeKey(0, 0, task_id, 0))
    try:
        prompt = environment.reset()
        tools = sum(count(json.dumps(tool)) + 1 for tool in prompt.tools)
        context = tools + sum(count(m["content"]) + PER_MESSAGE for m in prompt.messages)
        turns = []
        texts = [text for calls in task.ground_truth for text in ([to_text(list(calls))] if calls else []) + ["Done."]]
        for text in texts:
            turns.append((context, count(text)))
            observation = environment.step(Action(text))
            context += turns[-1][1] + PER_MESSAGE
            context += sum(count(m["content"]) + PER_MESSAGE for m in observation.messages)
            if observation.done:
                break
        return turns
    finally:
        environment.close()


def summary(values: list[int]) -> dict[str, float]:
    return {
        "mean": round(float(np.mean(values)), 1),
        "median": float(np.median(values)),
        "p95": round(float(np.percentile(values, 95)), 1),
        "max": int(np.max(values)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=Path, required=True, help="qwen.tiktoken")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    encoding = vocabulary(arguments.vocabulary)
    benchmark = load_benchmark("bfcl", observation_chars=3000)
    result = {"benchmark": benchmark.version, "vocabulary": encoding.n_vocab, "splits": {}}
    for split in ("train", "test"):
        episodes = [replay(benchmark, t, lambda s: len(encoding.encode_ordinary(s))) for t in benchmark.task_ids(split)]
        result["splits"][split] = {
            "tasks": len(episodes),
            "turns": summary([len(e) for e in episodes]),
            "first_context": summary([e[0][0] for e in episodes]),
            "context": summary([context for e in episodes for context, _ in e]),
            "message": summary([message for e in episodes for _, message in e]),
            "trajectory": summary([sum(c + m for c, m in e) for e in episodes]),
        }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
