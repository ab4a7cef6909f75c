"""A two-turn problem with a known optimum: repeat the shown letter, then name the next one.

Saying ``ok`` ends the episode early, so that trajectories have different lengths.
"""

from dataclasses import dataclass

from seeupo_recipe.envs.base import Observation, Outcome, Prompt, Vocabulary
from seeupo_recipe.seeding import stream

LETTERS = "abcd"


class Episode:
    def __init__(self, key):
        self.letter = LETTERS[int(stream("two_turn", key.task_id).integers(len(LETTERS)))]
        self.turn, self.right = 0, 0

    def reset(self):
        return Prompt(({"role": "user", "content": self.letter},))

    def step(self, action):
        wanted = LETTERS[(LETTERS.index(self.letter) + self.turn) % len(LETTERS)]
        said = action.text.split()[:1]
        self.right += said == [wanted]
        self.turn += 1
        return Observation(({"role": "tool", "content": "ok"},), done=self.turn == 2 or said == ["ok"])

    def score(self):
        return Outcome(self.right / 2, self.right / 2, self.right == 2)

    def close(self):
        pass


@dataclass(frozen=True)
class TwoTurn:
    name: str = "two-turn"
    version: str = "1"
    max_turns: int = 2
    max_new_tokens: int = 1
    blocking: bool = False

    def task_ids(self, split):
        return [f"{split}-{i}" for i in range(16)]

    def cluster(self, task_id):
        return task_id

    def make(self, key):
        return Episode(key)

    def vocabulary(self):
        return Vocabulary([*LETTERS, "ok"])
