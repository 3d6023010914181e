"""Stage ``ports``: the counter of what comes in at each port."""

PORTS_COUNTER = "ports"
