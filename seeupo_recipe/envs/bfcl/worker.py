"""The executor process: bfcl-eval's own executor and checker, behind limits that the kernel enforces.

``executor.py`` starts this file as a script with the names of the API classes to load; it imports nothing of
this project. Requests and replies are marshalled dictionaries, each after its length. Calls arrive as text that
the gate has written (``calls.render``).

Every request runs under a CPU-time alarm whose default action ends the process: it also stops C code that
never returns to the interpreter, and it does not depend on the machine's load. The parent starts a new
process and replays its sessions.
"""

import copy
import functools
import gc
import importlib
import inspect
import marshal
import os
import re
import resource
import signal
import sys
import time

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as checker
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as executor

MEMORY_BYTES = 1 << 30
RESULT_CHARS = 100_000
WALL_SECONDS = 300
OUT_OF_MEMORY = 70
HEADER_BYTES = 4
# State that TravelAPI shares between all its instances in long-context tasks.
SHARED_STATE = {"TravelAPI": ("credit_card_list", "booking_record")}


class MemoisedInspect:
    """Takes the place of ``inspect`` in the executor's module.

    The executor asks for all methods of all instances at every message, which costs more than most calls.
    The names of a class's methods do not change, so they are looked up once.
    """

    ismethod = staticmethod(inspect.ismethod)

    @staticmethod
    def getmembers(instance, predicate):
        members = ((name, getattr(instance, name)) for name in method_names(type(instance)))
        return [(name, member) for name, member in members if predicate(member)]


@functools.cache
def method_names(api_class):
    return [name for name, _ in inspect.getmembers(api_class, inspect.isfunction)]


def execute(session, name, calls, evaluation=False):
    """Run ``calls`` on the instances called ``name``; create them at the first use."""
    results, instances = executor.execute_multi_turn_func_call(
        calls,
        session["config"],
        session["classes"],
        name,
        session["task"],
        long_context=session["long_context"],
        is_evaL_run=evaluation,
    )
    return results, instances


def own_state(session, name, evaluation=False):
    """Create the instances called ``name`` with copies of what they would share with other instances."""
    shared = SHARED_STATE.keys() & set(session["classes"]) if session["long_context"] else ()
    if shared:
        _, instances = execute(session, name, [], evaluation)
        for class_name in shared:
            state = vars(instances[class_name])
            state.update(copy.deepcopy({attribute: state[attribute] for attribute in SHARED_STATE[class_name]}))


def purge(session, name):
    for suffix in ("", "_eval", "_ground_truth_eval"):
        for class_name in session["classes"]:
            key = re.sub(r"[-./:]", "_", f"{name}{suffix}_{session['task']}_{class_name}_instance")
            vars(executor).pop(key, None)


def check(session, name, turns, ground_truth):
    """Verdict of the package's checker on ``turns`` (user turn -> message -> call) against ``ground_truth``."""
    entry = {
        "id": session["task"],
        "initial_config": session["config"],
        "involved_classes": session["classes"],
    }
    own_state(session, name, evaluation=True)
    own_state(session, f"{name}_ground_truth", evaluation=True)
    try:
        verdict = checker.multi_turn_checker(turns, ground_truth, entry, "", name)
    except Exception as error:  # a state that cannot be compared, such as a directory copied into itself
        return {"valid": False, "error_type": f"checker:{type(error).__name__}", "failed_turn": None}
    finally:
        purge(session, name)
    if verdict["valid"]:
        return {"valid": True, "error_type": None, "failed_turn": None}
    return {"valid": False, "error_type": verdict["error_type"], "failed_turn": failed_turn(verdict)}


def failed_turn(verdict):
    """Index of the user turn at which the checker stopped."""
    executed = verdict.get("execution_result") or verdict["details"].get("execution_result")
    if executed:
        return len(executed) - 1
    return int(re.search(r"for turn (\d+)", verdict["error_message"])[1])


def run(session, name, calls):
    return execute(session, name, calls)[0] if calls else []


def handle(request, sessions):
    """Reply to one request; a request to close has no reply."""
    name = f"session{request['session']}"
    if "open" in request:
        sessions[name] = request["open"]
        own_state(request["open"], name)
    session = sessions[name]
    if request["do"] == "close":
        purge(session, name)
        del sessions[name]
        return None
    if request["do"] == "check":
        return check(session, f"{name}check", request["turns"], request["ground_truth"])
    results = [run(session, name, calls) for calls in request["messages"]]
    return {"results": [[text[:RESULT_CHARS] for text in texts] for texts in results]}


def main(api_classes):
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for name in api_classes:
        importlib.import_module(CLASS_FILE_PATH_MAPPING[name])
    time.strptime("2024-09-01", "%Y-%m-%d")  # imports its helper module now, not at an agent's call
    for alarm in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(alarm, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    executor.inspect = MemoisedInspect
    gc.freeze()
    serve(requests, replies)


def serve(requests, replies):
    sessions = {}
    send(replies, {"ready": True})
    while header := requests.read(HEADER_BYTES):
        request = marshal.loads(requests.read(int.from_bytes(header, "big")))
        signal.setitimer(signal.ITIMER_PROF, request["cpu_seconds"])
        signal.alarm(WALL_SECONDS)
        reply = handle(request, sessions)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        if reply is not None:
            send(replies, reply)


def send(replies, reply):
    data = marshal.dumps(reply)
    replies.write(len(data).to_bytes(HEADER_BYTES, "big") + data)
    replies.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
