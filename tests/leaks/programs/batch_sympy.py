"""Polynomials are expanded, factored and integrated."""

import sympy

x, y = sympy.symbols("x y")
results = []
for power in range(2, 14):
    expanded = sympy.expand((x + y + power) ** power)
    results.append(sympy.factor(expanded - 1))
    results.append(sympy.integrate(expanded * sympy.sin(x), x))
print(len(str(results)))
