import runpy
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "scripts"


def test_the_weaknesses_of_the_checker_are_measured(bfcl):
    counts = runpy.run_path(str(SCRIPTS / "bfcl_weaknesses.py"))["measure"](bfcl)
    assert counts["multi_turn_base"] == {
        "doubled calls": (72, 200),
        "acting when it must not": (2, 2),
        "fits into T = 10": (187, 200),
    }
    assert counts["multi_turn_miss_func"]["acting when it must not"] == (200, 200)
    assert counts["multi_turn_miss_param"]["acting when it must not"] == (200, 200)
    assert counts["multi_turn_miss_func"]["fits into T = 10"] == (144, 200)
    assert counts["release test split"]["fits into T = 10"] == (88, 100)


def test_the_benchmark_script_measures_every_step_and_check(bfcl):
    script = runpy.run_path(str(SCRIPTS / "bench_bfcl.py"))
    work = [(task, script["scripts"](task, True)) for task in list(bfcl.tasks.values())[::100]]
    for run in (script["time_adapter"], script["time_bare"]):
        seconds = run(bfcl, work)
        assert set(seconds) == {"steps", "checks"} and all(phase["wall"] > 0 for phase in seconds.values())
