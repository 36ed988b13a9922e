//! Probes for tracers of the system (USDT): `bpftrace`, `perf`, SystemTap. Each is a `nop`, a count of who listens, and a note in the
//! file. They are where a sample is taken, and where its block is freed: the program's other allocations pass none.
//!
//! A tracer writes a breakpoint over the `nop`, in a page of this process alone. So they are in the hot code, whose pages are not
//! released ([`crate::process::image`]): a page that comes from the file again has no breakpoint.

/// `otel_memory:alloc(ptr, size, weighted_bytes)`: a sampled block, the bytes that were asked for, and the bytes that it stands
/// for, which are computed if somebody listens.
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub fn allocated(block: usize, size: u64, weighted_bytes: impl FnOnce() -> f64) {
    probe::probe_lazy!(otel_memory, alloc, block, size, weighted_bytes() as u64);
}

/// `otel_memory:free(ptr)`: a sampled block is freed.
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub fn freed(block: usize) {
    probe::probe!(otel_memory, free, block);
}
