"""Hostile model output, judged by a detector that knows nothing of the gate.

The detector is an audit hook in the executor process (every evaluated expression must be one method of one API
instance, and nothing may be opened, imported or started), an audit hook in the client, canary files and a
count of processes. See drivers/hostile.py and drivers/detector.
"""

import json
import os
import subprocess
import sys

import pytest

SEED = int(os.environ.get("BFCL_HOSTILE_SEED", "826417"))


@pytest.fixture
def attack(drivers, tmp_path):
    def run(calls):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, str(drivers / "hostile.py"), str(SEED), str(calls), str(tmp_path)]
        return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)

    return run


def test_hostile_calls_run_nothing_but_api_methods(attack):
    report = attack(10_000)
    print(f"seed {SEED}: {report}")
    assert report["violations"] == [] and report["own_violations"] == []
    assert report["canary_unchanged"]
    assert report["most_processes"] == 1
    # multi_turn_base_139 adds an unlisted stock, so that any unlisted stock passes the official checker.
    assert report["calls"] >= 10_000 and report["successes"] <= 2
    assert report["reference_solutions"] == [40, 40]
    # The attack was one: many calls reached the executor, many were refused, bombs were stopped.
    assert report["evaluated"] > 4_000
    assert report["info"]["refused_calls"] > 1_000 and report["info"]["malformed_messages"] > 500
    assert report["bombs"] > 10 and report["workers"] > report["info"]["stopped_messages"] / 2 > 1


def test_the_detector_sees_what_passes_no_gate(attack):
    report = attack(0)
    assert any("evaluated" in line for line in report["violations"])
    assert any("os.listdir" in line for line in report["violations"])
    assert any("pwned" in line for line in report["violations"])
