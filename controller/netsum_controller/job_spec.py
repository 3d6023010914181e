"""A job as a person asks for it.

::

    name: resnet
    members: [h1, h2, h3, h4]     # rank order; the same host may hold several ranks
    window: 64                    # optional: blocks in flight
    chunks: 16                    # optional: payload of a block in 256-byte chunks
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from netsum.wire import schema
from pydantic import BaseModel, ConfigDict, Field, model_validator

from netsum_controller.topology import Name
from netsum_controller.yaml_marks import MarkedYaml, PathError, load_yaml, parse_yaml, validate

DEFAULT_WINDOW = 64
"""Blocks in flight: 64 of 4 KiB are 256 KiB, several round trips' worth for a software switch."""
MAX_WINDOW = schema.SLOTS // 2


class JobSpec(BaseModel):
    """What to create. ``token`` is made up when it is not given."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Name
    members: tuple[Name, ...] = Field(strict=False, min_length=1, max_length=schema.MAX_WORKERS)
    window: int = Field(default=DEFAULT_WINDOW, ge=1, le=MAX_WINDOW)
    chunks: int | None = Field(default=None, ge=1, le=schema.MAX_CHUNKS)
    token: str | None = Field(default=None, min_length=8, max_length=256, repr=False)

    @model_validator(mode="after")
    def _printable_token(self) -> Self:
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise PathError(["token"], "must be printable ASCII without spaces: it travels in an HTTP header")
        return self

    @property
    def slots(self) -> int:
        """Slots that the window needs: at least twice as many, a power of two."""
        return 1 << (2 * self.window - 1).bit_length()


def read_job(document: MarkedYaml) -> JobSpec:
    """Job of a parsed document; :class:`~netsum_controller.errors.InputError` quotes the wrong line."""
    return validate(JobSpec, document)


def load_job(path: str | Path) -> JobSpec:
    """Job of a YAML file."""
    return read_job(load_yaml(path))


def parse_job(text: str, source: str = "job") -> JobSpec:
    """Job of a YAML text."""
    return read_job(parse_yaml(text, source))
