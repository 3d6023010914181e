"""``python -m netsum_testbed.soak``: the same as ``netsum soak``."""

from netsum_testbed.soak.command import soak

if __name__ == "__main__":
    soak()
