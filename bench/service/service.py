"""A FastAPI service that answers orders: service.py ready|labels|ddtrace|pyroscope|plain [ADDRESS]

It prints its port. ADDRESS is Pyroscope's server. nthbyte is not named here but for its labels: the command that runs
this brings it.
"""

import asyncio
import os
import sys
from collections import deque

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

WITH = sys.argv[1]


class Order(BaseModel):
    """One row of a request."""

    number: int
    customer: str
    prices: list[float]


app = FastAPI()
# What the service holds: the same number of requests, but for the first minutes.
recent: deque[dict[str, list[Order]]] = deque(maxlen=300)


@app.post("/orders")
async def orders(rows: list[Order]) -> dict[str, float]:
    """Sums by customer, and the rows of the last requests."""
    by_customer: dict[str, list[Order]] = {}
    for row in rows:
        by_customer.setdefault(row.customer, []).append(row)
    recent.append(by_customer)
    await asyncio.sleep(0)
    return {name: sum(sum(row.prices) for row in of) for name, of in by_customer.items()}


@app.get("/customers/{name}")
async def customer(name: str) -> list[Order]:
    """The rows of one customer."""
    return [row for by_customer in list(recent)[-10:] for row in by_customer.get(name, ())]


if WITH == "labels":
    from nthbyte.integrations.asgi import Labels

    app.add_middleware(Labels)
if WITH == "ddtrace":
    # The profiler alone, with its stacks of time, as `ddtrace-run` has it; and files instead of an agent.
    os.environ.update(
        DD_PROFILING_OUTPUT_PPROF="ddtrace/profile",
        DD_PROFILING_HEAP_ENABLED="true",
        DD_PROFILING_MEMORY_ENABLED="true",
        DD_PROFILING_STACK_ENABLED=os.environ.get("WITH_TIME", "false"),
        DD_PROFILING_LOCK_ENABLED="false",
        DD_TRACE_ENABLED="false",
        DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
        DD_REMOTE_CONFIGURATION_ENABLED="false",
        DD_CRASHTRACKING_ENABLED="false",
    )
    from ddtrace.profiling import Profiler

    Profiler().start()
if WITH == "pyroscope":
    import pyroscope

    pyroscope.configure(
        application_name="service", server_address=sys.argv[2], mem_enabled=True, cpu_enabled=False
    )


async def main() -> None:
    """Serves until SIGTERM."""
    # However long the machine lets a client wait.
    config = uvicorn.Config(
        app, port=0, log_level="error", loop="asyncio", http="h11", timeout_keep_alive=3600
    )
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await task


asyncio.run(main())
