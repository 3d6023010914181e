"""Compiles a program into straight-line Python.

Two functions come out: ``ingress`` (parser, checksum verification, ingress control, replication) and ``egress`` (egress
control, checksum update, deparser). Every field is a local variable, every action is inlined under its table's
dispatch, and a header that was not written to leaves as the bytes that came in.
"""

from netsum_switch.codegen.module import generate


def dump(text: str | bytes) -> str:
    """Return the Python that a program (BMv2 JSON) becomes, for people who want to read it."""
    from netsum_switch.program import Program  # noqa: PLC0415 - the generator itself takes a parsed program

    return generate(Program(text))


__all__ = ["dump", "generate"]
