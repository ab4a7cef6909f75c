"""Plays scripts of assistant messages: [[task id, [message, ...]], ...] on stdin, transcripts on stdout."""

import json
import sys

from seeupo_recipe.envs.base import Action, EpisodeKey, load_benchmark


def play(benchmark, task_id, texts):
    """Return [observations, outcome] of one episode as JSON values; stops early if the episode ends."""
    environment = benchmark.make(EpisodeKey(seed=0, iteration=0, task_id=task_id, session=0))
    observations = [list(environment.reset().messages)]
    try:
        for text in texts:
            observation = environment.step(Action(text))
            observations.append([list(observation.messages), observation.done])
            if observation.done:
                break
        outcome = environment.score()
        return [observations, [outcome.reward, outcome.score, outcome.success, dict(outcome.info)]]
    finally:
        environment.close()


if __name__ == "__main__":
    long_benchmark = load_benchmark("bfcl", max_turns=10**6)
    json.dump([play(long_benchmark, task_id, texts) for task_id, texts in json.load(sys.stdin)], sys.stdout)
