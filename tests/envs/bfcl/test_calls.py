import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.envs.bfcl.calls import MAX_INT, Call, RefusedCall, call_from_python, render
from seeupo_recipe.envs.bfcl.package import functions_of

FILES = functions_of(("GorillaFileSystem",))
POSTS = functions_of(("TwitterAPI",))

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
literals = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: json.dumps(value).count("[") + json.dumps(value).count("{") <= 8)


@given(literals)
def test_rendered_text_is_one_call_with_the_same_arguments(value):
    try:
        text = render(Call("cat", {"file_name": value}), FILES)
    except RefusedCall as error:
        assert "Unicode" in str(error)
        return
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call) and node.func.id == "cat" and node.args == []
    assert {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords} == {"file_name": value}
    assert text.isascii() and text.count("(") == 1


@pytest.mark.parametrize(
    "call",
    [
        Call("exec", {}),
        Call("__init__", {}),
        Call("_load_scenario", {"scenario": {}}),
        Call("cat.__globals__", {}),
        Call("cat(", {}),
        Call("", {}),
        Call("cat", {"file_name=open('x','w'),b": 1}),
        Call("cat", {"": 1}),
        Call("cat", {"lambda": 1}),
        Call("cat", {"ﬁle_name": 1}),
        Call("cat", {"file_name": float("inf")}),
        Call("cat", {"file_name": float("nan")}),
        Call("cat", {"file_name": MAX_INT + 1}),
        Call("cat", {"file_name": "\ud800"}),
        Call("cat", {"file_name": {"\ud800": 1}}),
        Call("cat", {"file_name": {1: 1}}),
        Call("cat", {"file_name": ("tuple",)}),
        Call("cat", {"file_name": b"bytes"}),
        Call("cat", {"file_name": print}),
        Call("cat", {"file_name": "x" * 30_000}),
        Call("cat", {"file_name": [[[[[[[[[[1]]]]]]]]]]}),
    ],
)
def test_everything_else_is_refused(call):
    with pytest.raises(RefusedCall):
        render(call, FILES)


def test_a_string_with_a_call_in_it_stays_a_string():
    text = render(Call("echo", {"content": "see ls(a) and cat('x')", "file_name": "f"}), FILES)
    assert ast.literal_eval(ast.parse(text, mode="eval").body.keywords[0].value) == "see ls(a) and cat('x')"
    assert "ls(" not in text


def test_mutable_defaults_are_spelled_out():
    assert render(Call("post_tweet", {"content": "hi"}), POSTS) == "post_tweet(content='hi', tags=[], mentions=[])"


def test_positional_reference_calls_get_their_parameter_names():
    assert call_from_python("sort('report.txt')", FILES) == Call("sort", {"file_name": "report.txt"})
    assert call_from_python("mv('a', destination='b')", FILES) == Call("mv", {"source": "a", "destination": "b"})


def test_positional_names_come_from_the_signature_not_from_the_documents():
    """The documents of purchase_insurance list its parameters in another order."""
    travel = functions_of(("TravelAPI",))
    call = call_from_python("purchase_insurance('token', 'basic', 'booking', 5.0, 'card')", travel)
    assert (call.arguments["booking_id"], call.arguments["insurance_cost"]) == ("booking", 5.0)


@pytest.mark.parametrize(
    "text",
    [
        "cat",
        "cat('a').x",
        "cat(open('a'))",
        "cat(**{'file_name': 'a'})",
        "cat(*['a'])",
        "cat('a', 'b')",
        "cat('a', file_name='b')",
        "unknown(1)",
        "cat('a'); cat('b')",
        "cat(" + "[" * 5000 + "]" * 5000 + ")",
    ],
)
def test_python_text_that_is_not_one_literal_call_is_refused(text):
    with pytest.raises(RefusedCall):
        call_from_python(text, FILES)


def test_every_reference_call_survives_the_gate(bfcl):
    calls = [
        (call, functions_of(task.classes)) for task in bfcl.tasks.values() for t in task.ground_truth for call in t
    ]
    assert len(calls) == 4625
    for call, functions in calls:
        again = call_from_python(render(call, functions).replace("\\x28", "("), functions)
        assert {name: again.arguments[name] for name in call.arguments} == call.arguments
