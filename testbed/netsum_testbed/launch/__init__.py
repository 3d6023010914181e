"""``netsum run``: the ranks of a training program, in a fabric of their own or in a job of a running controller."""
