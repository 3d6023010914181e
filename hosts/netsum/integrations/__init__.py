"""netsum in other people's training loops. Each module imports its framework; nothing else does."""
