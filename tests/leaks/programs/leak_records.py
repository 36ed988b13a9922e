"""Records are kept: dictionaries and lists, of which every request makes and drops many elsewhere."""

from pacing import rounds

KEPT = []


def parse(number):
    return [{"row": number, "cells": [number, k]} for k in range(20)]


def summarise(rows):
    return sum(len(row["cells"]) + len(list(row)) for row in rows)


def remember(number, total):
    record = {"number": number, "total": total, "tags": [number, total], "at": number * 0.5}  # LEAK
    KEPT.append(record)  # LEAK


def handle(number):
    remember(number, summarise(parse(number)))  # LEAK


for number in rounds(16000):
    handle(number)
