"""Hostile code on the real engine: batches end, other episodes are unchanged, nothing gets out."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from seeupo_recipe.envs.appworld import appworld_mini
from seeupo_recipe.envs.appworld.actions import python_block
from seeupo_recipe.envs.appworld.environment import INTERPRETER_LOST
from seeupo_recipe.envs.appworld.mini import tasks
from seeupo_recipe.envs.appworld.worlds import DATA
from seeupo_recipe.envs.base import Action, EpisodeKey

pytestmark = [pytest.mark.appworld, pytest.mark.slow, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parents[3]
LIMITS = {"block_seconds": 8.0, "grace_seconds": 2.0, "interpreter_memory_mb": 256, "output_chars": 20_000}
SECRET = "note"  # a family whose answer cannot be guessed from the instruction

# `sys` and names that AppWorld's own check of the syntax refuses are reached by detours, so that the
# kernel's limits are what is tested.
SYS = "import os\nsys = os.sys\nmodules = sys.modules\n"
LIBC = SYS + "libc = modules['ctypes'].CDLL(None)\n"
OPEN = "read = vars(builtins)['op' + 'en']\n"
FORGE = (
    SYS + "frame = {}\nfor o in modules['gc'].get_objects():\n try: type(o).sendall(o, frame)\n except Exception: pass"
)

ENDLESS = {
    "loop": "while True: pass",
    "loop that catches": "def f(): pass\nwhile True:\n try:\n  while True: f()\n except BaseException: pass",
    "loop without alarm": SYS + "s = modules['signal']\ns.signal(s.SIGALRM, s.SIG_IGN)\nwhile True: x = 1",
    "api calls": "while True:\n try: apis.supervisor.show_profile()\n except Exception: pass",
    "regular expression": "re.match('(a+)+b', 'a' * 40)",
    "big number": "x = 7 ** (10 ** 9)",
}
HUNGRY = {
    "output": "print('x' * 50_000_000)",
    "output in pieces": "while True: print('y' * 1000)",
    "memory": "x = []\nwhile True: x.append(bytearray(10 ** 6))",
    "recursion": SYS + "sys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
    "nesting": "x = " + "(" * 5000 + ")" * 5000,
    "long answer": "apis.supervisor.complete_task(answer='z' * 20_000_000)",
}
ENDING = {
    "exit": "import os\ngetattr(os, '_ex' + 'it')(0)",
    "abort": "import os\ngetattr(os, 'ab' + 'ort')()",
    "system exit": "raise SystemExit",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "null pointer": SYS + "modules['ctypes'].string_at(0)",
}
SPAWNING = {
    "fork": SYS + "for _ in range(50):\n try: modules['posix'].fork()\n except OSError as e: print(e)",
    "raw fork": LIBC + "print([libc.fork() for _ in range(50)])",
    "spawn": "import os\nfor _ in range(50): os.posix_spawn('/bin/touch', ['touch', <canary>], {})",
    "system": LIBC + "print(libc.system(('touch ' + <canary>).encode()))",
    "thread": SYS + "for _ in range(50): modules['threading'].Thread(target=print).start()",
    "kill the parent": SYS + "print(modules['posix'].kill(modules['posix'].getppid(), 9))",
}
READING = {
    "task": "from appworld.task import Task\nprint(Task.load(<task>).ground_truth.answer)",
    "ground truth": "from appworld.ground_truth import GroundTruth\nprint(GroundTruth.load(<task>).answer)",
    "evaluation": "from appworld import evaluate_task\nprint(evaluate_task(<task>))",
    "open": OPEN + "print(read(<answer>).read())",
    "path": "import pathlib\nprint(pathlib.Path(<answer>).read_text())",
    "posix open": SYS + "print(modules['posix'].read(modules['posix'].open(<answer>, 0), 99))",
    "raw open": LIBC + "print(libc.open(<answer>.encode(), 0))",
    "loader": SYS + "print(modules['importlib'].machinery.SourceFileLoader('x', <answer>).get_data(<answer>))",
    "subclasses": "for c in object.__subclasses__():\n if 'FileLoader' in str(c): print(c('', '').get_data(<answer>))",
    "database": SYS + "print(modules['sqlite3'].connect(<answer>).execute('select 1').fetchall())",
    "directory": "import os\nprint(list(os.scandir(<root>)))",
    "environment of the process": OPEN + "print(read('/proc/self/environ').read())",
    "the world's port": SYS + "print(modules['socket'].create_connection(('127.0.0.1', <port>)))",
    "heap": SYS + "for o in modules['gc'].get_objects():\n if type(o) is dict and 'content' in o: print(o['content'])",
    "private api": "apis.admin.show_main_users()",
    "forged call": FORGE.format('b\'\\0\\0\\0\\x2b\' + b\'{"api": ["admin", "show_card_balance", {}]}\''),
    "forged frame": FORGE.format("b'\\xff' * 64"),
}
ATTACKS = {
    f"{kind}: {name}": code
    for kind, codes in {
        "endless": ENDLESS,
        "hungry": HUNGRY,
        "ending": ENDING,
        "spawning": SPAWNING,
        "reading": READING,
    }.items()
    for name, code in codes.items()
}


@pytest.fixture(scope="module")
def bench(appworld_installed):
    benchmark = appworld_mini(worlds=12, **LIMITS)
    yield benchmark
    benchmark.close()


def host_processes():
    (host,) = [p for p in psutil.Process().children() if "seeupo_recipe.envs.appworld.world.host" in p.cmdline()]
    return host, host.children(recursive=True)


def play(bench, task_id, codes, meanwhile=lambda environment, turn: None):
    environment = bench.make(EpisodeKey(0, 0, task_id, 0))
    try:
        environment.reset()
        observations = []
        for turn, code in enumerate(codes):
            meanwhile(environment, turn)
            observations.append(environment.step(Action(f"```python\n{code}\n```")).messages[0]["content"])
        return observations, environment.score()
    finally:
        environment.close()


def solution(bench, task_id):
    messages, outcome = bench.play_demonstrator(task_id, np.random.default_rng(0), 0.0)
    assert outcome.success
    return [python_block(message["content"]) for message in messages if message["role"] == "assistant"]


def secret_task(bench):
    return next(spec for spec in tasks.task_specs("dev") if spec.family == SECRET)


def test_every_attack_leaves_the_batch_as_it_was(bench, tmp_path):
    victim = secret_task(bench)
    canary = tmp_path / "canary"
    answer = DATA / "mini" / "data" / "tasks" / victim.id / "ground_truth" / "answer.json"
    places = {"task": victim.id, "root": str(DATA), "answer": str(answer), "canary": str(canary)}
    honest = {task_id: solution(bench, task_id) for task_id in bench.task_ids("dev")[:27:3]}
    alone = {task_id: play(bench, task_id, codes) for task_id, codes in honest.items()}
    assert all(outcome.success for _, outcome in alone.values())

    def attack(item):
        name, code = item

        environment = bench.make(EpisodeKey(0, 0, victim.id, 0))
        try:
            environment.reset()
            for place, value in {**places, "port": environment._world.port}.items():
                code = code.replace(f"<{place}>", repr(value))
            first = environment.step(Action(f"```python\n{code}\n```"))
            second = environment.step(Action("```python\nprint(6 * 7)\n```"))
            return name, first.messages[0]["content"], second.messages[0]["content"], environment.score()
        finally:
            environment.close()

    with ThreadPoolExecutor(12) as threads:
        attacks = [threads.submit(attack, item) for item in ATTACKS.items()]
        bystanders = {task_id: threads.submit(play, bench, task_id, codes) for task_id, codes in honest.items()}
        attacked = [future.result() for future in attacks]
        together = {task_id: future.result() for task_id, future in bystanders.items()}

    assert together == alone
    assert not canary.exists()
    for name, first, second, outcome in attacked:
        assert victim.question.answer not in first, name
        assert len(first) < 1000, name
        assert "uid=" not in first and "PATH=" not in first, name
        assert not outcome.success and outcome.info["worlds_lost"] == 0, name
        if name.startswith(("hungry", "reading: forged")):  # memory may be used up, the conversation broken off
            assert second in ("42", INTERPRETER_LOST) or "MemoryError" in second, (name, second)
        else:
            assert second == "42", (name, first, second)
    lost = {name for name, first, _, _ in attacked if first == INTERPRETER_LOST}
    assert {"endless: loop without alarm", "ending: null pointer"} <= lost
    timed_out = {name for name, first, _, _ in attacked if first == "Error: Execution timed out after 8 seconds."}
    assert "endless: loop" in timed_out


def test_an_episode_can_still_be_solved_after_its_interpreter_was_lost(bench):
    task_id = bench.task_ids("dev")[3]
    codes = solution(bench, task_id)
    observations, outcome = play(bench, task_id, [ENDING["null pointer"], *codes])
    assert observations[0] == INTERPRETER_LOST
    assert outcome.success and outcome.info["interpreters_lost"] == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_world_that_is_killed_or_hangs_costs_no_episode(bench, number):
    task_ids = bench.task_ids("dev")[:18:3]
    honest = {task_id: solution(bench, task_id) for task_id in task_ids}
    alone = {task_id: play(bench, task_id, codes)[0] for task_id, codes in honest.items()}
    hit = task_ids[3]
    everyone_in = threading.Barrier(len(task_ids))

    def episode(task_id):
        def meanwhile(environment, turn):
            if turn == 1:
                everyone_in.wait()
            if turn == 2 and task_id == hit:
                os.kill(environment._world.pid, number)

        return play(bench, task_id, honest[task_id], meanwhile if len(honest[task_id]) > 2 else everyone(everyone_in))

    with ThreadPoolExecutor(len(task_ids)) as threads:
        played = dict(zip(task_ids, threads.map(episode, task_ids), strict=True))
    for task_id, (observations, outcome) in played.items():
        assert outcome.success
        assert observations == alone[task_id]
        assert outcome.info["worlds_lost"] == (1 if task_id == hit else 0)


def everyone(barrier):
    return lambda environment, turn: barrier.wait() if turn == 1 else None


def test_the_interpreter_is_locked_down_by_the_kernel(bench):
    world = bench.make(EpisodeKey(0, 0, "any", 0))._pool.acquire()
    try:
        world.post("reset", 60.0, task_id=secret_task(bench).id)
        world.post("execute", 60.0, code="print(1)")
        status = Path(f"/proc/{world.interpreter_pid}/status").read_text()
        fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
        assert (fields["Seccomp"], fields["NoNewPrivs"]) == ("2", "1")
        descriptors = os.listdir(f"/proc/{world.interpreter_pid}/fd")
        assert len(descriptors) == 1
    finally:
        bench.make(EpisodeKey(0, 0, "any", 0))._pool.release(world, healthy=True)


def test_nothing_listens_on_other_than_loopback(bench):
    play(bench, secret_task(bench).id, ["print(1)"])
    host, descendants = host_processes()
    listening = [
        connection.laddr.ip
        for process in [host, *descendants]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening and set(listening) == {"127.0.0.1"}


def test_the_host_gets_none_of_the_drivers_environment(bench, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hush")
    bench.close()
    observations, _ = play(bench, secret_task(bench).id, ["import os\nprint(sorted(vars(os)['environ']))"])
    host, _ = host_processes()
    assert "SOME_API_KEY" not in observations[0]
    assert "SOME_API_KEY" not in host.environ()


def test_no_process_outlives_a_killed_driver(appworld_installed):
    program = """
import time
from seeupo_recipe.envs.appworld import appworld_mini
from seeupo_recipe.envs.base import Action, EpisodeKey
bench = appworld_mini(worlds=2)
episodes = [bench.make(EpisodeKey(0, 0, task_id, 0)) for task_id in bench.task_ids("dev")[:2]]
for episode in episodes:
    episode.reset()
print("ready", flush=True)
episodes[0].step(Action("```python\\nwhile True: pass\\n```"))
"""
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=PROJECT, text=True)
    assert driver.stdout.readline() == "ready\n"
    processes = psutil.Process(driver.pid).children(recursive=True)
    assert len(processes) == 5  # the host, and two times a world and an interpreter
    driver.kill()
    driver.wait()
    driver.stdout.close()
    deadline = time.monotonic() + 30
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
        assert time.monotonic() < deadline, processes
        time.sleep(0.1)
