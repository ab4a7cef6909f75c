import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.envs.base import Action, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl.qwen import to_text
from seeupo_recipe.envs.bfcl.reward import is_degenerate, reward


@pytest.mark.parametrize(
    ("success", "progress", "degenerate", "sparse", "shaped"),
    [
        (True, 1.0, False, 1.0, 1.5),
        (False, 0.0, False, 0.0, 0.0),
        (False, 0.5, False, 0.0, 0.25),
        (False, 0.5, True, 0.0, -1.0),
        (True, 1.0, True, 1.0, -1.0),
    ],
)
def test_reward_profiles(success, progress, degenerate, sparse, shaped):
    assert reward("sparse", success, progress, degenerate) == sparse
    assert reward("shaped", success, progress, degenerate) == shaped


@given(st.text(min_size=1, max_size=100), st.text(max_size=50))
def test_endless_repetition_is_degenerate(unit, start):
    assert is_degenerate(start + unit * (1200 // len(unit) + 8))


@given(st.text(max_size=300))
def test_short_clean_text_is_not_degenerate(text):
    clean = "".join(character for character in text if character.isprintable() and character != "\ufffd")
    assert not is_degenerate(clean.replace("\ue000", ""))


def test_garbled_text_is_degenerate():
    assert is_degenerate("ok \ufffd\ufffd\ufffd \x00\x01")
    assert not is_degenerate("one lost \ufffd character in an ordinary sentence\n\twith layout")


def test_ordinary_reference_messages_are_not_degenerate(bfcl):
    messages = [to_text(list(turn)) for task in bfcl.tasks.values() for turn in task.ground_truth]
    assert not any(map(is_degenerate, messages))


def test_degenerate_output_gets_the_release_penalty():
    benchmark = load_benchmark("bfcl", reward="shaped")
    environment = benchmark.make(EpisodeKey(0, 0, "multi_turn_base_0", 0))
    environment.reset()
    environment.step(Action("no " * 400))
    outcome = environment.score()
    environment.close()
    assert (outcome.reward, outcome.score, outcome.info["degenerate_messages"]) == (-1.0, 0.0, 1)


def test_unknown_profiles_are_refused():
    with pytest.raises(ValueError, match="sparse, shaped"):
        load_benchmark("bfcl", reward="dense")
