import json

import pytest

from seeupo_recipe.envs.base import Action, Benchmark, Environment, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.qwen import to_text


@pytest.fixture
def start(request):
    """start(benchmark, task_id) -> an environment that has been reset, closed after the test."""

    def begin(benchmark, task_id):
        environment = benchmark.make(EpisodeKey(0, 0, task_id, 0))
        request.addfinalizer(environment.close)
        environment.reset()
        return environment

    return begin


def say(environment, *calls, text="Done."):
    observation = environment.step(Action(to_text(list(calls)) if calls else text))
    return [message["content"] for message in observation.messages]


def test_protocols(bfcl):
    assert isinstance(bfcl, Benchmark) and bfcl.blocking
    assert isinstance(bfcl.make(EpisodeKey(0, 0, "multi_turn_base_0", 0)), Environment)
    standard = load_benchmark("bfcl")
    assert (standard.max_turns, standard.max_new_tokens) == (10, 4000)
    for option in ("max_turns", "max_new_tokens"):
        with pytest.raises(ValueError, match=option):
            load_benchmark("bfcl", **{option: 0})


def test_prompt_offers_json_schema_tools(bfcl):
    prompt = bfcl.make(EpisodeKey(0, 0, "multi_turn_base_0", 0)).reset()
    assert [message["role"] for message in prompt.messages] == ["user"]
    names = {tool["function"]["name"] for tool in prompt.tools}
    assert {"cd", "mkdir", "mv", "post_tweet"} <= names
    text = json.dumps(prompt.tools)
    assert '"type": "dict"' not in text and '"type": "float"' not in text and '"type": "object"' in text
    for tool in prompt.tools:
        assert tool["type"] == "function" and "Returns: {" in tool["function"]["description"]


def test_user_turns_follow_messages_without_calls(bfcl, start):
    environment = start(bfcl, "multi_turn_base_0")
    for turn in bfcl.tasks["multi_turn_base_0"].user_turns[1:]:
        observation = environment.step(Action("Done."))
        assert observation.messages == turn and not observation.done
    last = environment.step(Action(""))
    assert last.done and last.messages == ()
    with pytest.raises(RuntimeError, match="after the end"):
        environment.step(Action("Done."))


def test_held_out_functions_come_back_in_their_turn(bfcl, start):
    task = bfcl.tasks["multi_turn_miss_func_0"]
    assert task.held_out == {"sort": 3} and task.ground_truth[2] == ()
    environment = start(bfcl, task.task_id)
    assert "sort" not in {tool["function"]["name"] for tool in environment.reset().tools}
    seen = [say(environment) for _ in range(3)]
    assert '"name": "sort"' not in seen[0][0] + seen[1][0]
    assert '"name": "sort"' in seen[2][0] and "updated some more functions" in seen[2][0]


def test_every_held_out_function_is_hidden_first_and_offered_once(bfcl):
    tasks = [task for task in bfcl.tasks.values() if task.category == "multi_turn_miss_func"]
    assert all(task.held_out for task in tasks)
    for task in tasks:
        offered = {tool["function"]["name"] for tool in task.tools}
        for name, turn in task.held_out.items():
            assert name not in offered and task.user_turns[turn][0]["role"] == "user"
            assert f'"name": "{name}"' in task.user_turns[turn][0]["content"]


def test_calls_before_their_function_is_offered_are_counted(bfcl, start):
    environment = start(bfcl, "multi_turn_miss_func_0")
    say(environment, Call("sort", {"file_name": "final_report.pdf"}))
    assert environment.score().info["calls_before_offered"] == 1


def test_f21_a_call_sees_the_state_that_earlier_calls_made(bfcl, start):
    task_id = next(t.task_id for t in bfcl.tasks.values() if "TicketAPI" in t.classes and "TradingBot" in t.classes)
    environment = start(bfcl, task_id)
    say(environment, Call("ticket_login", {"username": "ada", "password": "x"}))
    (created,) = say(environment, Call("create_ticket", {"title": "first"}))
    number = json.loads(created)["id"]
    _, seen = say(
        environment,
        Call("resolve_ticket", {"ticket_id": number, "resolution": "fixed"}),
        Call("get_ticket", {"ticket_id": number}),
    )
    assert json.loads(seen)["resolution"] == "fixed"
    say(environment)
    assert json.loads(say(environment, Call("get_ticket", {"ticket_id": number}))[0])["resolution"] == "fixed"


def test_f22_fewer_messages_give_the_same_score(bfcl, play, texts_of, together, one_by_one):
    for task in bfcl.tasks.values():
        if task.category == "multi_turn_base":
            few, many = (play(bfcl, task.task_id, texts_of(f(task.ground_truth))) for f in (together, one_by_one))
            assert few[1][:3] == many[1][:3]
            assert few[1][3]["messages"] <= many[1][3]["messages"]


def test_f22_the_step_limit_is_a_flagged_failure(bfcl, play, texts_of, together):
    task = bfcl.tasks["multi_turn_base_0"]
    texts = texts_of(together(task.ground_truth))
    for limit in range(1, len(texts) + 2):
        observations, (_, score, success, info) = play(load_benchmark("bfcl", max_turns=limit), task.task_id, texts)
        fits = limit >= len(texts)
        assert (score, success, info["truncated"]) == (float(fits), fits, not fits)
        assert info["error_type"] == (None if fits else "multi_turn:force_terminated")
        assert len(observations) - 1 == min(limit, len(texts)) and observations[-1][1]


def test_call_free_messages_count_towards_the_limit(bfcl, play):
    benchmark = load_benchmark("bfcl", max_turns=2)
    info = play(benchmark, "multi_turn_base_0", ["Done."] * 4)[1][3]
    assert info["messages"] == 2 and info["truncated"]


def test_an_episode_that_is_abandoned_counts_as_truncated(bfcl, start):
    environment = start(bfcl, "multi_turn_base_0")
    say(environment)
    outcome = environment.score()
    assert not outcome.success and outcome.info["truncated"]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>ls()</tool_call>",
        "<tool_call>",
        to_text([Call("ls", {})]).replace("arguments", "args"),
        "<tool_call>" + "[" * 3000 + "</tool_call>",
        "x" * 200_000,
    ],
)
def test_malformed_messages_come_back_as_errors_and_change_nothing(bfcl, start, text):
    environment = start(bfcl, "multi_turn_base_0")
    observation = environment.step(Action(text))
    assert [message["role"] for message in observation.messages] == ["tool"] and not observation.done
    assert set(json.loads(observation.messages[0]["content"])) == {"error"}
    assert environment.score().info["malformed_messages"] == 1


def test_a_message_cut_at_the_token_limit_is_not_executed_and_does_not_end_the_turn(bfcl, start):
    environment = start(bfcl, "multi_turn_base_0")
    for text in (to_text([Call("cd", {"folder": "document"})]), "Done"):
        observation = environment.step(Action(text, complete=False))
        assert "token limit" in observation.messages[0]["content"] and not observation.done
    assert "workspace" in say(environment, Call("pwd", {}))[0]
    assert environment.score().info["incomplete_messages"] == 2


def test_refused_calls_come_back_in_place_and_the_others_run(bfcl, start):
    environment = start(bfcl, "multi_turn_base_0")
    answers = say(
        environment, Call("pwd", {}), Call("eval", {"source": "1"}), Call("cd", {"class": 1}), Call("pwd", {})
    )
    assert answers[0] == answers[3] and "workspace" in answers[0]
    assert "unknown function 'eval'" in answers[1] and "invalid argument name 'class'" in answers[2]
    assert environment.score().info["refused_calls"] == 2


def test_wrong_arguments_are_answered_by_the_executor(bfcl, start):
    environment = start(bfcl, "multi_turn_base_0")
    assert say(environment, Call("cd", {"path": "document"}))[0].startswith("Error during execution")


@pytest.mark.parametrize(
    ("change", "passed", "error_type"),
    [
        (lambda turns: turns[2].pop(), 2, "multi_turn:empty_turn_model_response"),
        (lambda turns: turns[0].pop(), 0, "multi_turn:instance_state_mismatch"),
        (lambda turns: turns[1].pop(), 1, "multi_turn:execution_response_mismatch"),
        (lambda turns: turns[3].append(Call("mkdir", {"dir_name": "extra"})), 3, "multi_turn:instance_state_mismatch"),
        (lambda turns: None, 4, None),
    ],
)
def test_progress_is_the_number_of_turns_before_the_first_failure(
    bfcl, play, texts_of, together, change, passed, error_type
):
    turns = [list(turn) for turn in bfcl.tasks["multi_turn_base_0"].ground_truth]
    change(turns)
    _, (reward, _, success, info) = play(
        load_benchmark("bfcl", max_turns=50, reward="shaped"), "multi_turn_base_0", texts_of(together(turns))
    )
    assert (info["passed_user_turns"], info["error_type"]) == (passed, error_type)
    assert reward == 0.5 * passed / 4 + success


def test_facts_about_weaknesses_of_the_checker_are_in_the_record(bfcl, start):
    environment = start(bfcl, "multi_turn_miss_func_0")
    say(environment, Call("pwd", {}), Call("pwd", {}))
    say(environment, Call("pwd", {}))
    say(environment)
    say(environment, Call("pwd", {}))
    say(environment)
    say(environment, Call("pwd", {}))
    say(environment, Call("ls", {}))
    info = environment.score().info
    assert (info["repeated_calls"], info["must_not_act_turns_with_calls"], info["calls"]) == (2, 1, 6)
    assert all(isinstance(value, (str, int, float, bool, type(None))) for value in info.values())


def test_content_that_looks_like_a_call_is_stored_unchanged(bfcl, start):
    """bfcl-eval's executor rewrites name( inside strings; the gate writes them so that it cannot."""
    environment = start(bfcl, "multi_turn_base_0")
    say(environment, Call("touch", {"file_name": "a"}), Call("echo", {"content": "run ls(a) now", "file_name": "a"}))
    assert json.loads(say(environment, Call("cat", {"file_name": "a"}))[0]) == {"file_content": "run ls(a) now"}
