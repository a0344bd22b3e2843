"""Slurm's queue and nodes by PySlurm, in a process of its own; everything else by Slurm's commands.

`worker` is that process, a program by itself; `process` starts, asks and ends it; `scheduler` is the Scheduler port.
"""
