//! Texts of warnings in one line.

use crate::failure::{Failure, printable};

/// Formats a failure as one line of a warning. `end` states the consequence.
pub(crate) fn warning_line(failure: &Failure, end: &str) -> String {
    let place = failure.place.as_deref().map(printable).unwrap_or_default();
    let (code, text) = (failure.code, one_line(failure));
    format!("warning[{code}]: {text}{end} ({place})\n")
}

/// Text of a failure in one line, without its code and place.
pub(crate) fn one_line(failure: &Failure) -> String {
    let why = failure.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let fix = failure.fix.as_deref().map(|fix| format!("; {fix}")).unwrap_or_default();
    format!("{}{}{}", printable(&failure.what), printable(&why), printable(&fix))
}

/// Notice that the items `names` of a project are not trusted, with at most eight of the names;
/// empty without names. `what` is the kind of the items, such as `agents`.
pub(crate) fn untrusted(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<String> = names.iter().take(8).map(|name| printable(name)).collect();
    format!(
        "warning[TRU001]: the project's {what} are not used ({}) until you trust this project, `posse \
         trust add` shows the effect\n",
        names.join(", ")
    )
}
