"""The experiments, a file each. ``ALL`` in ``evaluation.registry`` is their order."""
