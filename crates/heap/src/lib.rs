//! Where CPython's small objects live: arenas, size classes and free lists cut at the sample point.
