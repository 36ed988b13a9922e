"""A handler that was meant for a test keeps every record."""

import logging

from pacing import rounds


class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # LEAK


log = logging.getLogger("service")
log.setLevel(logging.INFO)
log.propagate = False
log.addHandler(Keep())


def handle(number):
    work = [str(k) for k in range(60)]
    log.info("request %d took %d", number, len(work))  # LEAK


for number in rounds(8000):  # LEAK
    handle(number)
