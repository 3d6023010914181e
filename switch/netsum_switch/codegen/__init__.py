"""The engine that compiles a program to straight-line Python. Needs nothing but Python.

The front half, `netsum_switch.lowering`, gives integers, a few statements and a graph of nodes. `expressions` and `statements`
write integers and what is done with them, `parser`, `control`, `checksum` and `deparser` what their names say; `module` puts
them together.

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
