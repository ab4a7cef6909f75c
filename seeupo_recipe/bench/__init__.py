"""What an update phase costs: every method on the same recorded rows, in one process, on verl's worker."""
