"""MeterConfig messages and the core's meter configurations."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2

from netsum_switch.meter import MeterConfig
from netsum_switch.p4runtime.status import RpcError, invalid

_RATES, _BURSTS = (1 << 64) - 1, (1 << 32) - 1
_SCALE = 1_000_000.0


def read_config(config: Any) -> MeterConfig | None:
    """The configuration in a MeterConfig message; -1 is the highest value, and in all four places no configuration.
    Raises RpcError: INVALID_ARGUMENT for a number below -1, UNIMPLEMENTED for a burst that needs more than 32 bits."""
    fields = (("CIR", config.cir), ("CBurst", config.cburst), ("PIR", config.pir), ("PBurst", config.pburst))
    for name, value in fields:
        if value < -1:
            raise invalid(f"Negative meter {name}")
    for name, value in (("CBurst", config.cburst), ("Pburst", config.pburst)):
        if value > _BURSTS:
            raise RpcError(code_pb2.UNIMPLEMENTED, f"{name} too large")
    if all(value == -1 for _, value in fields):
        return None
    return MeterConfig(config.cir & _RATES, config.cburst & _BURSTS, config.pir & _RATES, config.pburst & _BURSTS)


def write_config(held: MeterConfig, config: Any) -> None:
    """Fill a MeterConfig message."""
    config.cir, config.pir = _rate(held.cir), _rate(held.pir)
    config.cburst, config.pburst = _burst(held.cburst), _burst(held.pburst)


def _rate(value: int) -> int:
    """The rate as the reference reads it back: it keeps millionths, which makes some numbers 1 less."""
    return -1 if value > _RATES >> 1 else int(value / _SCALE * _SCALE)


def _burst(value: int) -> int:
    return -1 if value == _BURSTS else value
