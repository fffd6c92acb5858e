//! The end of a stored conversation, which a front end shows again when it is resumed.

use posse_actors::event::StoredRecord;

/// The last prompts of a stored conversation and what followed them.
#[derive(Debug, Default)]
pub struct PastConversation {
    /// Records, oldest first.
    pub records: Vec<StoredRecord>,
    /// Number of prompts before the records.
    pub earlier_prompts: usize,
    /// True if the records begin in the middle of a run.
    pub is_cut: bool,
}

/// Line about what is not shown of a conversation; `None` if everything is shown. `earlier`: number
/// of prompts before the shown part. `is_cut`: true if that part begins in the middle of a run.
pub fn left_out_line(earlier: usize, is_cut: bool) -> Option<String> {
    let prompts = match earlier {
        0 => None,
        1 => Some("1 earlier prompt".to_owned()),
        count => Some(format!("{count} earlier prompts")),
    };
    let start = is_cut.then(|| "the start of this run".to_owned());
    let parts: Vec<String> = prompts.into_iter().chain(start).collect();
    (!parts.is_empty()).then(|| format!("… {} (/share writes all of it)", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_what_is_left_out() {
        let line = |earlier, is_cut| left_out_line(earlier, is_cut).unwrap_or_default();
        assert_eq!(line(0, false), "");
        assert_eq!(line(1, false), "… 1 earlier prompt (/share writes all of it)");
        assert_eq!(line(0, true), "… the start of this run (/share writes all of it)");
        assert_eq!(
            line(7, true),
            "… 7 earlier prompts, the start of this run (/share writes all of it)"
        );
    }
}
