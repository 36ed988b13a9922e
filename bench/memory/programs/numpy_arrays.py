"""Arrays that live, temporaries of expressions, and one array of which only a part is ever written to."""

import numpy

kept = [numpy.random.default_rng(seed).random((1000, 1000)) for seed in range(12)]
partly = numpy.zeros(64 << 20, dtype=numpy.uint8)
partly[: 16 << 20] = 1
for _ in range(30):
    total = sum(float((one * other + 1.0).sum()) for one, other in zip(kept, kept[1:], strict=False))
print(total > 0, int(partly.sum()))
