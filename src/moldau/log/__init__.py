"""A partition's log: segments, indexes, producer state, leader epochs, recovery, and the data folder."""
