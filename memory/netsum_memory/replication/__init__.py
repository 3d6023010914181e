# SPDX-License-Identifier: MIT
"""One order of instructions on all devices of a shard: pure state machines, without sockets and without a clock.

The rules and their reasons are in ``docs/memory.md``; ``tests/model/memory`` explores these very classes.
"""
