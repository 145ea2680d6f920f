"""Test suites of other projects' clients, run unchanged against a fresh broker: `make foreign`.

A suite is fetched by name and version from its registry with the ordinary package client, built once in the user's
cache folder, and run one process per test, each with a time-out, against a broker of its own on the loopback
address. Nothing of a suite is kept in this repository but the names of its tests:

- `not_the_measure/SUITE.txt`: what Apache Kafka itself does not pass under this helper, each with its reason;
- `expected/SUITE.txt`: what Kafka passes and Moldau does not yet, each with its reason. It may only shrink: a failure
  that is not in it fails the run, and so does an entry that passes.

`suite` says what a suite is, `lists` judges results against the lists, `processes` runs bounded commands, `runner`
puts them together; the other modules are one suite each.
"""
