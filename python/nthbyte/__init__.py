"""nthbyte samples one in every n bytes that a Python program allocates.

From the command line::

    nthbyte run app.py
    nthbyte summary nthbyte-app.1234.nthb

From a program::

    import nthbyte

    with nthbyte.Profiler("out.nthb", every="512KiB"):
        work()
"""

from nthbyte._agent import Error, Result
from nthbyte._session import Profiler, start, stop
from nthbyte._version import __version__

__all__ = ["Error", "Profiler", "Result", "__version__", "start", "stop"]
