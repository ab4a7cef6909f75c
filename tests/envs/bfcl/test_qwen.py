import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seeupo_recipe.envs.bfcl.calls import Call, MalformedMessage
from seeupo_recipe.envs.bfcl.qwen import MAX_CALLS, QwenToolCalls, to_text

QWEN = QwenToolCalls()
LS = '<tool_call>\n{"name": "ls", "arguments": {"a": true}}\n</tool_call>'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(Call, st.text(max_size=8), st.dictionaries(st.text(max_size=6), json_values, max_size=3))


@given(st.lists(calls, max_size=4))
def test_written_calls_are_read_back(calls):
    if not any(tag in json.dumps([[c.name, c.arguments] for c in calls]) for tag in ("tool_call>", "think>")):
        assert QWEN.parse("Sure.\n" + to_text(calls) + "\nOne moment.") == calls


@given(
    st.text()
    | st.lists(st.sampled_from([LS, "<tool_call>", "</tool_call>", "<think>", "{", '"name"', " "])).map("".join)
)
@example("<tool_call>" + "[" * 50_000 + "</tool_call>")
@example("<tool_call>" + '{"a":' * 20_000 + "</tool_call>")
def test_any_text_is_read_or_is_malformed(text):
    try:
        calls = QWEN.parse(text)
    except MalformedMessage:
        return
    assert all(isinstance(call, Call) for call in calls)


@pytest.mark.parametrize(
    "text", ["", "Done.", "The result is {}.", "<think>call ls</think>Done.", f"<think>{LS}</think>"]
)
def test_messages_without_calls(text):
    assert QWEN.parse(text) == []


@pytest.mark.parametrize("text", [f"<think>hm</think>{LS}", f"hm</think>\n\n{LS}", f"Let me look. {LS} There."])
def test_text_and_closed_thinking_around_a_call_are_ignored(text):
    assert QWEN.parse(text) == [Call("ls", {"a": True})]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "ls()",
        "{'name': 'ls', 'arguments': {}}",
        '{"name": "ls"}',
        '{"name": "ls", "arguments": "{}"}',
        '{"name": "ls", "arguments": []}',
        '{"name": "ls", "arguments": {}, "id": 1}',
        '{"name": ["ls"], "arguments": {}}',
        '[{"name": "ls", "arguments": {}}]',
        '{"name": "ls", "arguments": {}} {"name": "ls", "arguments": {}}',
        '{"name": "ls", "arguments": {"a": 1, "a": 2}}',
        '{"name": "ls", "arguments": {"a": NaN}}',
        '{"name": "ls", "arguments": {"a": -Infinity}}',
        '{"name": "ls", "arguments": {"a": ' + "9" * 5000 + "}}",
    ],
)
def test_malformed_calls(body):
    with pytest.raises(MalformedMessage):
        QWEN.parse(f"<tool_call>{body}</tool_call>")


@pytest.mark.parametrize(
    "text",
    [
        LS + "<tool_call>",
        LS + "</tool_call>",
        "</tool_call>" + LS,
        f"<tool_call>{LS}</tool_call>",
        f"<think>hm {LS}",
        LS.replace("</tool_call>", ""),
        LS * (MAX_CALLS + 1),
        "x" * 200_000,
    ],
)
def test_malformed_messages(text):
    with pytest.raises(MalformedMessage):
        QWEN.parse(text)


def test_one_malformed_call_voids_the_message():
    with pytest.raises(MalformedMessage):
        QWEN.parse(LS + "<tool_call>{}</tool_call>")


def test_observations_are_cut_where_asked():
    assert QwenToolCalls(5).result("abcdefgh")["content"] == "abcde [cut]"
    assert QWEN.result("abcdefgh")["content"] == "abcdefgh"
    with pytest.raises(ValueError, match="observation_chars"):
        QwenToolCalls(0)
