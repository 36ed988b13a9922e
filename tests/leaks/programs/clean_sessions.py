"""Sessions come and go; each lives for some seconds, and their number stays."""

import random
import sys

from pacing import rounds

RANDOM = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
SESSIONS = {}


def login(number):
    SESSIONS[number] = {"user": f"user {number}", "basket": [], "seen": bytes(500)}


def visit(session):
    session["basket"].append([str(k) for k in range(10)])


def handle(number):
    login(number)
    visit(SESSIONS[RANDOM.choice(list(SESSIONS)[-50:])])
    if len(SESSIONS) > 600:
        del SESSIONS[RANDOM.choice(list(SESSIONS)[:300])]


for number in rounds(6000):
    handle(number)
