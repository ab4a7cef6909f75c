"""See :mod:`seeupo_recipe.cluster.cli`."""

import sys

from seeupo_recipe.cluster.cli import main

if __name__ == "__main__":
    sys.exit(main())
