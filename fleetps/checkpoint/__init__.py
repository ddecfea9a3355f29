"""Checkpoints: what a job leaves so that it, or another one, can go on from there.

No Paddle here: the engine writes and reads the text of its tables, and this package verifies,
publishes, finds, converts and removes what was written. docs/checkpoints.md describes the files.
"""
