"""Run one cell in this process: ``python cell.py <results> <outputs> override...``."""

import os
import sys

os.environ.update(SEEUPO_RESULTS=sys.argv[1], SEEUPO_OUTPUTS=sys.argv[2])

from seeupo_recipe.compose import compose_config
from seeupo_recipe.runs import open_run


def main() -> None:
    run = open_run(compose_config(sys.argv[3:]))
    print(run.record.folder, flush=True)
    if run.config.backend == "lab":
        from seeupo_recipe.lab.session import run_cell

        run_cell(run)
    else:
        from seeupo_recipe.verl_plugin.session import run_cells

        run_cells([run])


if __name__ == "__main__":
    main()
