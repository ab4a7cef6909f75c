import pytest

from seeupo_recipe.agents.episode import (
    CONTEXT_LENGTH,
    DONE,
    ENVIRONMENT_FAILURE,
    MAX_TURNS,
    Limits,
    Sampled,
    Trajectory,
    TurnRequest,
    play,
)
from seeupo_recipe.agents.facts import training_metrics, trajectory_facts
from seeupo_recipe.agents.segments import Segment, turn_segments
from seeupo_recipe.agents.template import ContextTemplate, without_thinking
from seeupo_recipe.envs.base import EnvironmentFailure, EpisodeKey, Observation, Outcome, Prompt, Vocabulary
from seeupo_recipe.models.tiny import build_tokenizer

WORDS = ["<think>", "</think>", "a", "b", "c", "d", "go", "ok", "A"]
END = 3
KEY = EpisodeKey(0, 1, "t", 0)


class Echo:
    """A benchmark of one task: answers ``ok``, ends on ``go``, breaks on ``d``."""

    name, version, max_turns, max_new_tokens, blocking = "echo", "1", 4, 6, False

    def task_ids(self, split):
        return ["t"]

    def cluster(self, task_id):
        return task_id

    def make(self, key):
        self.closed, self.actions = 0, []
        return self

    def reset(self):
        return Prompt(({"role": "user", "content": "a b"},))

    def step(self, action):
        self.actions.append(action)
        if action.text.endswith("d"):
            raise EnvironmentFailure("broken")
        return Observation(({"role": "tool", "content": "ok"},), done=action.text.endswith("go"))

    def score(self):
        return Outcome(1.0, 1.0, True)

    def close(self):
        self.closed += 1


@pytest.fixture
def tokenizer():
    return build_tokenizer(Vocabulary(WORDS))


def run(tokenizer, replies, *, style="react", limits=None, benchmark=None):
    template = ContextTemplate(tokenizer, style)
    benchmark = benchmark or Echo()
    episode = play(benchmark, KEY, template, limits or Limits(4, 100, 6), [END])
    requests, answer = [], None
    for reply in [*replies, None]:
        try:
            requests.append(episode.send(answer))
        except StopIteration as stop:
            return requests, stop.value, benchmark
        ids = tokenizer(reply, add_special_tokens=False)["input_ids"]
        finished = not reply.endswith("...")
        answer = Sampled(ids + [END] if finished else ids[:6], [-0.5] * (len(ids) + finished), finished)
    raise AssertionError("the episode did not end")


def words(tokenizer, ids):
    return " ".join(tokenizer.convert_ids_to_tokens(ids))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>x</think>\n\nanswer", "answer"),
        ("a<think>x</think>b<think>y</think>c", "abc"),
        ("x</think>answer", "answer"),
        ("answer<think>cut off", "answer"),
        ("<think>a</think>b</think>c", "c"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_thinking_is_removed_in_every_form(text, kept):
    assert without_thinking(text) == kept


def test_f16_each_turns_prompt_is_exactly_the_conversation_without_earlier_thinking(tokenizer):
    replies = ["<think> c </think> a", "<think> c c </think> b go"]
    requests, trajectory, _ = run(tokenizer, replies, style="reasoning_augmented")
    assert words(tokenizer, requests[0].prompt_ids) == "<bos> a b <eoq>"
    assert words(tokenizer, requests[1].prompt_ids) == "<bos> a b <eoq> a <eoa> ok"
    assert [t.prompt_ids for t in trajectory.turns] == [r.prompt_ids for r in requests]
    assert words(tokenizer, trajectory.turns[0].response_ids) == "<think> c </think> a <eoa>"


def test_react_keeps_earlier_thinking(tokenizer):
    requests, _, _ = run(tokenizer, ["<think> c </think> a", "go"])
    assert words(tokenizer, requests[1].prompt_ids) == "<bos> a b <eoq> <think> c </think> a <eoa> ok"


def test_f15_the_ids_that_are_trained_are_the_ids_that_were_sampled():
    """A lower-casing tokenizer is not bijective: re-encoding the text would give other ids."""
    from tokenizers import normalizers

    tokenizer = build_tokenizer(Vocabulary(WORDS))
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    upper = tokenizer.convert_tokens_to_ids("A")
    episode = play(Echo(), KEY, ContextTemplate(tokenizer), Limits(1, 100, 6), [END])
    next(episode)
    with pytest.raises(StopIteration) as stop:
        episode.send(Sampled([upper, END], [-0.1, -0.2], True))
    turn = stop.value.value.turns[0]
    assert turn.response_ids == [upper, END]
    text = tokenizer.decode([upper])
    assert tokenizer(text, add_special_tokens=False)["input_ids"] != [upper]


def test_an_episode_ends_by_the_environment_by_turns_or_by_context(tokenizer):
    _, done, benchmark = run(tokenizer, ["a", "go"])
    assert done.stop_reason == DONE and not done.truncated and benchmark.closed == 1
    _, exhausted, _ = run(tokenizer, ["a"] * 4)
    assert exhausted.stop_reason == MAX_TURNS and exhausted.truncated and len(exhausted.turns) == 4
    _, long, _ = run(tokenizer, ["a", "b"], limits=Limits(4, 7, 6))
    assert long.stop_reason == CONTEXT_LENGTH and long.truncated and len(long.turns) == 2


def test_f17_a_turn_that_ends_by_length_is_flagged(tokenizer):
    _, trajectory, benchmark = run(tokenizer, ["a b a b a b ...", "go"])
    assert [turn.finished for turn in trajectory.turns] == [False, True]
    assert [action.complete for action in benchmark.actions] == [False, True]
    facts = trajectory_facts(trajectory)
    assert facts["cut_turns"] == 1
    assert training_metrics([facts])["train/cut_turn_fraction"] == 0.5


def test_an_environment_failure_is_neither_success_nor_wrong_answer(tokenizer):
    _, failed, benchmark = run(tokenizer, ["a", "d"])
    assert failed.stop_reason == ENVIRONMENT_FAILURE and failed.outcome is None and failed.failure == "broken"
    assert benchmark.closed == 1
    good = trajectory_facts(run(tokenizer, ["go"])[1])
    metrics = training_metrics([trajectory_facts(failed), good])
    assert metrics["train/environment_failures"] == 1 and metrics["train/success_rate"] == 1.0
    with pytest.raises(RuntimeError, match="environment failures"):
        training_metrics([trajectory_facts(failed)])


def test_a_turn_without_sampled_tokens_makes_no_row(tokenizer):
    episode = play(Echo(), KEY, ContextTemplate(tokenizer), Limits(1, 100, 6), [END])
    assert isinstance(next(episode), TurnRequest)
    with pytest.raises(StopIteration) as stop:
        episode.send(Sampled([], [], False))
    assert stop.value.value.turns == []
    assert isinstance(stop.value.value, Trajectory)


def test_segments_are_the_runs_of_ones():
    assert turn_segments([1, 1, 0, 0, 1, 0, 1]) == [Segment(0, 2), Segment(4, 5), Segment(6, 7)]
    assert turn_segments([0, 0]) == [] and turn_segments([]) == []
    assert turn_segments([0, 1, 1]) == [Segment(1, 3)]


def test_unknown_styles_and_missing_chat_templates_are_refused(tokenizer):
    with pytest.raises(ValueError, match="unknown context template"):
        ContextTemplate(tokenizer, "chain")
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        ContextTemplate(tokenizer)
