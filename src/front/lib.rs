//! Front ends without a full-screen UI: headless, line mode and attach.
//!
//! A front end consumes events and sends requests; it makes no decisions. It uses the kernel and
//! shared code, and no provider, tool or journal.

pub mod attached;
pub mod headless;
pub mod plain;
pub mod prompt;
pub mod resume_hint;

mod driver;
mod output;
mod progress;
mod question;
