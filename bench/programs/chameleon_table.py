"""Fills large tables with Chameleon and Jinja templates."""

from chameleon import PageTemplate
from jinja2 import Environment

ZPT = """
<table xmlns="http://www.w3.org/1999/xhtml" xmlns:tal="http://xml.zope.org/namespaces/tal">
<tr tal:repeat="row table"><td tal:repeat="c row.values()"><span class="column-${c}" tal:content="'%d' % (c + 1)"/></td></tr>
</table>"""
JINJA = """
<table>{% for row in table %}<tr class="{{ loop.cycle('odd', 'even') }}">{% for name, c in row.items()|sort %}
<td class="{{ name|upper }}">{{ (c + 1)|string|e }}{% if c is divisibleby 3 %}*{% endif %}</td>{% endfor %}</tr>
{% endfor %}</table>"""

table = [dict(zip("abcdefghij", range(row, row + 10))) for row in range(3000)]
size = 0
zpt, jinja = PageTemplate(ZPT), Environment(autoescape=True).from_string(JINJA)
for _ in range(7):
    size += len(zpt.render(table=table)) + len(jinja.render(table=table))
print(f"templates: {size} characters")
