"""A shop behind HTTP: sessions, rendered pages, handlers of events, and a log. A client visits it."""

import functools
import logging
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VISITS = 1500


class Session:
    def __init__(self, number):
        self.number = number
        self.viewed = {}

    def view(self, product):
        self.viewed[product] = {"name": f"product {product}", "text": f"{product:9d}" * 60}


class Sessions:
    """Every session since the start, by its number."""

    def __init__(self):
        self.by_number = {}
        self.recent = []

    def get(self, number):
        if number not in self.by_number:
            self.by_number[number] = session = Session(number)
            self.recent = [*self.recent[-199:], session]
        return self.by_number[number]


sessions = Sessions()
events = {"visit": []}


class LastRecords(logging.Handler):
    """Keeps records for a page of the administrator."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


log = logging.getLogger("shop")
log.addHandler(LastRecords())
log.propagate = False


@functools.cache
def page(product):
    return f"<h1>product {product}</h1>" + f"<p>{product:9d}</p>" * 80


def remember(session, body):
    """Has the shop greet this visitor at the end of the day."""
    number = session.number
    events["visit"].append(lambda: (number, body[:20]))


class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        number, product = map(int, self.path[1:].split("/"))
        session = sessions.get(number)
        for other in range(4):
            session.view(product + other)
        body = page(product).encode()
        remember(session, body)
        log.warning("%s", self.headers)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
threading.Thread(target=server.serve_forever, daemon=True).start()
for visit in range(VISITS):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{visit}/{visit % 300}") as answer:
        answer.read()
server.shutdown()
