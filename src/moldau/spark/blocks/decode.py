"""Which decoder turns blocks into columns: the compiled one where numba works, else the plain one.

To start, numba takes as long as the plain decoder for a quarter of a million records, and Spark starts workers anew
after every minute without a record: so the first records of a process are decoded plainly, and a query with few of
them never waits for numba.

numba keeps what it has compiled beside the source or in the user's cache folder, and refuses to start where it may
write to neither; then the folder is one of this user's own in the system's folder for temporary files.
`MOLDAU_FALLBACKS=1` leaves numba out.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable, Collection
from functools import cache
from typing import Final

from moldau.spark.blocks.batches import Block, Body
from moldau.spark.blocks.columns import Columns
from moldau.spark.blocks.unfolding import UnfoldBatches, tabulate

logger = logging.getLogger("moldau.spark")

Decoder = Callable[[Block, Collection[str], int, int], Columns]
FAST_MODULE: Final = "moldau.spark.blocks.decode_fast"

SAMPLE: Final = (
    Block(memoryview(bytearray(b"\x0c\x00\x00\x00\x01\x01\x00")), [Body(0, 7, 1, 0, 0, 0, 0, 0)]),
    ("value",),
    0,
    1,
)
"""One record; the compiler works at the first call."""


PLAIN_RECORDS: Final = 20_000
"""How many records a process decodes plainly before it starts numba: what they take more is a tenth of that."""


class Usual:
    """The decoder of a process: the plain one at first, then what `decoder` chooses."""

    def __init__(self) -> None:
        self._plain_left = PLAIN_RECORDS
        self.chosen: Decoder | None = None

    def __call__(self, block: Block, wanted: Collection[str], first_offset: int, next_offset: int) -> Columns:
        if self.chosen is None:
            self._plain_left -= block.record_count
            if self._plain_left >= 0:
                return _plain()(block, wanted, first_offset, next_offset)
            self.chosen = decoder()
        return self.chosen(block, wanted, first_offset, next_offset)


usual: Final[Decoder] = Usual()


@cache
def decoder() -> Decoder:
    """The best one for many records."""
    if os.environ.get("MOLDAU_FALLBACKS", "") not in ("", "0"):
        return _plain()
    try:
        fast = _fast()
        fast(*SAMPLE)
    except Exception as reason:  # whatever it is that numba or its compiler lacks here
        logger.warning("numba cannot be used (%r): records are decoded without it, some times slower", reason)
        return _plain()
    return fast


def unfolder_for(decode: Decoder) -> UnfoldBatches | None:
    """Compiled code that goes with a decoder, where that one is compiled."""
    chosen = decode.chosen if isinstance(decode, Usual) else decode
    return _unfold_batches() if getattr(chosen, "__module__", None) == FAST_MODULE else None


@cache
def _unfold_batches() -> UnfoldBatches | None:
    import numpy as np

    try:
        from moldau.spark.blocks.kernel_unfold import unfold_batches

        tabulate(
            unfold_batches, (np.zeros(1, np.uint8), np.zeros((0, 2), np.int64), np.zeros((0, 8), np.int64))
        )
    except Exception as reason:  # as with the decoder
        logger.warning("batches are unfolded without numba, a little slower (%r)", reason)
        return None
    return unfold_batches


def _plain() -> Decoder:
    from moldau.spark.blocks import decode_plain

    return decode_plain.decode


def _fast() -> Decoder:
    import numba

    try:
        from moldau.spark.blocks import decode_fast
    except RuntimeError:  # no folder that it could cache in
        numba.config.CACHE_DIR = own_folder()
        from moldau.spark.blocks import decode_fast
    return decode_fast.decode


def own_folder() -> str:
    """A folder that only this user can write to, the same one in every process where that can be had.

    What is in it gets executed: one that somebody else has made is not used.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = os.path.join(tempfile.gettempdir(), f"moldau-numba-{user}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
            return tempfile.mkdtemp(prefix="moldau-numba-")
    return path
