"""Attacks on a broker, one for every API, with a pinger beside them: what `make attack` runs."""
