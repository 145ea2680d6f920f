"""Compaction: of the records with one key, a log with `cleanup.policy=compact` keeps the last one.

`cleaner` runs in the broker: it chooses logs (`choice`), has each compacted in a child process (`work`), and
puts the new segments in the place of the old (`swap`). The child finds the last record of each key (`keys`),
decides for each batch what is left of it (`batches`, `transactions`) and writes new segments (`output`).
"""
