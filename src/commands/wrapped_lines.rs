//! Lines for a person on standard error, wrapped at words to the width of the terminal.

use std::io::Write;

use posse_base::terminal;

use crate::tui::wrapped_text;

/// Prints `text` on standard error. On a terminal, lines are wrapped at words; a continuation is
/// indented.
pub(crate) fn print(text: &str) {
    let wrapped = match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => wrapped_text(text, size.ws_col.into()),
        _ => text.to_owned(),
    };
    // Without a reader nothing can be reported.
    terminal::stderr().write_all(wrapped.as_bytes()).ok();
}
