"""Tasks of Celery, with a broker and results in folders beside this file."""

import hashlib
import os

from celery import Celery

HERE = os.path.dirname(os.path.abspath(__file__))
BOX, RESULTS = os.path.join(HERE, "box"), os.path.join(HERE, "results")
for folder in (BOX, RESULTS):
    os.makedirs(folder, exist_ok=True)
app = Celery("tasks", broker="filesystem://", backend=f"file://{RESULTS}")
app.conf.broker_transport_options = {
    "data_folder_in": BOX,
    "data_folder_out": BOX,
    "control_folder": os.path.join(HERE, "control"),
}


@app.task
def digest(number):
    """Returns a hash of so many lists."""
    return hashlib.sha1("".join(str([row, row * row]) for row in range(number)).encode()).hexdigest()


@app.task
def fail(number):
    """Raises an exception."""
    raise ValueError(number)
