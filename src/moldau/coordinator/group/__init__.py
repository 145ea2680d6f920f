"""The group coordinator: classic groups and their committed offsets, as a state machine over __consumer_offsets."""
