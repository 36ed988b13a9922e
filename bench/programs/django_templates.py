"""Renders a table with Django's templates, from rows that its ORM stores in SQLite."""

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.template import engines  # noqa: E402

call_command("migrate", run_syncdb=True, verbosity=0)
User.objects.bulk_create(
    User(
        username=f"user{n}", first_name=f"First {n % 37}", last_name=f"Last <{n}>", email=f"u{n}@example.org"
    )
    for n in range(2000)
)
template = engines["django"].from_string("""
<table>{% for user in users %}<tr class="{% cycle 'odd' 'even' %}">
  <td>{{ forloop.counter }}</td><td>{{ user.username|upper }}</td><td>{{ user.get_full_name|escape|truncatechars:12 }}</td>
  <td>{% if user.is_staff %}staff{% else %}{{ user.email|default:"none" }}{% endif %}</td>
  <td>{{ user.date_joined|date:"Y-m-d H:i" }}</td></tr>{% endfor %}</table>
""")
size = 0
for first in ("First 1", "First 2", "", "F", "Fi"):
    users = User.objects.filter(first_name__startswith=first).order_by("last_name", "-id")
    size += len(template.render({"users": users}))
print(f"django: {size} characters")
