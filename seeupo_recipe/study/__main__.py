"""Entry point of ``python -m seeupo_recipe.study``."""

import sys

from seeupo_recipe.study.cli import main

sys.exit(main())
