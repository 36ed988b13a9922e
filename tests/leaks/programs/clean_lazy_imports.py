"""Modules are imported when they are first needed, all through the run."""

import importlib

from pacing import rounds

MODULES = """
argparse ast base64 bisect calendar cmd code codecs colorsys configparser csv decimal difflib dis
email.message fractions getopt gettext glob gzip html.parser http.client imaplib json mailbox
mimetypes netrc optparse pdb pickle plistlib pprint profile quopri random sched secrets shelve
smtplib sqlite3 statistics string tarfile textwrap timeit tokenize trace unittest uuid wave
xml.dom.minidom xml.etree.ElementTree zipapp zipfile
""".split()


def handle(number):
    if number % 100 == 0 and number // 100 < len(MODULES):
        importlib.import_module(MODULES[number // 100])
    return len([str(k) for k in range(60)])


for number in rounds(6000):
    handle(number)
