"""Figures: data frames from records, and matplotlib drawings of them."""
