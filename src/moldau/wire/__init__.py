"""Kafka's wire protocol: frames, the API table, codecs."""

import moldau.base  # noqa: F401 (it decides how kio is imported)
