"""What a broker tells Prometheus: counted on the data path (`counters`), looked up when asked for (`broker`), named and
explained in one `table`, written as `text`.
"""
