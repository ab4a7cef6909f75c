"""Plays code blocks in AppWorld's own class, for comparison; runs on `.venv-appworld`, not collected.

Reads ``[[task_id, [code, ...]], ...]`` from stdin; writes what each block printed and the evaluation.
"""

import json
import sys

from appworld import AppWorld

results = []
for task_id, codes in json.load(sys.stdin):
    world = AppWorld(task_id=task_id, experiment_name="original")
    outputs = [world.execute(code) for code in codes]
    completed = world.task_completed()
    verdict = world.evaluate().to_dict()
    world.close()
    results.append(
        {
            "outputs": outputs,
            "completed": completed,
            "passed": sorted(entry["requirement"] for entry in verdict["passes"]),
            "failed": sorted(entry["requirement"] for entry in verdict["failures"]),
        }
    )
sys.stdout = sys.__stdout__
print("\n" + json.dumps(results))
