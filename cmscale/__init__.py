"""cm-scale watches what Slurm cannot start and moves the world one safe step toward the machines that would."""
