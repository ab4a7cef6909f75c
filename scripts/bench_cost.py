"""The cost of an update phase, method against method: ``make bench`` (``QUICK=1``: a check of under a minute).

Usage: python scripts/bench_cost.py [--quick] [--repeats N] [--note TEXT]
"""

from __future__ import annotations

import argparse

from seeupo_recipe.bench.figures import draw
from seeupo_recipe.bench.plan import full_plan, quick_plan
from seeupo_recipe.bench.report import write_report
from seeupo_recipe.bench.run import run_plan
from seeupo_recipe.runs import results_root
from seeupo_recipe.study.build import plots_root


def main() -> None:
    """Measure, write results/bench and draw plots/bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model and few cases, under a minute")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every method in every case")
    parser.add_argument("--note", default="", help="what else the machine did, for the report")
    arguments = parser.parse_args()
    plan = quick_plan() if arguments.quick else full_plan(arguments.repeats)
    table, parameters = run_plan(plan)
    name = "cost-quick" if arguments.quick else "cost"
    report = write_report(table, plan, parameters, results_root() / "bench" / name, note=arguments.note)
    draw(table, plots_root() / "bench" / name)
    print(f"wrote {report}")


if __name__ == "__main__":
    main()
