"""Every session registers a listener, and none is ever removed. All are called for every event."""

from pacing import rounds


class Bus:
    def __init__(self):
        self.listeners = []

    def subscribe(self, listener):
        self.listeners.append(listener)

    def publish(self, event):
        for listener in self.listeners[-50:]:
            listener(event)


class Session:
    def __init__(self, bus, number):
        self.name = f"session-{number}"  # LEAK
        self.seen = [None] * 20  # LEAK
        bus.subscribe(self.on_event)  # LEAK

    def on_event(self, event):
        self.seen[len(event) % 20] = event


def main():
    bus = Bus()
    for number in rounds(14000):
        Session(bus, number)  # LEAK
        bus.publish(str(number) * 3)


main()
