"""``netsum doctor``: what this machine has of what netsum uses, and what to do about the rest."""
