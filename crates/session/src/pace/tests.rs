//! The controller: its decisions over time, without a session. The programs and their clocks are simulated.

mod decisions;
mod programs;
mod trials;
