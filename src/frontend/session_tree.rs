//! The branches of a conversation: sessions that are copies of one another, with their prompts, as
//! rows of a tree.

use posse_actors::conversation::SessionId;
use posse_actors::root_session::SessionHandle;
use posse_actors::text::clipped;
use posse_base::failure::printable;
use serde_json::{Value, json};

/// Maximum characters of a prompt or title in a row.
const TEXT_CHARS_MAX: usize = 80;

/// A session of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeSession {
    /// Id of the session.
    pub id: String,
    /// Title of the user or of a model; `None` without one.
    pub title: Option<String>,
    /// Session of which it is a copy, and the number of the last record that was copied. `None` for
    /// an original.
    pub parent: Option<(String, u64)>,
    /// Time of its first record, in milliseconds since 1970.
    pub started_ms: u64,
    /// Prompts that were given in it, in order, without copied ones.
    pub prompts: Vec<TreePrompt>,
}

/// A prompt of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreePrompt {
    /// Number in the conversation of its session, from 1.
    pub number: usize,
    /// Number of the first record of its run.
    pub record: u64,
    /// The prompt.
    pub text: String,
    /// Label of the user; `None` without one.
    pub label: Option<String>,
}

/// Place in the tree to which the user can go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreePlace {
    /// Id of the session.
    pub session: String,
    /// Number of the prompt in the conversation of the session: the place before it. `None`: the end
    /// of the session.
    pub prompt: Option<usize>,
    /// True if the session is the current one.
    pub is_current: bool,
}

/// A row of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRow {
    /// The place that the row stands for.
    pub place: TreePlace,
    /// Depth below the original session, from 0.
    pub depth: usize,
    /// Title, or beginning of the first prompt, of a session; the beginning of a prompt.
    pub text: String,
    /// Label of a prompt; `None` without one, and for a session.
    pub label: Option<String>,
    /// True for the row at which the current conversation stands: the last prompt of the current
    /// session, or the session if it has none.
    pub is_here: bool,
}

impl TreeRow {
    /// The row as text in one line, without its number.
    pub fn line(&self) -> String {
        let here = if self.is_here { "●" } else { " " };
        let indent = "  ".repeat(self.depth);
        let label = self.label.as_deref();
        let label = label.map(|label| format!("[{label}] ")).unwrap_or_default();
        let text = clipped(&self.text, TEXT_CHARS_MAX, "…");
        let line = match self.place.prompt {
            Some(number) => format!("{here} {indent}  {number}. {label}{text}"),
            None if self.depth == 0 => format!("{here} {text}  ({})", self.place.session),
            None => format!("{here} {indent}└ {text}  ({})", self.place.session),
        };
        printable(&line)
    }
}

/// The rows of the tree that contains the session `current`, originals first: each session is
/// followed by its prompts, and a copy stands below the last prompt that it contains. Sessions
/// without a prompt are left out, except the current one and those with copies. Empty if `current`
/// is not among `sessions`.
pub fn rows(sessions: &[TreeSession], current: &str) -> Vec<TreeRow> {
    let Some(mut root) = sessions.iter().find(|session| session.id == current) else {
        return Vec::new();
    };
    // A damaged journal can name itself or its own copy.
    for _ in 0..sessions.len() {
        let Some(parent) = root.parent.as_ref() else { break };
        let Some(found) = sessions.iter().find(|session| session.id == parent.0) else { break };
        root = found;
    }
    let mut rows = Vec::new();
    let mut open = vec![root.id.as_str()];
    add_session(sessions, root, (current, 0), &mut open, &mut rows);
    rows
}

fn add_session<'a>(
    sessions: &'a [TreeSession],
    session: &'a TreeSession,
    (current, depth): (&str, usize),
    open: &mut Vec<&'a str>,
    rows: &mut Vec<TreeRow>,
) {
    let is_current = session.id == current;
    let mut copies: Vec<&TreeSession> = sessions
        .iter()
        .filter(|copy| copy.parent.as_ref().is_some_and(|parent| parent.0 == session.id))
        .filter(|copy| !open.contains(&copy.id.as_str()))
        .collect();
    if session.prompts.is_empty() && copies.is_empty() && !is_current && depth > 0 {
        return;
    }
    copies.sort_by_key(|copy| (copy.parent.as_ref().map(|parent| parent.1), copy.started_ms));
    let place = |prompt| TreePlace { session: session.id.clone(), prompt, is_current };
    let row = |prompt, text: &str, label: &Option<String>, is_here| TreeRow {
        place: place(prompt),
        depth,
        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        label: label.clone(),
        is_here,
    };
    let first = session.prompts.first().map_or("(no prompt)", |prompt| &prompt.text);
    let name = session.title.as_deref().unwrap_or(first);
    rows.push(row(None, name, &None, is_current && session.prompts.is_empty()));
    let mut copies = copies.into_iter().peekable();
    for at in 0..=session.prompts.len() {
        // Copies that end before this prompt.
        let until = session.prompts.get(at).map_or(u64::MAX, |prompt| prompt.record);
        let belongs = |copy: &&TreeSession| copy.parent.as_ref().is_some_and(|p| p.1 < until);
        while let Some(copy) = copies.next_if(|copy| at == session.prompts.len() || belongs(copy)) {
            open.push(&copy.id);
            add_session(sessions, copy, (current, depth + 1), open, rows);
            open.pop();
        }
        if let Some(prompt) = session.prompts.get(at) {
            let is_here = is_current && at + 1 == session.prompts.len();
            rows.push(row(Some(prompt.number), &prompt.text, &prompt.label, is_here));
        }
    }
}

/// The tree for programs.
pub fn json(rows: &[TreeRow]) -> Value {
    let row = |row: &TreeRow| {
        let mut value = json!({
            "session": row.place.session, "depth": row.depth, "text": row.text, "here": row.is_here,
        });
        if let Some(prompt) = row.place.prompt {
            value["prompt"] = json!(prompt);
        }
        if let Some(label) = &row.label {
            value["label"] = json!(label);
        }
        value
    };
    rows.iter().map(row).collect()
}

/// The row with this number, counted from 1; otherwise a text for the user.
pub fn row(rows: &[TreeRow], number: usize) -> Result<&TreeRow, String> {
    let found = number.checked_sub(1).and_then(|at| rows.get(at));
    found.ok_or_else(|| format!("There is no row {number}; /tree lists them."))
}

/// Gives the prompt of a row a label in the records of `session`. Returns a text for the user.
pub fn label(session: &SessionHandle, row: &TreeRow, label: &str) -> String {
    let number = row.place.prompt.and_then(|number| u32::try_from(number).ok());
    let Some(number) = number else {
        return "This row is a session: /rename gives it a title where it is open.".to_owned();
    };
    let of = SessionId::new(row.place.session.clone());
    match session.label_prompt(of, number, label) {
        label if label.is_empty() => format!("(prompt {number} has no label)"),
        label => format!("(prompt {number} is labelled: {label})"),
    }
}

/// The tree as text with numbered rows, for a person.
pub fn text(rows: &[TreeRow]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        text.extend([&format!("{:>3}", at + 1), " ", &row.line(), "\n"]);
    }
    text.push_str(if rows.is_empty() {
        "The session is not stored, so it has no branches.\n"
    } else {
        "/tree N goes to row N: to the end of a session, or before a prompt; /tree N TEXT labels a \
         prompt.\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, parent: Option<(&str, u64)>, prompts: &[(u64, &str)]) -> TreeSession {
        let prompt = |(at, (record, text)): (usize, &(u64, &str))| TreePrompt {
            number: at + 1,
            record: *record,
            text: (*text).to_owned(),
            label: None,
        };
        TreeSession {
            id: id.to_owned(),
            parent: parent.map(|(id, record)| (id.to_owned(), record)),
            prompts: prompts.iter().enumerate().map(prompt).collect(),
            ..TreeSession::default()
        }
    }

    fn lines(sessions: &[TreeSession], current: &str) -> Vec<String> {
        rows(sessions, current).iter().map(TreeRow::line).collect()
    }

    #[test]
    fn copies_stand_where_they_leave_their_original() {
        let mut titled = session("c", Some(("a", 4)), &[(5, "other way")]);
        titled.title = Some("Second try".to_owned());
        let mut original = session("a", None, &[(2, "first\ntask"), (5, "second task")]);
        original.prompts[0].label = Some("good".to_owned());
        let sessions = [
            session("b", Some(("a", 9)), &[(3, "go on")]),
            original,
            titled,
            session("d", Some(("c", 8)), &[]),
            session("e", Some(("a", 1)), &[(2, "from scratch")]),
            session("x", None, &[(2, "another conversation")]),
        ];
        let tree = [
            "  first task  (a)",
            "    └ from scratch  (e)",
            "      1. from scratch",
            "    1. [good] first task",
            "    └ Second try  (c)",
            "●     1. other way",
            "    2. second task",
            "    └ go on  (b)",
            "      1. go on",
        ];
        assert_eq!(lines(&sessions, "c"), tree);
        let places = rows(&sessions, "c");
        let place = |at: usize| (places[at].place.session.as_str(), places[at].place.prompt);
        assert_eq!((place(4), place(6)), (("c", None), ("a", Some(2))));
        assert!(places[4].place.is_current && !places[6].place.is_current);
        let listed = json(&places);
        assert_eq!((&listed[3]["label"], &listed[3]["prompt"]), (&json!("good"), &json!(1)));
        assert_eq!((&listed[5]["here"], listed[4].get("prompt")), (&json!(true), None));
        assert_eq!(row(&places, 3).map(|row| row.text.as_str()), Ok("from scratch"));
        assert!(row(&places, 0).is_err() && row(&places, 10).unwrap_err().contains("no row 10"));
    }

    #[test]
    fn missing_and_circular_originals_do_not_hide_the_session() {
        let table = [
            (vec![session("a", Some(("gone", 3)), &[(2, "x")])], vec!["  x  (a)", "●   1. x"]),
            (vec![session("a", None, &[])], vec!["● (no prompt)  (a)"]),
            (vec![session("a", Some(("a", 3)), &[(2, "x")])], vec!["  x  (a)", "●   1. x"]),
            (vec![session("b", None, &[(2, "x")])], vec![]),
        ];
        for (sessions, tree) in table {
            assert_eq!(lines(&sessions, "a"), tree);
        }
        let circle =
            [session("a", Some(("b", 3)), &[(2, "x")]), session("b", Some(("a", 3)), &[(2, "y")])];
        assert_eq!(lines(&circle, "a").len(), 4);
        assert!(text(&rows(&circle, "a")).contains("/tree N goes"));
        assert!(text(&[]).contains("not stored"));
    }

    #[test]
    fn rows_are_short_and_have_no_control_characters() {
        let long = format!("\u{1b}[2J{}", "x".repeat(500));
        let line = &lines(&[session("a", None, &[(2, &long)])], "a")[1];
        assert!(line.chars().count() < TEXT_CHARS_MAX + 20 && !line.contains('\u{1b}'), "{line}");
    }
}
