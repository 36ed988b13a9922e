"""Parses a long C program with pycparser, and generates C code from it."""

from pycparser import c_generator, c_parser

FUNCTION = """
struct node_{n} {{ struct node_{n} *next; int key[{n}]; union {{ float f; long l; }} value; }};
static int insert_{n}(struct node_{n} **head, int key, const char *name, unsigned long (*hash)(const char *)) {{
    struct node_{n} *at = *head;
    int found = 0, depth = {n};
    while (at != 0 && at->key[depth % {n}] != key) {{
        if (hash(name) > 0x7fffUL && (at->value.l & 0xff) == (key << 3)) {{ found++; break; }}
        else switch (depth) {{ case 1: depth--; break; case 2: depth -= 2; default: depth = depth > 0 ? depth - 1 : {n}; }}
        at = at->next;
    }}
    for (int i = 0; i < {n}; i++) {{ at->key[i] += i * sizeof(struct node_{n}) + (int)at->value.f; found |= at->key[i]; }}
    return found ? found : -depth;
}}
"""

source = "".join(FUNCTION.format(n=number) for number in range(1, 600))
tree = c_parser.CParser().parse(source, "long.c")
text = c_generator.CGenerator().visit(tree)
print(f"pycparser: {len(source)} characters in, {len(text)} out")
