"""The algorithm in pure torch: no verl, no ray, no environment.

``ALGORITHM_VERSION`` is part of every run's identity: raise it when a change here or in a backend
alters results, so that recorded runs of different versions are never mixed.
"""

ALGORITHM_VERSION = "1"
