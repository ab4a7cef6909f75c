"""The real engine: oracle solutions, do-nothing and wrong agents, and equality with AppWorld's own class."""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from seeupo_recipe.envs.appworld import appworld_mini
from seeupo_recipe.envs.appworld.actions import python_block
from seeupo_recipe.envs.appworld.mini import tasks
from seeupo_recipe.envs.appworld.mini.demonstrator import demonstrate
from seeupo_recipe.envs.appworld.mini.vocabulary import pieces
from seeupo_recipe.envs.appworld.worlds import DATA, VENV
from seeupo_recipe.envs.base import Action, EnvironmentFailure, EpisodeKey
from seeupo_recipe.seeding import stream

pytestmark = [pytest.mark.appworld, pytest.mark.slow, pytest.mark.timeout(900)]

THREADS = 8


@pytest.fixture(scope="module")
def bench(appworld_installed):
    benchmark = appworld_mini(worlds=THREADS, block_seconds=60.0)
    yield benchmark
    benchmark.close()


def in_threads(function, items):
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(function, items))


def play(bench, task_id, codes):
    """Outputs and outcome of one episode."""
    environment = bench.make(EpisodeKey(0, 0, task_id, 0))
    try:
        environment.reset()
        steps = [environment.step(Action(f"```python\n{code}\n```")) for code in codes]
        return [step.messages[0]["content"] for step in steps], environment.score()
    finally:
        environment.close()


def one_task_per_family(bench, split="dev"):
    first = {}
    for task_id in bench.task_ids(split):
        first.setdefault(re.fullmatch(r".*?\d+([a-z]+)_\d", task_id)[1], task_id)
    return first


def solution(bench, task_id):
    messages, outcome = bench.play_demonstrator(task_id, np.random.default_rng(0), 0.0)
    assert outcome.success
    return [python_block(message["content"]) for message in messages if message["role"] == "assistant"]


LOGIN = """
def token(app):
    passwords = {x["account_name"]: x["password"] for x in apis.supervisor.show_account_passwords()}
    profile = apis.supervisor.show_profile()
    user = profile["phone_number"] if app == "phone" else profile["email"]
    return apis[app].login(username=user, password=passwords[app])["access_token"]
"""
COMPLETE = "apis.supervisor.complete_task()"


def test_the_oracle_solves_every_task_in_2_to_6_turns(bench):
    specs = {split: tasks.task_specs(split) for split in ("train", "dev", "test_normal")}
    task_ids = [spec.id for members in specs.values() for spec in members]
    assert task_ids == [task_id for split in specs for task_id in bench.task_ids(split)]
    played = in_threads(lambda task_id: bench.play_demonstrator(task_id, np.random.default_rng(0), 0.0), task_ids)
    failed = [task_id for task_id, (_, outcome) in zip(task_ids, played, strict=True) if outcome.score != 1.0]
    assert failed == []
    turns = {outcome.info["turns"] for _, outcome in played}
    assert min(turns) == 2 and max(turns) == 6
    lengths = [sum(len(pieces(message["content"])) + 1 for message in messages) for messages, _ in played]
    assert max(lengths) < 300


def test_doing_nothing_scores_zero_on_every_task(bench):
    task_ids = [task_id for split in ("train", "dev", "test_normal") for task_id in bench.task_ids(split)]
    for codes in ([], [COMPLETE]):
        scores = in_threads(lambda task_id, codes=codes: play(bench, task_id, codes)[1].score, task_ids)
        assert set(scores) == {0.0}


SIDE_EFFECTS = {
    "profile": LOGIN
    + "[apis[app].update_account_name(first_name='Zed', access_token=token(app)) for app in {accounts}]",
    "balance": LOGIN + "apis.venmo.update_account_name(first_name='Zed', access_token=token('venmo'))",
    "contact": LOGIN + "apis.phone.delete_contact(contact_id=1, access_token=token('phone'))",
    "note": LOGIN + "apis.simple_note.create_note(title='x', content='y', access_token=token('simple_note'))",
    "song": LOGIN + "apis.spotify.like_song(song_id={other}, access_token=token('spotify'))",
    "alarm": LOGIN + "apis.phone.update_alarm(alarm_id={other}, enabled=False, access_token=token('phone'))",
    "todo": LOGIN + "apis.todoist.update_task(task_id={other}, priority='high', access_token=token('todoist'))",
    "payment": LOGIN
    + "apis.venmo.create_transaction(receiver_email=apis.venmo.search_users(access_token=token('venmo'))[0]['email'],"
    + "amount=1, access_token=token('venmo'))",
    "file": LOGIN + "apis.file_system.create_file(file_path='~/extra.txt', access_token=token('file_system'))",
}


def test_wrong_side_effects_fail(bench):
    specs = {spec.id: spec for spec in tasks.task_specs("dev")}
    for family, task_id in one_task_per_family(bench).items():
        spec = specs[task_id]
        codes = solution(bench, task_id)
        other = 2 if spec.question.private.get("id") == 1 else 1
        effect = SIDE_EFFECTS[family].replace("{other}", str(other)).replace("{accounts}", str(list(spec.passwords)))
        outputs, outcome = play(bench, task_id, [*codes[:-1], effect, codes[-1]])
        assert not any(output.startswith("Error") for output in outputs), (family, outputs)
        assert not outcome.success, family
        assert outcome.score == (0.0 if spec.question.answer else 0.5), family


def test_the_asked_effect_without_completing_is_not_success(bench):
    for task_id in one_task_per_family(bench).values():
        codes = solution(bench, task_id)
        if codes[-1] == COMPLETE:
            outcome = play(bench, task_id, codes[:-1])[1]
            assert (outcome.score, outcome.success) == (0.5, False)


def test_a_wrong_target_or_answer_fails(bench):
    specs = {spec.id: spec for spec in tasks.task_specs("dev")}
    siblings = {}
    for task_id in bench.task_ids("dev"):
        siblings.setdefault(bench.cluster(task_id), []).append(task_id)
    for first, second, _ in list(siblings.values())[:9]:
        outcome = play(bench, first, solution(bench, second))[1]
        if specs[first].family != "balance":  # its answer is printed, whichever it is
            assert outcome.score == 0.0


def test_noisy_demonstrations_stay_in_the_vocabulary_and_vary(bench):
    known, task_ids = set(bench.vocabulary().words), bench.task_ids("warm_start")[:90]
    played = in_threads(lambda task_id: bench.play_demonstrator(task_id, stream(0, task_id), 0.3), task_ids)
    successes = np.mean([outcome.success for _, outcome in played])
    assert 0.15 < successes < 0.7
    unknown = [
        piece
        for messages, _ in played
        for message in messages
        if message["role"] == "assistant"
        for piece in pieces(message["content"])
        if piece not in known
    ]
    assert unknown == []


def test_an_episode_gives_the_same_wherever_and_whenever_it_is_played(bench):
    task_ids = list(one_task_per_family(bench, "train").values()) * 8
    played = in_threads(
        lambda task_id: demonstrate(bench.make(EpisodeKey(0, 0, task_id, 0)), stream(3, task_id), 0.4), task_ids
    )
    conversations = {}
    for task_id, (messages, outcome) in zip(task_ids, played, strict=True):
        conversations.setdefault(task_id, set()).add(json.dumps([messages, outcome.score]))
    assert all(len(versions) == 1 for versions in conversations.values())


BLOCKS = [
    "print(apis.supervisor.show_profile())",
    "print([1, 2, 3]); print({'a': 1}); print((1,)); print('x', 2, sep='-'); print(list(range(60)))",
    "x = 3",
    "x",
    "print('  ')",
    "print(x + y)",
    "def f(n):\n    return 1 / n\n\nf(0)",
    "print(f(2))\nf(0)",
    "for i in range(3):\n  print(i)\n raise",
    "print(1",
    "",
    "import os\nprint(os.listdir('/'))",
    "open('x')",
    "import subprocess",
    "exit()",
    "raise ValueError('two\\nlines')",
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "assert False, 'why'",
    "apis.nothing.call()",
    "apis.spotify.call()",
    "apis.spotify.login(1)",
    "apis.spotify.login(username='x', password='y')",
    "print(apis.spotify.login(username='x', password='y', raise_on_failure=False))",
    "apis.spotify.show_song_library()",
    "apis.spotify.show_song(song_id='a')",
    "apis.spotify.show_song(song_id=10 ** 6)",
    "apis.spotify.search_songs(page_limit=1000)",
    "print(apis.api_docs.show_app_descriptions())",
    "print(apis.api_docs.show_api_doc(app_name='spotify', api_name='login'))",
    "print(datetime.datetime.now(), pendulum.now(), DateTime.now(), datetime.date.today())",
    "print(random.random(), random.choice('abc'))",
    "print(json.dumps({'b': 1}), re.findall('a', 'banana'), math.pi, Counter('aab'), reduce(max, [1, 2]))",
    "import time\ntime.sleep(5)\nprint('woke')",
    "print('ü', '日本', chr(128512))",
    "import sys\nprint('to stderr', file=sys.stderr)",
    "class A:\n    def __repr__(self):\n        return 'A()'\nprint(A())",
    "from collections import OrderedDict\nprint(OrderedDict(a=1))",
    "print(*(i for i in range(3)))",
    "for i in range(1100):\n    apis.supervisor.show_profile()",
    "print(len(apis.supervisor.show_account_passwords()))",
    "print(x)",
]


@pytest.fixture(scope="module")
def original(tmp_path_factory, appworld_installed):
    """Plays blocks in AppWorld's own class, in a folder of its own."""

    def run(episodes, source=DATA / "mini"):
        root = tmp_path_factory.mktemp("original")
        (root / "data").symlink_to(source / "data")
        output = subprocess.run(
            [str(VENV / "bin" / "python"), "-W", "ignore", str(Path(__file__).with_name("original.py"))],
            input=json.dumps(episodes),
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "APPWORLD_ROOT": str(root), "APPWORLD_CACHE": str(root), "TZ": "UTC"},
            check=True,
        ).stdout
        return json.loads(output.splitlines()[-1])

    return run


def raw_play(bench, task_id, codes):
    """Like :func:`play`, with the world's outputs as they are."""
    world = bench.make(EpisodeKey(0, 0, task_id, 0))._pool.acquire()
    try:
        world.post("reset", 60.0, task_id=task_id)
        replies = [world.post("execute", 60.0, code=code) for code in codes]
        return [reply["output"] for reply in replies], replies[-1]["completed"], world.post("evaluate", 60.0)
    finally:
        bench.make(EpisodeKey(0, 0, task_id, 0))._pool.release(world, healthy=True)


def test_outputs_equal_those_of_appworlds_own_class(bench, original):
    task_id = bench.task_ids("dev")[0]
    ours, _, _ = raw_play(bench, task_id, BLOCKS)
    (theirs,) = original([[task_id, BLOCKS]])
    differing = [
        pair for pair in zip(BLOCKS, ours, theirs["outputs"], strict=True) if pair[1].rstrip() != pair[2].rstrip()
    ]
    assert differing == []


def test_a_task_with_another_date_sees_that_date_and_the_next_one_its_own(bench, original, tmp_path):
    task_id = one_task_per_family(bench)["note"]
    (tmp_path / "data" / "tasks").mkdir(parents=True)
    for name in ("api_docs", "base_dbs", "datasets"):
        (tmp_path / "data" / name).symlink_to(DATA / "mini" / "data" / name)
    shutil.copytree(DATA / "mini" / "data" / "tasks" / task_id, tmp_path / "data" / "tasks" / task_id)
    shutil.copy(DATA / "mini" / "content_hash.txt", tmp_path)
    later = tmp_path / "data" / "tasks" / task_id.replace("dev", "later")
    shutil.copytree(DATA / "mini" / "data" / "tasks" / task_id, later)
    specs = json.loads((later / "specs.json").read_text())
    (later / "specs.json").write_text(json.dumps(specs | {"datetime": "2024-02-29T08:30:00"}))
    blocks = [
        LOGIN + "print(datetime.datetime.now(), pendulum.now(), datetime.date.today())",
        "apis.simple_note.create_note(title='x', content='y', access_token=token('simple_note'))",
        "print(apis.simple_note.search_notes(access_token=token('simple_note'))[0])",
    ]
    other = appworld_mini(root=tmp_path, worlds=1)
    try:
        played = [raw_play(other, name, blocks)[0] for name in (later.name, task_id, later.name, task_id)]
    finally:
        other.close()
    assert "2024-02-29 08:30:00" in played[0][0] and "2024-02-29T08:30:00" in played[0][2]
    assert "2023-05-18 12:00:00" in played[1][0] and "2023-05-18T12:00:00" in played[1][2]
    assert played[2:] == played[:2]
    theirs = original([[later.name, blocks], [task_id, blocks]], tmp_path)
    assert [verdict["outputs"] for verdict in theirs] == played[:2]


def test_evaluations_equal_those_of_appworlds_own_class(bench, original):
    episodes = []
    for task_id in one_task_per_family(bench).values():
        right = solution(bench, task_id)
        episodes += [[task_id, right], [task_id, right[:-1] or [""]], [task_id, [COMPLETE]]]
        for seed in range(3):
            noisy, _ = demonstrate(bench.make(EpisodeKey(0, 0, task_id, 0)), stream(seed, task_id), 0.5)
            episodes.append([task_id, [python_block(m["content"]) for m in noisy if m["role"] == "assistant"]])
    theirs = original(episodes)
    assert len({len(verdict["passed"]) > 0 for verdict in theirs}) == 2
    for (task_id, codes), verdict in zip(episodes, theirs, strict=True):
        outputs, completed, ours = raw_play(bench, task_id, codes)
        assert [output.rstrip() for output in outputs] == [output.rstrip() for output in verdict["outputs"]]
        assert completed == verdict["completed"]
        assert sorted(ours["passed"]) == verdict["passed"]
        assert sorted(ours["failed"]) == verdict["failed"]


def test_a_task_that_does_not_exist_is_an_environment_failure_and_leaves_a_usable_world(appworld_installed):
    one_world = appworld_mini(worlds=1)
    try:
        with pytest.raises(EnvironmentFailure, match="nothing_1"):
            play(one_world, "nothing_1", [])
        _, outcome = one_world.play_demonstrator(one_world.task_ids("dev")[0], np.random.default_rng(0), 0.0)
        assert outcome.success and outcome.info["interpreters_lost"] == 0
    finally:
        one_world.close()


def test_annotations_and_futures_of_the_interpreter_do_not_leak_into_the_code(bench):
    outputs, _, _ = raw_play(bench, bench.task_ids("dev")[0], ["def f(x: int): pass\nprint(str(f.__annotations__))"])
    assert "<class 'int'>" in outputs[0]
