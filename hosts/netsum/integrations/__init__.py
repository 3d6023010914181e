"""netsum in training frameworks. Each module imports its framework; nothing else does."""
