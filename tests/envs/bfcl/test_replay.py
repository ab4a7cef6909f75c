"""The reference solutions of all 800 tasks, and what must not pass, through the whole adapter."""

import pytest
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

from seeupo_recipe.envs.bfcl.calls import render
from seeupo_recipe.envs.bfcl.package import functions_of
from seeupo_recipe.seeding import stream


def successes(bfcl, play, scripts):
    return [task_id for task_id, texts in scripts if play(bfcl, task_id, texts)[1][2]]


@pytest.mark.parametrize("form", ["together", "one_by_one"])
def test_reference_solutions_pass_800_of_800(bfcl, play, texts_of, form, request):
    split = request.getfixturevalue(form)
    scripts = [(task.task_id, texts_of(split(task.ground_truth))) for task in bfcl.tasks.values()]
    assert len(scripts) == 800
    assert successes(bfcl, play, scripts) == [task_id for task_id, _ in scripts]


def test_empty_answers_never_pass(bfcl, play):
    scripts = [(task.task_id, ["Done."] * len(task.user_turns)) for task in bfcl.tasks.values()]
    assert successes(bfcl, play, scripts) == []


def test_truncated_answers_never_pass(bfcl, play, texts_of, together):
    scripts = [(task.task_id, texts_of(together(task.ground_truth))[:-1]) for task in bfcl.tasks.values()]
    assert successes(bfcl, play, scripts) == []


def test_answers_without_their_last_call_never_pass(bfcl, play, texts_of, together):
    def without_last_call(ground_truth):
        last = max(index for index, turn in enumerate(ground_truth) if turn)
        return [turn[:-1] if index == last else turn for index, turn in enumerate(ground_truth)]

    scripts = [(task.task_id, texts_of(together(without_last_call(task.ground_truth)))) for task in bfcl.tasks.values()]
    assert successes(bfcl, play, scripts) == []


def test_answers_of_another_task_never_pass(bfcl, play, texts_of, together):
    """Another scenario with the same API classes and as many user turns, so that nothing but the calls is wrong."""
    groups: dict[tuple, list] = {}
    for task in bfcl.tasks.values():
        groups.setdefault((task.category, frozenset(task.classes), len(task.user_turns)), []).append(task)
    scripts = []
    for group in groups.values():
        for task in group:
            others = [other for other in group if bfcl.cluster(other.task_id) != bfcl.cluster(task.task_id)]
            if others:
                other = others[int(stream("other", task.task_id).integers(len(others)))]
                scripts.append((task.task_id, texts_of(together(other.ground_truth))))
    assert len(scripts) > 600
    assert successes(bfcl, play, scripts) == []


def bare(task, turns):
    """Results and verdict of the package's executor and checker called directly, in this process."""
    functions = functions_of(task.classes)
    rendered = [[[render(call, functions) for call in message] for message in turn] for turn in turns]
    expected = [[render(call, functions) for call in turn] for turn in task.ground_truth]
    known = set(vars(multi_turn_utils))
    try:
        results = [
            result
            for turn in rendered
            for message in turn
            for result in multi_turn_utils.execute_multi_turn_func_call(
                message, task.config, task.classes, "bare", task.task_id, "long_context" in task.category
            )[0]
        ]
        entry = {"id": task.task_id, "initial_config": task.config, "involved_classes": task.classes}
        return results, multi_turn_checker.multi_turn_checker(rendered, expected, entry, "", "bare")
    finally:
        for name in set(vars(multi_turn_utils)) - known:
            delattr(multi_turn_utils, name)


def perturbed(task, rng):
    """The reference calls with one of them dropped, repeated, or moved to another place."""
    turns = [list(turn) for turn in task.ground_truth]
    acting = [index for index, turn in enumerate(turns) if turn]
    source = turns[acting[rng.integers(len(acting))]]
    place = int(rng.integers(len(source)))
    change = rng.integers(4)
    if change == 0:
        source.pop(place)
    elif change == 1:
        source.insert(place, source[place])
    elif change == 2:
        turns[rng.integers(len(turns))].append(source.pop(place))
    return turns


def test_results_and_verdicts_equal_the_bare_package(bfcl, play, texts_of, one_by_one):
    verdicts = []
    for task in bfcl.tasks.values():
        turns = one_by_one(perturbed(task, stream("perturb", task.task_id)))
        observations, (_, _, success, info) = play(bfcl, task.task_id, texts_of(turns))
        shown = [m["content"] for o in observations[1:] for m in o[0] if m["role"] == "tool"]
        results, verdict = bare(task, turns)
        assert shown == results, task.task_id
        assert (success, info["error_type"]) == (verdict["valid"], verdict.get("error_type")), task.task_id
        verdicts.append(success)
    assert 100 < sum(verdicts) < 700
