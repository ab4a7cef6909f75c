"""Episodes share nothing, whatever runs beside them; a lost worker changes no outcome."""

import concurrent.futures
import contextlib
import json
import os
import runpy
import subprocess
import sys
import threading

import psutil
import pytest
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import BOOKING_RECORD_EXTENSION

from seeupo_recipe.envs.base import EnvironmentFailure
from seeupo_recipe.envs.bfcl import executor
from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.executor import CallsStopped, Session
from seeupo_recipe.envs.bfcl.qwen import to_text
from seeupo_recipe.seeding import stream


def fresh_worker():
    """Make the next session start a new worker process."""
    executor._executor.release()
    executor._executor = executor._Executor()


def worker_processes():
    alive = [process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]
    return [process for process in alive if str(executor.WORKER) in process.cmdline()]


def worker_process():
    (process,) = worker_processes()
    return process


def instances_left():
    """Names in the executor's module that belong to sessions, asked of a copy of the worker in this process."""
    return [name for name in vars(runpy.run_path(str(executor.WORKER))["executor"]) if name.endswith("_instance")]


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


def test_forked_children_get_a_worker_of_their_own(bfcl, play, scripts, solo):
    assert play(bfcl, *scripts[0]) == solo[0]
    pid = worker_process().pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            same = play(bfcl, *scripts[1]) == solo[1] and worker_process().pid != pid
            os.write(write, b"1" if same else b"0")
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.waitpid(child, 0)
    os.close(read)
    assert play(bfcl, *scripts[2]) == solo[2] and worker_process().pid == pid


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


def test_memory_does_not_grow_with_the_number_of_episodes(bfcl, play, scripts):
    def resident():
        return worker_process().memory_info().rss

    for _ in range(5):
        for script in scripts:
            play(bfcl, *script)
    start = resident()
    for _ in range(40):
        for script in scripts:
            play(bfcl, *script)
    assert resident() - start < 8 << 20


def test_a_killed_worker_changes_no_outcome(bfcl, play, scripts, solo):
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


def test_calls_that_never_return_are_stopped_and_undone(bfcl):
    driving = next(t for t in bfcl.tasks.values() if {"MathAPI", "VehicleControlAPI"} <= set(t.classes))
    session, bystander = Session(driving), Session(bfcl.tasks["multi_turn_base_0"])
    bystander.run(["mkdir(dir_name='kept')"])
    state = session.run(["displayCarStatus(option='fuel')"])
    with pytest.raises(CallsStopped):
        session.run(["fillFuelTank(fuelAmount=1)", "power(base=9, exponent=1000000000)"])
    assert session.run(["displayCarStatus(option='fuel')"]) == state
    assert "kept" in bystander.run(["ls()"])[0]
    session.close()
    bystander.close()


def test_stopped_messages_are_reported_to_the_model(bfcl, play):
    bomb = to_text([Call("power", {"base": 9, "exponent": 10**9})])
    task = next(task for task in bfcl.tasks.values() if "MathAPI" in task.classes)
    observations, outcome = play(bfcl, task.task_id, [bomb, *["Done."] * len(task.user_turns)])
    assert "too much time or memory" in observations[1][0][0]["content"]
    assert outcome[3]["stopped_messages"] == 1 and not outcome[2]


def test_states_that_cannot_be_compared_fail_without_harm(bfcl, play, texts_of, one_by_one):
    """A directory copied into itself makes a cycle that the checker's comparison does not survive."""
    task = bfcl.tasks["multi_turn_base_0"]
    turns = one_by_one(task.ground_truth)
    turns[0] = [[Call("mkdir", {"dir_name": "temp2"})], [Call("cp", {"source": "temp2", "destination": "temp2"})]]
    outcome = play(bfcl, task.task_id, texts_of(turns))[1]
    assert outcome[2] is False


def test_memory_is_bounded(bfcl):
    """A tree that doubles with every copy: the worker runs into its own limits, not the machine into its."""
    session = Session(bfcl.tasks["multi_turn_base_0"])
    session.run(["mkdir(dir_name='a')"])
    for depth in range(40):
        session.run([f"cp(source='a', destination='b{depth}')", f"mv(source='b{depth}', destination='a')"])
    with pytest.raises(CallsStopped):
        session.run(["find(path='.')"])
    assert "a" in session.run(["ls()"])[0]
    assert worker_process().memory_info().rss < 1 << 30
    session.close()


def test_a_worker_that_cannot_start_is_an_environment_failure(bfcl, monkeypatch, tmp_path):
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(executor, "WORKER", broken)
    monkeypatch.setattr(executor, "_executor", executor._Executor())
    with pytest.raises(EnvironmentFailure, match=r"ended with code 3; to see why, run .*worker\.py"):
        Session(bfcl.tasks["multi_turn_base_0"]).run(["ls()"])


def test_an_interrupt_between_request_and_reply_mixes_no_replies(bfcl, monkeypatch):
    session = Session(bfcl.tasks["multi_turn_base_0"])
    before = session.run(["ls()"])
    with monkeypatch.context() as patch:
        patch.setattr(executor._Worker, "receive", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.run(["pwd()"])
    assert session.run(["ls()"]) == before
    session.close()


def test_no_worker_outlives_a_killed_client():
    code = (
        "import os, signal; from seeupo_recipe.envs.bfcl import bfcl, executor\n"
        "executor.Session(bfcl().tasks['multi_turn_base_0']).run(['ls()'])\n"
        "print(executor._executor._worker._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    client = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert client.returncode == -9
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(client.stdout)).wait(timeout=30)


def test_a_worker_that_keeps_dying_is_an_environment_failure(bfcl, monkeypatch, tmp_path):
    """Neither a wrong answer nor a stopped call: the policy has no part in it."""
    dying = tmp_path / "worker.py"
    dying.write_text(executor.WORKER.read_text().replace("reply = handle(request, sessions)", "raise KeyError('bug')"))
    monkeypatch.setattr(executor, "WORKER", dying)
    monkeypatch.setattr(executor, "_executor", executor._Executor())
    with pytest.raises(EnvironmentFailure, match="ended with code 1 twice in a session of multi_turn_base_0"):
        Session(bfcl.tasks["multi_turn_base_0"]).run(["ls()"])


def test_running_out_of_memory_is_the_fault_of_the_calls(bfcl, monkeypatch, tmp_path):
    hungry = tmp_path / "worker.py"
    hungry.write_text(
        executor.WORKER.read_text().replace("reply = handle(request, sessions)", "reply = bytes(1 << 31)")
    )
    monkeypatch.setattr(executor, "WORKER", hungry)
    monkeypatch.setattr(executor, "_executor", executor._Executor())
    with pytest.raises(CallsStopped):
        Session(bfcl.tasks["multi_turn_base_0"]).run(["ls()"])


def test_large_messages_pass_the_pipe_whole(bfcl):
    session = Session(bfcl.tasks["multi_turn_base_0"])
    session.run(["touch(file_name='big')"])
    contents = [letter * 19_000 for letter in "abcdefghijklmnopqrst"]
    calls = [call for text in contents for call in (f"echo(content='{text}', file_name='big')", "cat(file_name='big')")]
    assert [json.loads(result)["file_content"] for result in session.run(calls)[1::2]] == contents
    session.close()
