import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.envs.appworld.actions import cut, last_line_of_failure, python_block
from seeupo_recipe.envs.appworld.mini.vocabulary import spaced_pieces
from seeupo_recipe.envs.appworld.reward import is_garbled, reward


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("First I look.\n```python\na = 1\nb = 2\n```\nDone.", "a = 1\nb = 2"),
        ("```python\nfirst\n```\n```python\nsecond\n```", "first"),
        ("```\nplain\n```\n```py\nlabelled\n```", "labelled"),
        ("```Python \r\nx\r\n```", "x"),
        ("```json\n{}\n```", None),
        ("```python\nunclosed", None),
        ("```python print(1)```", None),
        ("no block", None),
        ("", None),
        ("```python\n```", ""),
        ("```python\n    indented\n```", "    indented"),
    ],
)
def test_the_first_closed_python_block_counts(message, code):
    assert python_block(message) == code


@given(st.text())
def test_any_message_can_be_parsed(message):
    code = python_block(message)
    assert code is None or code in message


@given(st.text(min_size=1), st.integers(0, 20), st.sampled_from([list, spaced_pieces]))
def test_cut_keeps_head_and_tail_within_the_limit(text, limit, split):
    tokens = split(text)
    shown = cut(text, limit, split)
    if len(tokens) <= limit:
        assert shown == text
        return
    mark = f"\n[... {len(tokens) - limit} of {len(tokens)} tokens left out ...]\n"
    kept = [shown[:i] + shown[i + len(mark) :] for i in range(len(shown)) if shown.startswith(mark, i)]
    heads = [(sum(map(len, tokens[:n])), limit - n) for n in range(limit + 1)]
    joined = {text[:size] + "".join(tokens[len(tokens) - rest :]) for size, rest in heads}
    assert any(candidate in joined for candidate in kept)


def test_only_failures_are_shortened():
    assert last_line_of_failure("a\nb") == "a\nb"
    assert last_line_of_failure("Execution failed. Traceback:\n  File\nValueError: no\n") == "Error: ValueError: no"


@pytest.mark.parametrize(
    ("message", "garbled"),
    [
        ("", False),
        ("```python\nprint(apis.spotify.show_song_library(access_token=t))\n```", False),
        ("für Żaneta 日本語 ✓ " * 5, False),
        ("ok " * 20, False),
        ("the same line\n" * 200, True),
        ("a" * 1000, True),
        ("\ufffd\ufffd" * 10 + "text", True),
        ("\x00\x01" * 10 + "text" * 5, True),
        ("\ud800" * 100, True),
    ],
)
def test_garbled_messages(message, garbled):
    assert is_garbled(message) is garbled


def test_ordinary_long_code_is_not_garbled():
    lines = [f"value_{i} = apis.spotify.show_song(song_id={i * 37 % 101})['title']" for i in range(60)]
    assert not is_garbled("\n".join(lines))


@given(st.floats(0, 1))
def test_shaped_rewards_rank_success_first(score):
    assert reward("shaped", 1.0, True, []) == 1.5
    assert 0 <= reward("shaped", score, False, []) <= 0.5
    assert reward("sparse", score, False, []) == 0.0
    assert reward("shaped", 1.0, True, ["a" * 1000]) == -1.0
    assert reward("sparse", 1.0, True, ["a" * 1000]) == 1.0
