import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from seeupo_recipe.envs.appworld.client import WorldClient, WorldDied, WorldError
from seeupo_recipe.envs.appworld.pool import HostDied, PoolExhausted

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]
SECONDS = 30.0


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_world_is_reused_with_a_fresh_interpreter(fake_pool):
    pool = fake_pool()
    first = pool.acquire()
    world, interpreter = first.pid, first.interpreter_pid
    pool.release(first, healthy=True)
    second = pool.acquire()
    assert second.pid == world
    assert second.interpreter_pid != interpreter
    assert not alive(interpreter)
    assert pool.counts["worlds"] == 1


def test_a_world_is_recycled(fake_pool):
    pool = fake_pool(recycle_after=2)
    pids = []
    for _ in range(5):
        world = pool.acquire()
        pids.append(world.pid)
        pool.release(world, healthy=True)
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert not alive(pids[0])
    assert pool.counts["recycled"] == 2


def test_an_unhealthy_world_is_killed(fake_pool):
    pool = fake_pool()
    world = pool.acquire()
    pids = [world.pid, world.interpreter_pid]
    pool.release(world, healthy=False)
    assert not any(alive(pid) for pid in pids)
    assert pool.acquire().pid != pids[0]
    assert pool.counts["lost"] == 1


def test_episodes_queue_for_a_free_world(fake_pool):
    pool = fake_pool(size=1)
    world = pool.acquire()
    served = []
    waiting = threading.Thread(target=lambda: served.append(pool.acquire()))
    waiting.start()
    assert served == []
    pool.release(world, healthy=True)
    waiting.join(SECONDS)
    assert served == [world]


def test_concurrent_leases_never_exceed_the_size(fake_pool):
    pool = fake_pool(size=3)
    leased, most, lock = set(), [], threading.Lock()

    def episode(number):
        world = pool.acquire()
        with lock:
            assert world.pid not in leased
            leased.add(world.pid)
            most.append(len(leased))
        world.post("reset", SECONDS, task_id=str(number))
        output = world.post("execute", SECONDS, code=f"say {number}")["output"]
        with lock:
            leased.remove(world.pid)
        pool.release(world, healthy=True)
        return output

    with ThreadPoolExecutor(12) as threads:
        outputs = list(threads.map(episode, range(60)))
    assert outputs == [str(number) for number in range(60)]
    assert max(most) <= 3
    assert pool.counts["worlds"] <= 3


def test_a_lost_interpreter_is_renewed_in_place(fake_pool):
    pool = fake_pool()
    world = pool.acquire()
    pid, lost = world.pid, world.interpreter_pid
    world.renew_interpreter()
    assert world.pid == pid
    assert alive(world.interpreter_pid) and not alive(lost)


def test_a_dead_world_is_noticed(fake_pool):
    world = fake_pool().acquire()
    world.post("reset", SECONDS, task_id="t")
    with pytest.raises(WorldDied):
        world.post("execute", SECONDS, code="die")


def test_a_hanging_world_is_noticed(fake_pool):
    world = fake_pool().acquire()
    world.post("reset", SECONDS, task_id="t")
    with pytest.raises(WorldDied, match="timed out"):
        world.post("execute", 0.5, code="hang")


def test_a_world_that_dies_while_idle_is_replaced_and_no_other_suffers(fake_pool):
    pool = fake_pool()
    busy, idle = pool.acquire(), pool.acquire()
    pool.release(idle, healthy=True)
    os.kill(idle.pid, signal.SIGKILL)
    wait_until(lambda: not alive(idle.pid))
    assert pool.acquire().pid not in (idle.pid, busy.pid)
    assert busy.post("health", SECONDS) == {"status": "ready"}
    assert (pool.counts["lost"], pool.counts["hosts"]) == (1, 1)


def test_waiting_for_ever_is_an_error_that_names_the_reason(fake_pool):
    pool = fake_pool(size=1, wait_seconds=0.1)
    world = pool.acquire()
    with pytest.raises(PoolExhausted, match="stepped together"):
        pool.acquire()
    pool.release(world, healthy=True)
    assert pool.acquire() is world


def test_a_world_refuses_strangers(fake_pool):
    world = fake_pool().acquire()
    world.disconnect()
    with pytest.raises(WorldError, match="token"):
        WorldClient(world.port, "guess").post("health", SECONDS)


def test_a_dead_host_is_replaced_and_old_leases_can_be_returned(fake_pool):
    pool = fake_pool(size=2)
    old = pool.acquire()
    os.kill(psutil.Process(old.pid).ppid(), signal.SIGKILL)
    with pytest.raises(HostDied):
        pool.acquire()
    pool.release(old, healthy=False)
    new, other = pool.acquire(), pool.acquire()
    assert new.pid != old.pid and other.pid != new.pid
    assert pool.counts["hosts"] == 2
    assert not alive(old.pid)


def test_a_host_that_does_not_start_says_why(fake_pool):
    pool = fake_pool(arguments=["--broken"])
    with pytest.raises(HostDied, match="this host is broken"):
        pool.acquire()


def test_a_failed_start_does_not_use_up_the_pool(fake_pool):
    pool = fake_pool(size=1, arguments=["--broken"])
    for _ in range(3):
        with pytest.raises(HostDied):
            pool.acquire()


def test_close_ends_every_process(fake_pool):
    pool = fake_pool()
    worlds = [pool.acquire() for _ in range(3)]
    pids = [pid for world in worlds for pid in (world.pid, world.interpreter_pid)]
    pool.close()
    wait_until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("arguments", [{"size": 0}, {"recycle_after": 0}])
def test_sizes_below_one_are_refused(fake_pool, arguments):
    with pytest.raises(ValueError, match="at least 1"):
        fake_pool(**arguments)


def test_no_process_outlives_a_killed_driver(tmp_path):
    program = f"""
import sys, time
from pathlib import Path
from seeupo_recipe.envs.appworld.pool import HostCommand, WorldPool
pool = WorldPool(HostCommand([sys.executable, {str(HERE / "fake_host.py")!r}], {{}}, Path({str(tmp_path)!r})), 2, 9)
worlds = [pool.acquire(), pool.acquire()]
print(*[pid for world in worlds for pid in (world.pid, world.interpreter_pid)], flush=True)
time.sleep(600)
"""
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=PROJECT, text=True)
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 4 and all(alive(pid) for pid in pids)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    wait_until(lambda: not any(alive(pid) for pid in pids))
