"""Expands, integrates, solves and sums with sympy."""

from sympy import Matrix, Poly, expand, factor, integrate, simplify, sin, solve, symbols, tan
from sympy.abc import x, y, z

terms = len(expand((1 + x + y + z) ** 16).args)
factored = factor(expand((x + 1) ** 6 * (x**2 + x + 1) ** 4))
integral = integrate(x**3 * sin(x) ** 2, x)
roots = solve(x**4 - 5 * x**2 + 4 + y, x)
simpler = simplify((tan(x) ** 2 + 1) * (1 - sin(x) ** 2) - Poly((x + 1) ** 3, x).as_expr() / (x + 1))
a = symbols("a0:4")
determinant = Matrix(4, 4, lambda i, j: a[(i + j) % 4] + i * j).det()
print(
    f"sympy: {terms} terms, {len(roots)} roots, {len(str(determinant))} {len(str(integral))} {len(str(simpler))}"
)
