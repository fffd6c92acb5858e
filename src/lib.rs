//! posse, a local coding-agent runtime: adapters and front ends.
//!
//! The kernel (`posse-actors`) decides; the modules here are its adapters. Siblings do not use one
//! another, except that tools may use `sandbox`; [`wiring`] connects them.

pub mod failure;
mod hex;
pub mod images;

pub mod cli;
pub mod config;

pub mod agents;
pub mod attach;
pub mod grants;
pub mod hooks;
pub mod journal;
pub mod models;
pub mod permission;
pub mod project;
pub mod protected;
pub mod provider;
pub mod sandbox;
pub mod secrets;
pub mod signed_store;
pub mod tools;
pub mod trust;

pub mod demo;
pub mod doctor;
pub mod front;
pub mod frontend;
pub mod lists;
pub mod packaging;
pub mod replaying;
pub mod tui;
pub mod wiring;
