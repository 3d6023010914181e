"""What goes where: trees, job ids, slots, ports and table entries. Pure functions."""
