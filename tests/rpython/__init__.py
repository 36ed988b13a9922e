"""Programs that are translated with RPython: see ``translate.py``."""
