"""Limits on what calls can use, and what happens when the executor process fails."""

import contextlib
import json
import os
import subprocess
import sys

import psutil
import pytest

from seeupo_recipe.envs.base import EnvironmentFailure
from seeupo_recipe.envs.bfcl import executor
from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.executor import CallsStopped, Session
from seeupo_recipe.envs.bfcl.qwen import to_text


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


def test_memory_is_bounded(bfcl, worker_processes):
    """A tree that doubles with every copy: the worker runs into its own limits, not the machine into its."""
    session = Session(bfcl.tasks["multi_turn_base_0"])
    session.run(["mkdir(dir_name='a')"])
    for depth in range(40):
        session.run([f"cp(source='a', destination='b{depth}')", f"mv(source='b{depth}', destination='a')"])
    with pytest.raises(CallsStopped):
        session.run(["find(path='.')"])
    assert "a" in session.run(["ls()"])[0]
    assert worker_processes()[0].memory_info().rss < 1 << 30
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
