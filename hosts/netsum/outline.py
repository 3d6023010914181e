"""A call and its size, as its flow fills them in, for error messages."""

from __future__ import annotations

from dataclasses import dataclass

from netsum.window.block import id_distance


@dataclass
class Outline:
    """The ``call`` in words, the id of its ``first`` block, its number of ``opening`` blocks, in which the ranks agree, and of
    ``blocks`` of data, of which ``skipped`` are not sent. What is not known yet is empty or 0."""

    call: str = ""
    first: int | None = None
    opening: int = 0
    blocks: int = 0
    skipped: int = 0

    def progress(self, base: int) -> str:
        """How far the call has come if every result below block ``base`` is held; only the call if its size is not known."""
        if self.first is None or not self.blocks:
            return self.call
        held = max(0, id_distance(base, self.first))  # 0: an earlier call is under way
        done = min(max(0, held - self.opening) + self.skipped * (held > self.opening), self.blocks)
        return f"{self.call}: {done:,} of {self.blocks:,} blocks done"
