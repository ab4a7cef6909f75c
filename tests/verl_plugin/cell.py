"""Run cells in this process: ``python cell.py <results> <outputs> override... [-- override...]``."""

import os
import sys

os.environ.update(SEEUPO_RESULTS=sys.argv[1], SEEUPO_OUTPUTS=sys.argv[2])

from seeupo_recipe.compose import compose_config
from seeupo_recipe.runs import open_run


def main() -> None:
    cells = " ".join(sys.argv[3:]).split(" -- ")
    runs = [open_run(compose_config(cell.split())) for cell in cells]
    for run in runs:
        print(run.record.folder, flush=True)
    if runs[0].config.backend == "lab":
        from seeupo_recipe.lab.session import run_cell

        for run in runs:
            run_cell(run)
    else:
        from seeupo_recipe.verl_plugin.session import run_cells

        run_cells(runs)


if __name__ == "__main__":
    main()
