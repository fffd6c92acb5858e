//! Tests of the whole program and of what needs real processes.

#![expect(clippy::disallowed_types, reason = "tests start the program itself")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what fails in a test should fail the test"
)]
#![expect(clippy::format_push_string, reason = "it reads better, and nobody waits for it")]

// Scripted model server, and the program on a machine of its own.
mod model_server;
mod posse;
// A server whose every byte has a script, and replies that break at any of them.
mod byte_server;

// Whole tasks over a real connection.
mod turns;
// Agents as files and as colleagues.
mod agents;
// Hand-offs from one agent to another.
mod handoff;
// Texts of the user for the system prompt.
mod system_prompt;
// Asked, allowed and denied actions.
mod permission;
// What needs a question in each permission mode.
mod permission_modes;
// Modes that change while a session runs, and who else has them.
mod changing_modes;
// Deny rules about paths, for every tool and for commands.
mod denied_paths;
// Commands that only read.
mod reading_commands;
// Edits that a person answers hunk by hunk.
mod hunk_answers;
// Programs that are asked, and secrets that are hidden.
mod hooks;
// Answers for one agent of several.
mod agent_grants;
// What outlives a session.
mod persistent_grants;
// Repositories that act before consent.
mod before_consent;
// Variables that a trusted project may receive.
mod trust_variables;
// Checkpoints of the workspace, and their restores.
mod checkpoints;
// Commands in a throw-away view of the workspace.
mod dry_runs;
mod trials_before_answers;
mod trying;
// Errors for invalid arguments.
mod arguments;
// Whole tasks in the other protocols.
mod dialects;
// Every kind of request body in every protocol.
mod request_bodies;
// The login of another program.
mod codex;
// Contexts that become too large.
mod context;
// Images, odd names, second names.
mod files;
mod first_mistakes;
// System calls that fail.
mod failing_system_calls;
// Servers that fail, lie or send rubbish.
mod provider_faults;
// Commands that reach listed domains alone.
mod network_by_domain;
// Proxies, names that lead nowhere, another model than was asked.
mod networks;
// Journals of interrupted runs.
mod journal;
// Resumed sessions.
mod reported_names;
mod resume;
// Agents that change the same files.
mod writers;
// Agents that each have a copy of them.
mod worktree;
// Files named like secrets that git tracks.
mod tracked_secrets;
// Many agents from the first question to the last cent.
mod end_to_end;
// The second front end of the documentation.
mod line_frontend;
// Background jobs.
mod jobs;
// Files written with permission while commands run.
mod concurrent_file_changes;
// Who may open it, and journals of other versions.
mod journal_lock;
mod journal_versions;
// Stopping from outside.
mod every_setting;
mod session_listing;
mod settings;
mod signals;
mod skills;
// Every other way in which a run ends, or does not although its terminal is gone.
mod endings;
// Killed again and again, and resumed.
mod kill_loop;
// A bad day from its beginning to its end.
mod long_run;

// References that are written from the program.
mod reference;
// Links, table of contents and examples of the documents.
mod book;
// Errors of command line and configuration.
mod cli;
// A user with nothing but a shell.
mod demo;

// A program that drives a session, and a person at a terminal.
mod driving;
// Front ends that join a session of another process.
mod attach;
mod commands;
mod model_requests;
mod plain;
mod tui;
mod undo;

// Cost and budget.
mod ledger;
// Exported and replayed sessions.
mod export;
mod remote_revert;
mod replay;
mod requests;
// What works on a machine and what does not.
mod doctor;

// Processes and confinement.
mod confining;
mod exec;
// An untrusted repository.
mod untrusted_repo;
// Denied actions of the sandbox, each with an allowed twin.
mod sandbox;
// Repositories, pointers, links and control files in random combinations.
mod random_trees;
// A model that does what an attacker wrote.
mod prompt_injection;
// Rules about the source that no compiler checks.
mod tidy;
// The shell judge against bash.
mod judge_fuzz;
// The shell judge on the command line.
mod judge;
// The commands around the configuration.
mod configuring;
