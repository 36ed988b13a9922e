"""Four documents in one process, one after the other."""

import docutils.core

for turn in range(4):
    document = "\n".join(
        f"Section {number}\n============\n\nSome *text* and ``code``, turn {turn}.\n\n- one\n- two\n"
        for number in range(500)
    )
    docutils.core.publish_string(document, writer_name="html", settings_overrides={"report_level": 5})
