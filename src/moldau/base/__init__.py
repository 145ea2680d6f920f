"""What every other part may use: error codes, ids, limits, invariants."""

from moldau.base import kio_import  # noqa: F401 (before anything imports kio)
