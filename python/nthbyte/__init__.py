"""nthbyte samples one in every n bytes that a Python program allocates.

From the command line::

    nthbyte run app.py
    nthbyte summary nthbyte-app.1234.nthb

From a program::

    import nthbyte

    with nthbyte.Profiler("out.nthb"):
        work()

PYTEST_DONT_REWRITE: pytest wants to rewrite the packages of its plugins, and warns of one that is imported already, as
this one is in a process that is recorded. Where warnings are errors, it would not begin.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nthbyte._agent import Error, Result
    from nthbyte._labels import label
    from nthbyte._ready import ready
    from nthbyte._session import Profiler, snapshot, start, stop
    from nthbyte._version import __version__
else:
    # Imported at their first use, because ``nthbyte run`` installs its heap before it imports the other modules.
    _HOMES = {
        "Error": "_agent",
        "Profiler": "_session",
        "Result": "_agent",
        "__version__": "_version",
        "label": "_labels",
        # What `%load_ext nthbyte` looks for in a notebook.
        "load_ipython_extension": "_notebook",
        "ready": "_ready",
        "snapshot": "_session",
        "start": "_session",
        "stop": "_session",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(__import__(f"{__name__}.{_HOMES[name]}", fromlist=[name]), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = ["Error", "Profiler", "Result", "__version__", "label", "ready", "snapshot", "start", "stop"]
