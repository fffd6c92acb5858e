//! Tests of the whole program and of what needs real processes.

#![expect(clippy::disallowed_types, reason = "tests start the program itself")]

// A model server with a script, and the program with a machine of its own.
mod model_server;
mod posse;

// Whole tasks over a real connection.
mod turns;
// What is asked about, allowed and denied.
mod permission;
// Servers that fail, lie or send rubbish.
mod provider_faults;

// A program that drives a session, and a person at a terminal.
mod driving;
mod plain;

// Processes: what they see, how they end, what is left of them.
mod exec;
