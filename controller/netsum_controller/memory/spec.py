"""A region of memory as a user asks for it."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from netsum_controller.config.job_spec import Token
from netsum_controller.config.topology import Name
from netsum_controller.config.yaml_marks import Strict
from netsum_controller.errors import InputError
from netsum_controller.memory.model import MAX_SHARDS
from netsum_controller.memory.placement import END_OF_ADDRESSES, LEAST_GRANULE, LEAST_SIZE, least_power

KINDS = ("array", "parameters", "table")
DTYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")


class RegionSpec(Strict):
    """What to create. ``size`` or ``shape`` (of ``dtype``) says how large, which is rounded up to a power of two. Without
    ``devices``, all that are there may hold it; without ``shards`` there are some for each device. ``options`` are the kind's.
    Without a ``token`` a random one is made."""

    name: Name
    size: int = Field(default=0, ge=0, lt=END_OF_ADDRESSES)
    devices: Annotated[tuple[Name, ...] | None, Field(strict=False, min_length=1)] = None
    replicas: int = Field(default=1, ge=1, le=16)
    granule: int = Field(default=LEAST_GRANULE, ge=LEAST_GRANULE)
    shards: int | None = Field(default=None, ge=1, le=MAX_SHARDS)
    kind: Literal["array", "parameters", "table"] = "array"
    dtype: Literal["int32", "int64", "uint32", "uint64", "float32", "float64"] | None = None
    shape: Annotated[tuple[Annotated[int, Field(ge=0)], ...] | None, Field(strict=False)] = None
    options: dict[str, Any] = Field(default_factory=dict)
    token: Token | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.shape is not None and self.dtype is None:
            raise ValueError("a shape needs a dtype")
        if not self.size and self.shape is None:
            raise ValueError("give a size, or a dtype and a shape")
        for name in ("granule", "shards"):
            value = getattr(self, name)
            if value is not None and value != least_power(value):
                raise ValueError(f"{name} must be a power of two, not {value}")
        if self.size and self.size < self._array_bytes:
            raise ValueError(
                f"an array of shape {self.shape} has {self._array_bytes} bytes, more than size {self.size}"
            )
        if (self.shards or 1) * self.granule > self.bytes:
            raise ValueError(
                f"{self.shards or 1} shards in granules of {self.granule} bytes are more than {self.bytes}"
            )
        if self.devices is not None and len(set(self.devices)) != len(self.devices):
            raise ValueError("a device is named twice")
        return self

    @property
    def _array_bytes(self) -> int:
        return 0 if self.shape is None else prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """The size of the region: a power of two."""
        return least_power(max(self.size, self._array_bytes, LEAST_SIZE))

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Like the constructor; :class:`InputError` has a sentence for each thing that is wrong."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InputError(*map(_sentence, error.errors())) from None


def _sentence(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    text = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
