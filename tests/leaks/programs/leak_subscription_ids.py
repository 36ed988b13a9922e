"""Subscriptions are cancelled, but their entries in the index by topic stay."""

import collections

from pacing import rounds


class Topics:
    def __init__(self):
        self.live = {}
        self.by_topic = collections.defaultdict(list)
        self.next = 0

    def subscribe(self, topic):
        self.next += 1
        key = f"{topic}/{self.next}"  # LEAK
        self.live[key] = {"topic": topic, "queue": []}
        self.by_topic[topic].append(key)  # LEAK
        return key

    def cancel(self, key):
        del self.live[key]


def main():
    topics = Topics()
    for number in rounds(100000):
        key = topics.subscribe(f"topic-{number % 20}")
        topics.live[key]["queue"].extend([str(k) for k in range(30)])
        topics.cancel(key)


main()
