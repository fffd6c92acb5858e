//! posse, a local coding-agent runtime: adapters and front ends.
//!
//! The kernel (`posse-actors`) decides; the modules here are its adapters. They do not use one
//! another, except as tables in `tests/it/tidy.rs` allow; [`wiring`] connects them to the kernel.

pub use posse_base::failure;
pub use posse_base::hex;
pub use posse_images as images;

pub use posse_cli as cli;
pub use posse_config as config;

pub use posse_agents as agents;
pub use posse_attach as attach;
pub use posse_checkpoint as checkpoint;
pub use posse_egress as egress;
pub mod grants;
pub mod hooks;
pub use posse_journal as journal;
mod known_secrets;
pub mod models;
mod network;
pub use posse_permission as permission;
pub mod project;
pub use posse_base::protected;
pub use posse_base::secrets;
pub use posse_base::threads;
pub use posse_provider as provider;
mod run_limits;
pub use posse_sandbox as sandbox;
mod setting_checks;
pub mod signed_store;
mod start_mode;
pub use posse_tools as tools;
mod stored_output;
mod tool_counter;
pub mod trust;
mod unused_settings;
mod warnings;

pub mod commands;
pub mod doctor;
pub use posse_front as front;
pub use posse_frontend as frontend;
pub mod help;
pub mod lists;
pub mod packaging;
pub mod replaying;
pub use posse_tui as tui;
pub mod wiring;
