"""What OTLP's messages of profiles say, with the package of OpenTelemetry; and that each index in them leads somewhere.

The Collector checks no index.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

# By the end of a field's name: the table of the dictionary that it is an index of.
TABLES = {
    "strindex": "string_table",
    "attribute_indices": "attribute_table",
    "location_indices": "location_table",
    "link_index": "link_table",
    "stack_index": "stack_table",
    "mapping_index": "mapping_table",
    "function_index": "function_table",
}


def decode(body: bytes) -> Any:
    """The message. Every index in it is in its table, and element 0 of each table is empty."""
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

    message = profiles_service_pb2.ExportProfilesServiceRequest.FromString(body)
    dictionary = message.dictionary
    for table in TABLES.values():
        first = getattr(dictionary, table)[0]
        assert _is_empty(first), f"element 0 of {table}"
    assert _check(message, dictionary) > 0
    return message


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value
    return all(field.message_type and _is_empty(part) for field, part in value.ListFields())


def _check(message: Any, dictionary: Any) -> int:
    """Checks the indexes of a message and of those in it, and returns their number."""
    checked = 0
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        values = value if field.is_repeated else [value]
        if field.message_type:
            if field.is_repeated or message.HasField(field.name):
                checked += sum(_check(one, dictionary) for one in values)
            continue
        table = next((of for end, of in TABLES.items() if field.name.endswith(end)), None)
        if table:
            size = len(getattr(dictionary, table))
            assert all(0 <= index < size for index in values), f"{field.full_name}: {values} of {size}"
            checked += len(values)
    return checked


def kinds(message: Any) -> list[str]:
    """What the profiles of the message are of."""
    strings = message.dictionary.string_table
    return [strings[profile.sample_type.type_strindex] for profile in _profiles(message)]


def by_function(message: Any, kind: str) -> Counter[str]:
    """The values of one kind, by the innermost function."""
    dictionary = message.dictionary
    sums: Counter[str] = Counter()
    for profile in _profiles(message):
        if dictionary.string_table[profile.sample_type.type_strindex] == kind:
            for sample in profile.samples:
                innermost = dictionary.stack_table[sample.stack_index].location_indices[0]
                (line, *_) = dictionary.location_table[innermost].lines
                name = dictionary.string_table[dictionary.function_table[line.function_index].name_strindex]
                sums[name.split(".")[0]] += sum(sample.values)
    return sums


def resource(message: Any) -> dict[str, str]:
    """The attributes of the resource. The Collector moves their keys and texts into the table of strings."""
    strings = message.dictionary.string_table
    attributes = message.resource_profiles[0].resource.attributes
    return {
        one.key or strings[one.key_strindex]: one.value.string_value
        or strings[one.value.string_value_strindex]
        for one in attributes
    }


def _profiles(message: Any) -> list[Any]:
    return [
        profile
        for of_resource in message.resource_profiles
        for scope in of_resource.scope_profiles
        for profile in scope.profiles
    ]
