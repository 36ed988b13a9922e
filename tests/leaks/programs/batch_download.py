"""A job that collects its result from elsewhere, part by part, and waits for each."""

import json
import subprocess
import sys

SERVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pacing import rounds
for number in rounds(2000):
    rows = [{"id": number * 20 + k, "name": f"article {k}", "price": k * 0.5} for k in range(20)]
    print(json.dumps(rows), flush=True)
"""


def collect():
    result = []
    command = [sys.executable, "-c", SERVER, sys.path[0]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        for part in server.stdout:
            result.extend(json.loads(part))
    return result


print(len(collect()), "rows")
