//! Front ends without a full-screen UI: headless, line mode and attach.
//!
//! A front end consumes events and sends requests; it makes no decisions. It depends on the kernel
//! and on no other adapter.

pub mod attached;
pub mod headless;
pub mod plain;
pub mod prompt;
pub mod resume_hint;

mod driver;
mod output;
mod progress;
mod question;
