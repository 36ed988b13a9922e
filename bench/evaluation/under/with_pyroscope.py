"""Runs a script under Pyroscope's memory profiler, and keeps what it would send to a server: with_pyroscope.py FOLDER SCRIPT"""

import http.server
import os
import runpy
import sys
import threading

import pyroscope

folder, script = sys.argv[1:]
received = 0


class Server(http.server.BaseHTTPRequestHandler):
    """Keeps each request's body."""

    def do_POST(self):
        """Stores a profile."""
        global received
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        received += 1
        with open(os.path.join(folder, f"request-{received}.bin"), "wb") as file:
            file.write(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        """Says nothing."""


server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
pyroscope.configure(
    application_name="evaluation",
    server_address=f"http://127.0.0.1:{server.server_port}",
    mem_enabled=True,
    cpu_enabled=False,
)
sys.argv = [script]
sys.path[0] = os.path.dirname(script)
try:
    runpy.run_path(script, run_name="__main__")
finally:
    pyroscope.shutdown()
    server.shutdown()
