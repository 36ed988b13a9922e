"""Tasks are kept in a set so that they are not collected, and never leave it."""

import asyncio

from pacing import rounds

TASKS = set()


async def notify(number):
    await asyncio.sleep(0)
    return f"sent {number}"  # LEAK


async def handle(number):
    task = asyncio.create_task(notify(number))  # LEAK
    TASKS.add(task)  # LEAK
    await task
    return [str(k) for k in range(40)]


async def main():
    for number in rounds(20000):
        await handle(number)


asyncio.run(main())
