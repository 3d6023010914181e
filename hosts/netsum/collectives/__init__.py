"""The collectives, one a file."""
