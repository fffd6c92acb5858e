//! Shared basics: errors and exit codes, hexadecimal text, names and redaction of secrets,
//! protected file names, paths as text, walks that obey ignore files, quoting of words for a shell,
//! the last guard of terminals, removal of folders, and blocking work on threads.

pub mod claude_code;
pub mod failure;
pub mod hex;
pub mod ignore_files;
pub mod path_globs;
pub mod paths;
pub mod protected;
pub mod remove_tree;
pub mod resolved_path;
pub mod secrets;
pub mod shell_words;
pub mod terminal;
pub mod threads;

/// Formats a count with its noun: `1 process`, `2 processes`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Waits for `future` and returns its output; never completes if `future` is `None`. For branches
/// of `select!`.
pub async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
