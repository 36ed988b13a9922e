"""One document is read, and written as HTML."""

import docutils.core

DOCUMENT = "\n".join(
    f"Section {number}\n===========\n\nSome *text* with a `reference`_ and ``code``.\n\n- one\n- two\n\n"
    f"=====  =====\nA      B\n=====  =====\n{number:<5}  x\n=====  =====\n"
    for number in range(400)
)
docutils.core.publish_string(DOCUMENT, writer_name="html", settings_overrides={"report_level": 5})
