"""Evaluation programs in AppWorld's form, one per family; AppWorld runs them, nothing imports them here."""
