"""The version, the same as in ``pyproject.toml`` and ``Cargo.toml``."""

__version__ = "0.1.0"
