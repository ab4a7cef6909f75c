"""Before and beside runs on GPUs: check a machine, plan memory and hours, try every cell on a CPU.

``python -m seeupo_recipe.cluster {doctor,plan,dry-run,smoke}``. verl and torch are imported where a command needs them.
"""
