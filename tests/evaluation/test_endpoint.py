import pytest

from seeupo_recipe.agents.chat import ChatPlayer
from seeupo_recipe.agents.endpoint import ChatEndpoint, ContextTooLong, EndpointError, base_url
from seeupo_recipe.agents.episode import CONTEXT_LENGTH, Limits
from seeupo_recipe.envs.base import EnvironmentFailure, EpisodeKey, Observation, Outcome, Prompt
from seeupo_recipe.models.sampling import SamplingParams

TOOLS = ({"type": "function", "function": {"name": "f", "parameters": {}}},)


NARROW = SamplingParams(0.7, 0.9, 5)


def ask(server, params=NARROW, **options):
    client = ChatEndpoint(server.url, "tiny", pause=0.0)
    return client.complete([{"role": "user", "content": "hi"}], options.get("tools", ()), params, max_tokens=9, seed=3)


def test_a_request_holds_the_sampling_choices_and_the_key_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    answer = ask(server, tools=TOOLS)
    assert (answer.text, answer.complete, answer.tokens) == ("Done.", True, 7)
    (request,) = server.requests
    assert request == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 3,
        "tools": list(TOOLS),
    }
    assert server.headers[0]["Authorization"] == "Bearer sk-1"
    ask(server, SamplingParams())
    assert "tools" not in server.requests[1] and "top_k" not in server.requests[1]


def test_calls_that_the_endpoint_parsed_are_written_in_qwens_form(server):
    call = {"id": "c1", "type": "function", "function": {"name": "cd", "arguments": '{"folder": "a"}'}}
    server.answer = lambda body: {"role": "assistant", "content": None, "tool_calls": [call], "finish_reason": "length"}
    answer = ask(server)
    assert answer.text == '<tool_call>\n{"name": "cd", "arguments": {"folder": "a"}}\n</tool_call>'
    assert answer.message == {"role": "assistant", "content": "", "tool_calls": [call]} and not answer.complete


def test_overload_is_tried_again_and_refusals_are_not(server):
    codes = [429, 503]
    server.answer = lambda body: (codes.pop(), "busy") if codes else {"content": "ok"}
    assert ask(server).text == "ok" and len(server.requests) == 3
    server.answer = lambda body: (401, {"error": "no such key"})
    with pytest.raises(EndpointError, match="answered 401: .*no such key"):
        ask(server)
    assert len(server.requests) == 4
    server.answer = lambda body: (500, "broken")
    with pytest.raises(EndpointError, match="answered 500"):
        ask(server)
    server.answer = lambda body: (400, {"message": "This model's maximum context length is 10 tokens"})
    with pytest.raises(ContextTooLong):
        ask(server)


@pytest.mark.parametrize(
    "reply",
    [
        "not json",
        {},
        {"choices": []},
        {"choices": [{"message": "x", "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": [1]}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "x", "tool_calls": [{"id": "a"}]}, "finish_reason": "stop"}]},
    ],
)
def test_an_answer_of_another_form_is_one_line(server, reply):
    server.answer = lambda body: (200, reply)
    with pytest.raises(EndpointError, match="not a chat completion|did not answer in JSON") as error:
        ask(server)
    assert "\n" not in str(error.value)


def test_the_only_model_is_taken_and_several_need_a_name(server):
    assert ChatEndpoint(server.url).model == "tiny"
    server.models = ["a", "b"]
    with pytest.raises(EndpointError, match="serves 2 models; set MODEL_NAME to one of a, b"):
        ChatEndpoint(server.url)
    with pytest.raises(EndpointError, match="does not answer"):
        ChatEndpoint("http://127.0.0.1:9", pause=0.0)


def test_urls():
    assert base_url("http://me:secret@host:8000/?key=1") == "http://host:8000/v1"
    assert base_url("https://host/api/v3/") == "https://host/api/v3"
    for wrong in ("ftp://host", "http://", "host:8000"):
        with pytest.raises(EndpointError, match="not an http"):
            base_url(wrong)


class Scripted:
    """One task; answers every message with the same observation, breaks on ``break``."""

    name, version, max_turns, max_new_tokens, blocking = "scripted", "1", 4, 9, False

    def __init__(self, observation):
        self.observation, self.actions = observation, []

    def make(self, key):
        return self

    def reset(self):
        return Prompt(({"role": "user", "content": "go"},), TOOLS)

    def step(self, action):
        if action.text == "break":
            raise EnvironmentFailure("broken")
        self.actions.append(action)
        return Observation(self.observation, done=len(self.actions) == 3)

    def score(self):
        return Outcome(1.0, 0.5, False, {"x": 1})

    def close(self):
        self.closed = True


def play(server, benchmark, style="react"):
    player = ChatPlayer(ChatEndpoint(server.url, "tiny", pause=0.0), Limits(4, 100, 9), SamplingParams(), style)
    return player.play(benchmark, EpisodeKey(0, 0, "t", 1))


def test_an_episode_goes_on_until_the_environment_ends_it(server):
    server.answer = lambda body: {"content": f"<think>a</think>m{len(server.requests)}"}
    benchmark = Scripted(({"role": "tool", "content": "seen"},))
    facts = play(server, benchmark, "reasoning_augmented")
    assert [a.text for a in benchmark.actions] == [f"<think>a</think>m{i}" for i in (1, 2, 3)]
    assert [m["content"] for m in facts["messages"]] == ["go", "m1", "seen", "m2", "seen", "m3", "seen"]
    assert server.requests[2]["messages"] == facts["messages"][:5], "no later turn sees earlier thinking"
    assert (facts["turns"], facts["sampled_tokens"], facts["score"], facts["sample"]) == (3, 21, 0.5, 1)
    assert len({request["seed"] for request in server.requests}) == 3 and benchmark.closed


def test_every_call_gets_an_answer_with_its_id_even_if_the_message_was_refused(server):
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{"}} for i in range(3)]
    server.answer = lambda body: {"content": "", "tool_calls": calls}
    facts = play(server, Scripted(({"role": "tool", "content": "bad"}, {"role": "user", "content": "next"})))
    assert [(m["role"], m.get("tool_call_id")) for m in facts["messages"][2:6]] == [
        ("tool", "c0"),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]


def test_failures_of_the_environment_and_a_full_context_end_the_episode(server):
    server.answer = lambda body: {"content": "break"}
    facts = play(server, Scripted(()))
    assert facts["failure"] == "broken" and facts["score"] is None
    full = (400, "maximum context length")
    server.answer = lambda body: {"content": "a"} if len(body["messages"]) == 1 else full
    facts = play(server, Scripted(()))
    assert facts["stop_reason"] == CONTEXT_LENGTH and facts["turns"] == 1 and facts["score"] == 0.5
    server.answer = lambda body: full
    with pytest.raises(EndpointError, match="not even a task's first prompt and benchmark.max_new_tokens=9 fit"):
        play(server, Scripted(()))
