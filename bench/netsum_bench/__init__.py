"""Measures what netsum costs: ``netsum bench``."""
