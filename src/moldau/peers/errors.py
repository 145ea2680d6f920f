"""What can go wrong between a request to a peer and its answer."""

from __future__ import annotations


class Disconnected(Exception):
    """There is no connection, or it is gone, and with it the answer: what became of the request is not known."""


class TimedOut(Disconnected):
    """A request was not answered in time. Answers come in order, so the connection was given up with it."""


class BadAnswer(Disconnected):
    """The peer sent what no broker may answer; the connection was given up."""


class Busy(Exception):
    """There was no room for the request, and it was not sent."""


class UnsupportedVersion(Disconnected):
    """The peer serves no version of this API that is known here; the request was not sent."""
