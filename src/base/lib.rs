//! Shared basics: errors and exit codes, hexadecimal text, names and redaction of secrets,
//! protected file names, paths as text, and words of a shell.

pub mod failure;
pub mod hex;
pub mod paths;
pub mod protected;
pub mod secrets;
pub mod shell_words;

/// Output of `future`; pending forever if there is none. For branches of `select!`.
pub async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
