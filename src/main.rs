//! posse
fn main() {}
