"""A cache without a bound, keyed by what differs in every request."""

import json

from pacing import rounds

CACHE = {}


def render(user):
    return json.dumps({"user": user, "rows": [user * k for k in range(40)]})  # LEAK


def handle(user):
    if user not in CACHE:
        CACHE[user] = render(user)  # LEAK
    return len(CACHE[user])


for number in rounds(20000):  # LEAK
    handle(number)
