"""The same raw requests to Apache Kafka and to Moldau, and their answers compared field by field.

`peers` talks to the two brokers; `normal` makes answers comparable (an id becomes the name of what it identifies);
`accepted` is the one table of differences that may be, each with its reason; `scenarios` has the steps, one function
per subject, run once for every version of its API.
"""
