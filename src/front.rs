//! Front ends: what a person or a program sees of a session.
//!
//! They consume events and send requests; they decide nothing. A front end knows the kernel and
//! no other adapter.

pub mod attached;
pub mod headless;
pub mod picker;
pub mod plain;
pub mod prompt;
pub mod resume_hint;

mod driver;
mod output;
mod progress;
mod question;
