import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.envs.base import Action, Benchmark, Environment, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl import mini
from seeupo_recipe.envs.bfcl.calls import Call, MalformedMessage, render
from seeupo_recipe.envs.bfcl.mini import UNKNOWN, demonstrate, make_task, task_ids, vocabulary
from seeupo_recipe.envs.bfcl.mini_domains import DOMAINS
from seeupo_recipe.envs.bfcl.mini_language import ACTIONS, OBSERVATION_TOKENS, MiniLanguage, tokenize, write_call
from seeupo_recipe.envs.bfcl.package import functions_of
from seeupo_recipe.seeding import stream

VOCABULARY = frozenset(vocabulary())
LANGUAGE = MiniLanguage()


@pytest.fixture(scope="module")
def bfcl_mini():
    return load_benchmark("bfcl-mini")


@pytest.fixture(scope="module")
def perfect():
    """Faultless demonstrations of all train and test tasks, and of some warm ones."""
    ids = [*task_ids("train"), *task_ids("test"), *task_ids("warm")[:400]]
    return {task_id: demonstrate(make_task(task_id), stream("perfect", task_id), noise=0.0) for task_id in ids}


def texts(demonstration):
    yield from (message["content"] for message in demonstration.prompt.messages)
    for action, observation in demonstration.steps:
        yield action.text
        yield from (message["content"] for message in observation.messages)


def test_protocols(bfcl_mini):
    assert isinstance(bfcl_mini, Benchmark)
    assert isinstance(bfcl_mini.make(EpisodeKey(0, 0, "train_files_0", 0)), Environment)
    assert (bfcl_mini.max_turns, bfcl_mini.blocking) == (10, True)
    assert load_benchmark("bfcl-mini").version == bfcl_mini.version
    with pytest.raises(KeyError):
        bfcl_mini.make(EpisodeKey(0, 0, "train_files_1", 0))


def test_faultless_demonstrations_solve_every_task(perfect):
    assert [task_id for task_id, demonstration in perfect.items() if not demonstration.outcome.success] == []


def test_tasks_have_the_promised_size(perfect):
    classes = {make_task(task_id).classes for task_id in perfect}
    assert len(classes) == len(DOMAINS) == 6
    for task_id, demonstration in perfect.items():
        assert 2 <= len(make_task(task_id).user_turns) <= 4 and len(demonstration.steps) <= 10
        assert demonstration.prompt.tools == () and demonstration.steps[-1][1].done
    assert statistics.mean(sum(len(tokenize(text)) for text in texts(d)) for d in perfect.values()) < 100
    assert max(len(tokenize(action.text)) for d in perfect.values() for action, _ in d.steps) < mini.MAX_NEW_TOKENS


def test_no_task_is_too_short_or_too_long():
    for split in mini.SPLIT_SIZES:
        for task in map(make_task, task_ids(split)):
            assert 2 <= len(task.ground_truth) == len(task.user_turns) <= 4 and all(task.ground_truth)
            assert sum(len(turn) + 1 for turn in task.ground_truth) <= 10


def test_roles_are_user_and_tool(perfect):
    roles = {m["role"] for d in perfect.values() for _, observation in d.steps for m in observation.messages}
    assert roles == {"user", "tool"}


def test_vocabulary_is_complete_and_reproducible(perfect):
    assert vocabulary() == vocabulary() and len(vocabulary()) == len(VOCABULARY) < 450
    assert vocabulary()[0] == UNKNOWN
    unknown = {token for d in perfect.values() for text in texts(d) for token in tokenize(text)} - VOCABULARY
    assert unknown == set()


def test_vocabulary_is_complete_for_any_policy_over_it(bfcl_mini):
    """Random well-formed calls from the vocabulary never make an observation leave it."""
    rng = stream("random policy")
    words = [token for token in vocabulary() if token.isalnum() and not token.isdecimal()]
    seen = set()
    for task_id in task_ids("train")[:300]:
        environment = bfcl_mini.make(EpisodeKey(0, 0, task_id, 0))
        environment.reset()
        functions = [name for name in ACTIONS if name in functions_of(make_task(task_id).classes)]
        done = False
        while not done:
            name = functions[rng.integers(len(functions))]
            tokens = [
                list(slot.choices)[rng.integers(len(slot.choices))]
                if slot.kind == "choice"
                else str(rng.integers(100))
                if slot.kind == "number"
                else words[rng.integers(len(words))]
                for slot in ACTIONS[name]
            ]
            text = "done" if rng.random() < 0.2 else " ".join([name, *tokens])
            observation = environment.step(Action(text))
            done = observation.done
            for message in observation.messages:
                shown = tokenize(message["content"])
                seen.update(shown)
                assert message["role"] == "user" or len(shown) <= OBSERVATION_TOKENS
        environment.close()
    assert seen - VOCABULARY == set()


def test_splits_are_disjoint_and_balanced(bfcl_mini):
    contents = {}
    for split, size in mini.SPLIT_SIZES.items():
        ids = bfcl_mini.task_ids(split)
        assert len(ids) == len(set(ids)) == size
        tasks = [make_task(task_id) for task_id in ids]
        contents[split] = {json.dumps([task.config, task.user_turns]) for task in tasks}
        shares = [sum(id_.split("_")[1] == domain for id_ in ids) / size for domain in DOMAINS]
        assert max(shares) - min(shares) < 0.02
    assert not contents["train"] & contents["test"]
    assert not contents["warm"] & (contents["train"] | contents["test"])


def test_tasks_depend_on_their_id_only():
    first = make_task("train_messages_3")
    make_task.cache_clear()
    assert make_task("train_messages_3") == first


@pytest.mark.parametrize("policy", ["done", "error", "first call only"])
def test_trivial_policies_never_succeed(bfcl_mini, policy):
    for task_id in task_ids("test"):
        environment = bfcl_mini.make(EpisodeKey(0, 0, task_id, 0))
        environment.reset()
        first = write_call(make_task(task_id).ground_truth[0][0])
        done, number = False, 0
        while not done:
            text = {"done": "done", "error": "; done", "first call only": first if number == 0 else "done"}[policy]
            done = environment.step(Action(text)).done
            number += 1
        assert not environment.score().success
        environment.close()


def test_a_user_turn_without_its_last_call_fails(bfcl_mini):
    rng = stream("negatives")
    for task_id in task_ids("test"):
        task = make_task(task_id)
        turn = int(rng.integers(len(task.ground_truth)))
        environment = bfcl_mini.make(EpisodeKey(0, 0, task_id, 0))
        environment.reset()
        for index, calls in enumerate(task.ground_truth):
            for call in calls[:-1] if index == turn else calls:
                environment.step(Action(write_call(call)))
            environment.step(Action("done"))
        assert not environment.score().success, task_id
        environment.close()


def test_several_calls_fit_in_one_message(bfcl_mini):
    for task_id in task_ids("test"):
        environment = bfcl_mini.make(EpisodeKey(0, 0, task_id, 0))
        environment.reset()
        for calls in make_task(task_id).ground_truth:
            observation = environment.step(Action(" ; ".join(map(write_call, calls))))
            assert [message["role"] for message in observation.messages] == ["tool"] * len(calls)
            environment.step(Action("done"))
        assert environment.score().success
        environment.close()


def test_noise_lowers_success_gradually():
    rates = []
    for noise in (0.0, 0.15, 0.45, 1.0):
        ids = task_ids("warm")[:200]
        demos = [demonstrate(make_task(task_id), stream("noise", task_id), noise) for task_id in ids]
        rates.append(statistics.mean(demo.outcome.success for demo in demos))
        assert all(len(demo.steps) <= 10 and demo.steps[-1][1].done for demo in demos)
    assert rates[0] == 1 and rates == sorted(rates, reverse=True)
    assert 0.4 < rates[1] < 0.9 and rates[3] < 0.2
    with pytest.raises(ValueError, match="probability"):
        demonstrate(make_task("warm_files_0"), stream("x"), 1.5)


def test_demonstrations_repeat_from_their_stream():
    task = make_task("warm_trading_4")
    assert demonstrate(task, stream("a"), 0.5) == demonstrate(task, stream("a"), 0.5)


def test_every_action_is_an_api_method_with_matching_parameters():
    functions = {name for api_class, _ in DOMAINS.values() for name in functions_of((api_class,))}
    assert set(ACTIONS) <= functions
    for api_class, _ in DOMAINS.values():
        for name, parameters in functions_of((api_class,)).items():
            if name in ACTIONS:
                assert {slot.name for slot in ACTIONS[name]} <= set(parameters)


@given(st.text() | st.lists(st.sampled_from([*ACTIONS, ";", "done", "1", "notes", "99999", "²"])).map(" ".join))
def test_any_text_is_read_or_is_malformed(text):
    try:
        calls = LANGUAGE.parse(text)
    except MalformedMessage:
        return
    everything = functions_of(tuple(api_class for api_class, _ in DOMAINS.values()))
    for call in calls:
        assert render(call, everything).startswith(f"{call.name}(")
        assert LANGUAGE.parse(write_call(call)) == [call]


@pytest.mark.parametrize(
    "text", ["", ";", "done done", "cp a", "cp a b c", "cp a b ;", "fillFuelTank x", "fillFuelTank 100"]
)
def test_malformed_messages(text):
    with pytest.raises(MalformedMessage):
        LANGUAGE.parse(text)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("None", "ok"),
        ('{"error": "no such file"}', "error"),
        ("Error during execution: x", "error"),
        ('{"a": true, "b": [1, 2.0, 0.5], "c": "x \'y/z\'", "d": 54321}', "yes 1 2 x y z"),
        ('{"m": {}}', "none"),
        ('{"a": "1 2 3 4 5 6 7 8 9 10"}', "1 2 3 4 5 6 7 8"),
    ],
)
def test_results_are_shown_as_a_few_words(result, shown):
    assert LANGUAGE.result(result)["content"] == shown


def test_calls_are_read_by_position():
    assert LANGUAGE.parse("lockDoors lock all ; cp notes archive") == [
        Call("lockDoors", {"unlock": False, "door": ["driver", "passenger", "rear_left", "rear_right"]}),
        Call("cp", {"source": "notes", "destination": "archive"}),
    ]
