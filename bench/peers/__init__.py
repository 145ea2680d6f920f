"""`python -m bench.peers`: Moldau beside what else a Python program keeps streams of messages in.

Each broker has a module here, with its server as Debian packages it and its usual Python client: `moldau`,
`redis_streams`, `nats_jetstream`, `rabbitmq_stream`. `work` is what they are asked to do, the same for all of them,
`page` what is written of it into docs/benchmarks.md.

All give the same promise, and `work.survivors` looks whether they keep it: what is confirmed is in a file, whose way to
the disk is left to the kernel. kill -9 of the server loses none of it, the loss of power may.
"""
