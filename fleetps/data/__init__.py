"""Data sets: MultiSlot shards with a dataset.json, their converters, and how they are read."""
