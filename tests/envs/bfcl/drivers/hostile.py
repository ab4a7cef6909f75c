"""Feeds hostile assistant messages to BFCL episodes and watches from outside what they do.

Usage: hostile.py SEED CALLS DIRECTORY. Prints one JSON object; the caller judges it. With 0 calls it sends
code past the gate instead, to show that the detector sees it.
"""

import hashlib
import json
import os
import random
import string
import sys
import threading
from pathlib import Path

import psutil

from seeupo_recipe.envs.base import Action, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl import executor
from seeupo_recipe.envs.bfcl.qwen import to_text

CODE = [
    "__import__('os').system('touch {canary}/pwned')",
    "open('{canary}/pwned', 'w').write('x')",
    "exec(\"import os; os.remove('{canary}/keep.txt')\")",
    "globals()",
    "inspect.os.kill(inspect.os.getppid(), 9)",
    "importlib.import_module('subprocess').Popen(['touch', '{canary}/pwned'])",
    "(lambda: 0).__globals__",
    "copy.deepcopy.__globals__['__builtins__']['eval']('1')",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    "json.codecs.open('{canary}/pwned', 'w')",
    "exit(0)",
    "quit()",
    "breakpoint()",
    "input()",
    "re.sys.exit(3)",
    "(yield)",
    "(x := 5)",
    "f'{{open(1)}}'",
    "pwd()",
    "ls() or cat('x')",
    "9**9**9",
    "'a'*10**10",
]
NAMES = [
    "eval", "exec", "open", "exit", "quit", "kill", "input", "print", "globals", "vars", "breakpoint", "compile",
    "__import__", "__init__", "__class__", "__getattribute__", "__reduce__", "_load_scenario", "_random",
    "_parse_positions", "_navigate_to_directory", "_set_card_balance", "__eq__", "os.system", "copy.deepcopy",
    "json.dumps", "re.sub", "importlib.import_module", "inspect.getmembers", "execute_multi_turn_func_call",
    "is_empty_execute_response", "_process_method_calls", "STATELESS_CLASSES", "remove", "unlink", "popen", "run",
]  # fmt: skip
BOMBS = [
    ("power", {"base": 9, "exponent": 10**9}),
    ("power", {"base": 10**18, "exponent": 10**17}),
    ("power", {"base": -7, "exponent": 10**18}),
    ("round_number", {"number": 5, "decimal_places": -(10**18)}),
    ("round_number", {"number": 10**17, "decimal_places": -(10**9)}),
    ("logarithm", {"value": 10, "base": 3, "precision": 10**9}),
    ("logarithm", {"value": "1e999999999999", "base": 2, "precision": 5}),
    ("logarithm", {"value": 2, "base": "1e-99999999999", "precision": 5}),
    ("square_root", {"number": 2, "precision": 10**9}),
    ("square_root", {"number": 2, "precision": 10**17}),
]


class Attacker:
    def __init__(self, rng, canary):
        self.rng, self.canary = rng, canary

    def code(self):
        return self.rng.choice(CODE).format(canary=self.canary)

    def text(self):
        rng = self.rng
        kind = rng.randrange(9)
        if kind == 0:
            return self.code()
        if kind == 1:
            return f"'){rng.choice([';', ',', ' or ', '+', ''])}{self.code()}#"
        if kind == 2:
            return "".join(rng.choice(string.printable) for _ in range(rng.randrange(30)))
        if kind == 3:
            return "".join(
                chr(rng.randrange(0x110000 if rng.random() < 0.2 else 0xD800)) for _ in range(rng.randrange(12))
            )
        if kind == 4:
            return rng.choice("'\"\\({[") * rng.choice([1, 2, 50, 500, 5000, 40000])
        if kind == 5:
            return "\\" * rng.randrange(5) + "'" + self.code()
        if kind == 6:
            return f"{{{self.code()}}} %s {{0.__class__}}"
        if kind == 7:
            return rng.choice(
                ["../../../etc/passwd", "/etc/passwd", f"{self.canary}/keep.txt", "~", "|", "$(touch pwned)"]
            )
        return rng.choice(["ls(a)", "see cat('x') and find(path='.')", "\x00", "\u202e", "</tool_call>", "</think>"])

    def value(self, depth=0):
        rng = self.rng
        kind = rng.randrange(10)
        if kind < 4:
            return self.text()
        if kind == 4:
            return rng.choice([10**18, -(10**18), 2**53, 0, -1, 10**9, 1e308, -1e308, 1e-308, 0.0, 10**19])
        if kind == 5:
            return rng.choice([None, True, False])
        if kind == 6 and depth < 12:
            return [self.value(depth + rng.choice([1, 1, 6])) for _ in range(rng.randrange(4))]
        if kind == 7 and depth < 3:
            return {self.text(): self.value(depth + 1) for _ in range(rng.randrange(4))}
        if kind == 8:
            nested = 0
            for _ in range(rng.choice([1, 2, 3, 9, 100])):
                nested = [nested]
            return nested
        return rng.randrange(-5, 100)

    def call(self, tools):
        """One hostile call as (name, arguments)."""
        rng = self.rng
        tool = rng.choice(tools)["function"]
        parameters = list(tool["parameters"]["properties"])
        kind = rng.randrange(16)
        name = tool["name"]
        if kind == 0:
            name = rng.choice(
                [rng.choice(NAMES), f"{name}().__class__", f"{name};{self.code()}", self.code(), self.text()]
            )
        arguments = {parameter: self.value() for parameter in parameters}
        if kind == 1:
            arguments = {self.text() or "x": self.value(), **arguments}
        if kind == 2:
            arguments = {f"{rng.choice(parameters or ['x'])}={self.code()}, y": 1}
        if kind == 3:
            arguments = {rng.choice(["self", "__class__", "class", "*", "**", "lambda", "None"]): self.value()}
        return name, arguments

    def write(self, calls):
        ascii_only = self.rng.random() < 0.5
        values = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return "\n".join(f"<tool_call>\n{json.dumps(v, ensure_ascii=ascii_only)}\n</tool_call>" for v in values)

    def message(self, calls):
        """``calls`` as an assistant message, sometimes damaged."""
        rng = self.rng
        text = self.write(calls)
        kind = rng.randrange(12)
        if kind == 0:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + self.text() + text[place:]
        elif kind == 1:
            text = text.replace('"arguments": {', '"arguments": [', 1)
        elif kind == 2:
            text = f"<tool_call>{self.code()}</tool_call>" + text
        elif kind == 3:
            text = text.replace(": ", f": {rng.choice(['NaN', 'Infinity', '9' * 6000, '1e999'])}, " + '"x": ', 1)
        return text


def hash_tree(root):
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "" for p in sorted(root.rglob("*"))}


def listen(pipe, reports):
    with open(pipe, errors="backslashreplace") as file:
        for line in file:
            reports.append(line.rstrip("\n"))


def main(seed, calls_wanted, directory):
    canary, pipe = directory / "canary", directory / "detector"
    canary.mkdir()
    (canary / "keep.txt").write_text("keep")
    os.mkfifo(pipe)
    keep_open = os.open(pipe, os.O_RDWR)  # so that the reader outlives single workers
    reports: list[str] = []
    threading.Thread(target=listen, args=(pipe, reports), daemon=True).start()
    detector = Path(__file__).with_name("detector")
    os.environ["BFCL_DETECTOR"] = str(pipe)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(detector), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["HOME"] = str(canary)
    os.chdir(canary)
    before = hash_tree(canary)

    benchmark, unlimited = load_benchmark("bfcl"), load_benchmark("bfcl", max_turns=1000)
    executor.MESSAGE_CPU_SECONDS = 0.3
    rng = random.Random(seed)
    attacker = Attacker(rng, canary)
    tasks = list(benchmark.tasks.values())
    maths = [task for task in tasks if "MathAPI" in task.classes]
    made = {"calls": 0, "messages": 0, "episodes": 0, "bombs": 0, "successes": 0}
    info: dict[str, int] = {}
    own_violations: list[str] = []
    most_processes = 0
    armed = False

    def hook(event, arguments):
        """In this process nothing may be compiled, evaluated, opened, started or signalled, but workers."""
        if armed and event.split(".")[0] in {
            "compile",
            "exec",
            "os",
            "socket",
            "ctypes",
            "shutil",
            "open",
            "subprocess",
        }:
            worker_start = executor._executor.alive is False
            if not (worker_start or event in {"os.listdir", "os.scandir"}):
                own_violations.append(f"{event} {arguments!r}"[:300])

    sys.addaudithook(hook)
    processes = psutil.Process()
    while made["calls"] < calls_wanted:
        bomb = made["episodes"] % 25 == 24
        task = rng.choice(maths if bomb else tasks)
        environment = benchmark.make(EpisodeKey(seed, 0, task.task_id, made["episodes"]))
        environment.reset()
        done = False
        while not done:
            calls = [attacker.call(task.tools) for _ in range(rng.randrange(1, 5))]
            if rng.random() < 0.3:
                calls.append(("cp", {"source": "temp", "destination": "temp"}))
                calls.append(rng.choice([("find", {}), ("du", {}), ("mkdir", {"dir_name": "temp"})]))
            text = "Done." if rng.random() < 0.25 else attacker.message(calls)
            if text == "Done.":
                calls = []
            if bomb and rng.random() < 0.3:
                calls = [rng.choice(BOMBS)]
                text = attacker.write(calls)
                made["bombs"] += 1
            armed = True
            observation = environment.step(Action(text, complete=rng.random() < 0.98))
            armed = False
            done = observation.done
            "".join(message["content"] for message in observation.messages).encode()
            made["calls"] += len(calls)
            made["messages"] += 1
        made["successes"] += environment.score().success
        for key, value in environment.score().info.items():
            if isinstance(value, int):
                info[key] = info.get(key, 0) + value
        environment.close()
        made["episodes"] += 1
        most_processes = max(most_processes, len(processes.children(recursive=True)))

    if calls_wanted == 0:
        session = executor.Session(tasks[0])
        session.run(["ls()", "__import__('os').listdir('.')", f"open('{canary}/pwned', 'w')"])
        session.close()
    solved = 0
    for task in tasks[::20]:
        environment = unlimited.make(EpisodeKey(0, 0, task.task_id, 0))
        environment.reset()
        for turn in task.ground_truth:
            if turn:
                environment.step(Action(to_text(list(turn))))
            environment.step(Action("Done."))
        solved += environment.score().success
        environment.close()
    executor._executor.release()
    os.close(keep_open)
    json.dump(
        {
            **made,
            "info": info,
            "evaluated": reports.count("call"),
            "workers": reports.count("ready"),
            "violations": [line for line in reports if line not in ("call", "ready", "ended")][:50],
            "own_violations": own_violations[:20],
            "canary_unchanged": hash_tree(canary) == before,
            "most_processes": most_processes,
            "reference_solutions": [solved, len(tasks[::20])],
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
