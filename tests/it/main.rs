//! Tests of the whole program and of what needs real processes.

// The commands around the configuration.
mod configuring;
// Processes: what they see, how they end, what is left of them.
mod exec;
