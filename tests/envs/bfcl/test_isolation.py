"""Episodes share nothing, whatever runs beside them; a lost worker changes no outcome."""

import concurrent.futures
import json
import os
import runpy
import subprocess
import sys
import threading

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import BOOKING_RECORD_EXTENSION

from seeupo_recipe.envs.bfcl import executor
from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.executor import Session
from seeupo_recipe.envs.bfcl.qwen import to_text
from seeupo_recipe.seeding import stream


def fresh_worker():
    """Make the next session start a new worker process."""
    executor._executor.release()
    executor._executor = executor._Executor()


def probes(bfcl, texts_of, one_by_one):
    """Scripts whose transcripts change if episodes see each other's state, by the task they play."""

    def first(*classes, category="multi_turn_base"):
        return next(t for t in bfcl.tasks.values() if t.category == category and set(classes) <= set(t.classes))

    def script(task, *messages):
        return [task.task_id, [*(to_text([call]) for call in messages), *["Done."] * len(task.user_turns)]]

    posts, math = first("TwitterAPI"), first("MathAPI")
    config = posts.config["TwitterAPI"]
    login = Call("authenticate_twitter", {"username": config["username"], "password": config["password"]})
    tweet = config["tweet_counter"]
    travel = first("TravelAPI", category="multi_turn_long_context")
    token = travel.config["TravelAPI"]["access_token"]
    tickets = next(t for t in bfcl.tasks.values() if t.config.get("TicketAPI", {}).get("ticket_queue"))
    ticket = tickets.config["TicketAPI"]["ticket_queue"][0]["id"]
    vehicle = first("VehicleControlAPI", category="multi_turn_long_context")
    weather = Call("get_outside_temperature_from_google", {})
    scripts = [
        script(
            posts,
            login,
            Call("post_tweet", {"content": "hi"}),
            Call("mention", {"tweet_id": tweet, "mentioned_usernames": [f"@{name}"]}),
            Call("get_tweet", {"tweet_id": tweet}),
        )
        for name in ("ada", "bob")
    ]
    scripts += [
        script(math, Call("logarithm", {"value": 10, "base": 3, "precision": precision})) for precision in (3, 30)
    ]
    scripts.append(script(vehicle, weather, weather, weather))
    scripts.append(
        script(tickets, Call("edit_ticket", {"ticket_id": ticket, "updates": {"a": 1, "b": 2, "c": 3, "d": 4}}))
    )
    booking, record = next(iter(BOOKING_RECORD_EXTENSION.items()))  # in every long-context travel task
    balance = Call("get_credit_card_balance", {"access_token": token, "card_id": record["card_id"]})
    cancel = Call("cancel_booking", {"access_token": token, "booking_id": booking})
    scripts.append(script(travel, balance, cancel, balance))
    for task in (posts, math, vehicle, tickets, travel):
        turns = [list(turn) for turn in task.ground_truth]
        scripts.append([task.task_id, texts_of(one_by_one(turns))])
        turns[int(stream("probe", task.task_id).integers(len(turns)))].clear()
        scripts.append([task.task_id, texts_of(one_by_one(turns))])
    return scripts


@pytest.fixture(scope="module")
def scripts(bfcl, texts_of, one_by_one):
    return probes(bfcl, texts_of, one_by_one)


@pytest.fixture(scope="module")
def solo(bfcl, play, scripts):
    """Each script's transcript when nothing else has ever run in its worker."""
    transcripts = []
    for task_id, texts in scripts:
        fresh_worker()
        transcripts.append(play(bfcl, task_id, texts))
    return transcripts


def test_probes_do_what_they_are_for(scripts, solo):
    shown = [message["content"] for observations, _ in solo for messages, _ in observations[1:] for message in messages]
    for wanted in ('"mentions": ["@ada"]', '"mentions": ["@bob"]', '{"cancel_status": true}', "Invalid fields"):
        assert any(wanted in content for content in shown), wanted
    assert {outcome[1][2] for outcome in solo} == {True, False}


def test_64_threads_with_8_rollouts_each_equal_solo_transcripts(bfcl, play, scripts, solo):
    by_task: dict[str, list[int]] = {}
    for index, (task_id, _) in enumerate(scripts):
        by_task.setdefault(task_id, []).append(index)
    for task_id, indices in by_task.items():
        barrier = threading.Barrier(64)

        def rollouts(thread, indices=indices, task_id=task_id, barrier=barrier):
            chosen = [indices[(thread + rollout) % len(indices)] for rollout in range(8)]
            barrier.wait()
            return [(index, play(bfcl, task_id, scripts[index][1])) for index in chosen]

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            done = [pair for pairs in pool.map(rollouts, range(64)) for pair in pairs]
        assert len(done) == 512
        assert [index for index, transcript in done if transcript != solo[index]] == []


def test_4_processes_equal_solo_transcripts(drivers, scripts, solo):
    environment = os.environ | {"PYTHONHASHSEED": "random", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(drivers / "transcripts.py")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(4)
    ]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda process: process.communicate(json.dumps(scripts))[0], processes))
    assert all(json.loads(output) == json.loads(json.dumps(solo)) for output in outputs)


def test_forked_children_get_a_worker_of_their_own(bfcl, play, scripts, solo, worker_processes):
    assert play(bfcl, *scripts[0]) == solo[0]
    pid = worker_processes()[0].pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            same = play(bfcl, *scripts[1]) == solo[1] and worker_processes()[0].pid != pid
            os.write(write, b"1" if same else b"0")
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.waitpid(child, 0)
    os.close(read)
    assert play(bfcl, *scripts[2]) == solo[2] and worker_processes()[0].pid == pid


def test_no_two_instances_share_mutable_state(bfcl):
    """Walks everything that the instances of two sessions, and of a check, can reach."""
    worker = runpy.run_path(str(executor.WORKER))

    def reachable(root):
        found, todo = {}, [root]
        while todo:
            item = todo.pop()
            if id(item) in found or isinstance(item, (str, bytes, int, float, bool, type(None), type)):
                continue
            found[id(item)] = item
            if isinstance(item, dict):
                todo.extend([*item.keys(), *item.values()])
            elif isinstance(item, (list, set, tuple)):
                todo.extend(item)
            elif hasattr(item, "__dict__"):
                todo.extend(vars(item).values())
        return {
            key: item for key, item in found.items() if isinstance(item, (dict, list, set)) or hasattr(item, "__dict__")
        }

    for task in bfcl.tasks.values():
        session = Session(task)._opening
        owners = []
        for name, evaluation in (("one", False), ("two", False), ("one", True), ("one_ground_truth", True)):
            worker["own_state"](session, name, evaluation)
            _, instances = worker["execute"](session, name, [], evaluation)
            owners.append(reachable(list(map(vars, instances.values()))))
        for name in ("one", "two"):
            worker["purge"](session, name)
        assert sum(map(len, owners)) == len(set().union(*owners)), task.task_id


def test_instances_are_removed(bfcl, scripts):
    worker = runpy.run_path(str(executor.WORKER))
    sessions = {}
    before = set(vars(worker["executor"]))
    for number, (task_id, _) in enumerate(scripts):
        task = bfcl.tasks[task_id]
        request = {"session": number, "open": Session(task)._opening}
        worker["handle"](request | {"do": "run", "messages": [[]]}, sessions)
        turns = [[[]] for _ in task.ground_truth]
        worker["handle"](
            {"session": number, "do": "check", "turns": turns, "ground_truth": [[] for _ in turns]}, sessions
        )
        worker["handle"]({"session": number, "do": "run", "messages": [["unknown()"]]}, sessions)
        assert len(set(vars(worker["executor"])) - before) == len(task.classes)
        worker["handle"]({"session": number, "do": "close"}, sessions)
    assert set(vars(worker["executor"])) == before and sessions == {}


def test_memory_does_not_grow_with_the_number_of_episodes(bfcl, play, scripts, worker_processes):
    def resident():
        return worker_processes()[0].memory_info().rss

    for _ in range(5):
        for script in scripts:
            play(bfcl, *script)
    start = resident()
    for _ in range(40):
        for script in scripts:
            play(bfcl, *script)
    assert resident() - start < 8 << 20


def test_a_killed_worker_changes_no_outcome(bfcl, play, scripts, solo, worker_processes):
    """The worker dies before every message of an episode, with another episode open."""
    other = Session(bfcl.tasks["multi_turn_base_0"])
    before = other.run(["mkdir(dir_name='mine')", "ls()"])
    for (task_id, texts), expected in zip(scripts[:8], solo[:8], strict=True):

        def killing(texts=texts):
            for text in texts:
                for process in worker_processes():
                    process.kill()
                    process.wait()
                yield text

        assert play(bfcl, task_id, killing()) == expected
    assert other.run(["ls()"]) == before[1:]
    other.close()
