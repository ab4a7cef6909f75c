"""Watches everything that the executor process does once it is ready; knows nothing of the gate.

Reports to the pipe named by BFCL_DETECTOR: ``ready`` when the process has finished starting, ``call`` for each
evaluated expression that is one attribute of one session's instance, ``ended`` at a normal end, and
``VIOLATION ...`` for anything else that Python's audit hooks see.
"""

import os
import re
import sys
import types

INSTANCE = re.compile(r"session\d+(check(_ground_truth)?_eval)?_multi_turn_\w+_instance")
METHOD = re.compile(r"[A-Za-z]\w*")
# Messages of the worker's pipe, and deep copies. What is compiled is judged when it is evaluated.
HARMLESS = {"marshal.loads", "marshal.dumps", "builtins.id"}


def install(pipe):
    ready = False

    def report(text):
        os.write(pipe, text.encode(errors="backslashreplace")[:400] + b"\n")

    def evaluated(code):
        nested = any(isinstance(constant, types.CodeType) for constant in code.co_consts)
        names = code.co_names
        one_call = len(names) == 2 and INSTANCE.fullmatch(names[0]) and METHOD.fullmatch(names[1])
        if nested or not one_call:
            report(f"VIOLATION evaluated {names} nested={nested}")
        else:
            report("call")

    def hook(event, arguments):
        nonlocal ready
        if not ready:
            if event == "resource.setrlimit" and arguments[0] == 4:  # RLIMIT_CORE, the last step of starting
                ready = True
                report("ready")
        elif event == "exec":
            evaluated(arguments[0])
        elif event == "cpython._PySys_ClearAuditHooks":
            report("ended")
        elif event not in HARMLESS and not (event == "compile" and arguments[1] == "<string>"):
            report(f"VIOLATION {event} {arguments!r}")

    sys.addaudithook(hook)


if "BFCL_DETECTOR" in os.environ:
    install(os.open(os.environ["BFCL_DETECTOR"], os.O_WRONLY))
