"""What handlers answer: a value for each message and struct of Kafka's response schemas, by family of APIs.

Fields have the schema's names (kio's spelling), classes too, but where several structs share one or the name says too
little. Each class has the fields of every version that is served: the writer that is compiled for the request's version
takes by name what that version has. `tests/unit/broker/handlers/test_answers.py` holds them all against the schemas.

NamedTuples, built by position where there are thousands: cheaper than a namespace, a frozen dataclass or kio's own.
The modules here evaluate their annotations (no `__future__` import), which halves what a class costs at the start.
Answers that a coordinator gives are in `coordinator.*.messages`.
"""
