import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.envs.appworld.mini import tasks
from seeupo_recipe.envs.appworld.mini.demonstrator import GIVE_UP, act, read_instruction, relabel
from seeupo_recipe.envs.appworld.mini.families import FAMILIES
from seeupo_recipe.envs.appworld.mini.vocabulary import pieces, spaced_pieces, vocabulary

PROJECT = Path(__file__).parents[3]
SPECS = {split: tasks.task_specs(split) for split in tasks.SCENARIOS}
ALL = [spec for specs in SPECS.values() for spec in specs]


def test_breadth():
    assert len(FAMILIES) >= 6
    assert len({family.app for family in FAMILIES}) >= 4
    assert all(2 <= len(family.turns) <= 6 for family in FAMILIES)
    kinds = {spec.family: spec.question.answer is None for spec in ALL}
    assert set(kinds.values()) == {True, False}
    for specs in SPECS.values():
        assert {spec.family for spec in specs} == {family.name for family in FAMILIES}


def test_splits_are_disjoint_and_made_of_scenarios_of_three():
    assert len({spec.id for spec in ALL}) == len(ALL)
    for specs in SPECS.values():
        scenarios = {}
        for spec in specs:
            scenario, number = spec.id.split("_")
            scenarios.setdefault(scenario, []).append((int(number), spec.family, tuple(spec.person.items())))
        for members in scenarios.values():
            assert [number for number, _, _ in members] == [1, 2, 3]
            assert len({rest for _, *rest in map(tuple, members) for rest in [tuple(rest)]}) == 1
    assert len(SPECS["dev"]) == 57


def test_tasks_of_a_scenario_differ():
    for specs in SPECS.values():
        for i in range(0, len(specs), 3):
            questions = [(spec.instruction, spec.question.balance) for spec in specs[i : i + 3]]
            assert len(set(questions)) == 3


def test_specifications_do_not_depend_on_the_process():
    program = "from seeupo_recipe.envs.appworld.mini.tasks import content_hash; print(content_hash())"
    for hash_seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(PROJECT)}
        output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
        assert output.strip() == tasks.content_hash()


def test_every_instruction_is_read_back():
    for spec in ALL:
        family, values = read_instruction(spec.instruction)
        assert family.name == spec.family
        assert values == {name: str(value) for name, value in spec.question.values.items()}


def test_an_unknown_instruction_is_refused():
    with pytest.raises(ValueError, match="no family"):
        read_instruction("Make me a sandwich.")


def test_the_target_of_every_task_is_among_its_records():
    for spec in ALL:
        values, records = spec.question.values, spec.question.records
        texts = {str(value) for _, _, fields in records for value in fields.values()}
        for name in {"title", "project", "name"} & set(values):
            assert any(values[name] in text for text in texts)
        if spec.question.answer is not None and spec.family in ("contact", "note"):
            assert spec.question.answer in texts


def test_evaluation_programs_name_requirements_that_nothing_done_fails():
    for family, source in tasks.build_input(["dev"])["programs"].items():
        (function,) = ast.parse(source).body
        assert function.name == "evaluate", family
        requirements = re.findall(r'with test\("(.*?)"\)', source)
        assert len(requirements) == len(set(requirements)) == source.count("with test(") >= 1


@given(st.text() | st.text(" \n\tab1=(.`").map("```python\n{}".format))
def test_tokens_lose_nothing_but_spaces(text):
    assert "".join(spaced_pieces(text)) == text
    without_spaces = [re.sub(r"[^\S\n]", "", piece) for piece in spaced_pieces(text)]
    assert [piece for piece in without_spaces if piece] == pieces(text)


def test_actions_are_short_and_in_the_vocabulary():
    known = set(vocabulary())
    assert len(known) < 400
    for spec in ALL:
        assert set(pieces(spec.instruction)) <= known
    values = {"title": "maple", "project": "river", "field": "sex", "name": "Eva", "amount": "3", "id": "4"}
    values |= {"project_id": "2", "email": "ember@mail.com", "password": "tiger", "answer": "Stone"}
    for family in FAMILIES:
        for turn in family.turns:
            message = f"```python\n{turn.code.format(**values)}\n```"
            action = pieces(message)
            assert "".join(action) == message
            assert len(action) <= 40
            assert set(action) <= known
            ast.parse(turn.code.format(**values))


def play(instruction, observations, noise=0.0, seed=0):
    """Drive a demonstration with canned observations; returns its code blocks."""
    actions = act(instruction, np.random.default_rng(seed), noise)
    codes, observation = [], None
    for canned in [*observations, None]:
        try:
            codes.append(actions.send(observation))
        except StopIteration:
            break
        observation = canned
    return codes


NOTE = "What does my note coral ocean say?"
NOTE_OUTPUTS = ["simple_note cedar\nspotify delta", "Execution successful.", "4 ember\n2 coral ocean", "birch", ""]


def test_a_demonstration_copies_from_what_it_sees():
    codes = play(NOTE, NOTE_OUTPUTS)
    assert len(codes) == 5
    assert 'apis.simple_note.login(username=apis.supervisor.show_profile()["email"],password="cedar")' in codes[1]
    assert "note_id=2," in codes[3]
    assert codes[4] == 'apis.supervisor.complete_task(answer="birch")'


def test_a_demonstration_gives_up_when_it_sees_an_error():
    codes = play(NOTE, [*NOTE_OUTPUTS[:2], "Error: NameError: name 't' is not defined"])
    assert codes[-1] == GIVE_UP and len(codes) == 4


def test_noise_makes_errors_at_about_its_rate():
    wrong = sum(play(NOTE, NOTE_OUTPUTS, noise=0.3, seed=seed) != play(NOTE, NOTE_OUTPUTS) for seed in range(400))
    # giving up: 1 - (1 - 0.3 / 4) ** 4; two of two lines wrong half the time, twice; a wrong answer
    right = (1 - 0.3 / 4) ** 4 * (1 - 0.3 / 2) ** 2 * (1 - 0.3 * 15 / 16)
    assert abs(wrong / 400 - (1 - right)) < 0.1


def test_a_demonstration_is_a_function_of_its_stream():
    assert play(NOTE, NOTE_OUTPUTS, 0.5, seed=7) == play(NOTE, NOTE_OUTPUTS, 0.5, seed=7)


def test_a_relabelled_demonstration_is_the_demonstration_of_the_relabelled_task():
    codes = play(NOTE, NOTE_OUTPUTS)
    conversation = [{"role": "user", "content": text} for text in (NOTE, *NOTE_OUTPUTS, *codes)]
    texts = [message["content"] for message in relabel(conversation, np.random.default_rng(1))]
    instruction, outputs = texts[0], texts[1 : 1 + len(NOTE_OUTPUTS)]
    assert instruction != NOTE
    assert play(instruction, outputs) == texts[1 + len(NOTE_OUTPUTS) :]
    assert conversation[0]["content"] == NOTE
