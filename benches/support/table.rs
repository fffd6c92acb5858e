//! Bench figures with their bounds, one line each.

use std::time::{Duration, Instant};

/// Prints a figure with its minimum `wanted`. Returns true if `value` is not below it.
#[allow(dead_code, reason = "not every bench has such a figure")]
pub(crate) fn at_least(name: &str, value: f64, wanted: f64, unit: &str) -> bool {
    let good = value >= wanted;
    line(name, value, unit, &format!(">= {wanted:.0}"), good);
    good
}

/// Prints a figure with its maximum `wanted`. Returns true if `value` is not above it.
#[allow(dead_code, reason = "not every bench has such a figure")]
pub(crate) fn at_most(name: &str, value: f64, wanted: f64, unit: &str) -> bool {
    let good = value <= wanted;
    line(name, value, unit, &format!("<= {wanted}"), good);
    good
}

/// Prints a figure that has no bound.
#[allow(dead_code, reason = "not every bench has such a figure")]
pub(crate) fn fact(name: &str, value: f64, unit: &str) {
    line(name, value, unit, "", true);
}

#[expect(clippy::print_stdout, reason = "a report")]
fn line(name: &str, value: f64, unit: &str, wanted: &str, good: bool) {
    let mark = if good { "" } else { "  MISSED" };
    println!("{name:<52} {value:>12.1} {unit:<10} {wanted:>12}{mark}");
}

/// Shortest time of `work` in `times` runs.
#[allow(dead_code, reason = "not every bench repeats its work")]
pub(crate) fn best(times: usize, mut work: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..times {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    best
}
