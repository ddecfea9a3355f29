"""A job on many machines over ssh: what scripts/ssh_cluster.py does.

`host.py` runs on each of the machines, as part of the code that was put there; everything else runs
where the command is given.
"""
