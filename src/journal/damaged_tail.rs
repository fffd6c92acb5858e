//! Describes the part of a journal after the last valid record, and recommends a fix.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;

use crate::scan::{if_exists, open_to_read, record_of};
use crate::state::StoredSession;
use crate::transcript::counted;
use crate::verify::Problem;

/// Maximum bytes of a damaged tail in which lines are counted.
const LOOK_BYTES_MAX: u64 = 64 << 20;

/// Counts that describe the damaged file from the first invalid line to the end of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DamagedTail {
    /// Number of bytes from the damage to the end of the file.
    bytes: u64,
    /// Number of lines in the first `LOOK_BYTES_MAX` of these bytes.
    lines: u64,
    /// Number of these lines that parse as records. The hash chain does not prove them.
    readable: u64,
}

impl DamagedTail {
    /// Examines the file `name` in `dir` from byte `offset` on. A missing file counts as empty; an
    /// incomplete last line counts as a line.
    pub(crate) fn of(dir: &Path, name: &str, offset: u64) -> io::Result<DamagedTail> {
        let Some(mut file) = if_exists(open_to_read(&dir.join(name)))? else {
            return Ok(DamagedTail::default());
        };
        let bytes = file.metadata()?.len().saturating_sub(offset);
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::new(file.take(LOOK_BYTES_MAX));
        let mut remains = DamagedTail { bytes, ..DamagedTail::default() };
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            remains.lines += 1;
            remains.readable += u64::from(record_of(&line).is_some());
            line.clear();
        }
        Ok(remains)
    }
}

impl fmt::Display for DamagedTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DamagedTail { bytes, lines, readable } = self;
        let lines = counted(*lines, "line");
        write!(f, "{bytes} bytes in {lines}, of which {readable} still read as records, unproved")
    }
}

/// Returns advice for the user: the recommended fix for `problem` in the journal of `found`.
pub(crate) fn recommended_fix(found: &StoredSession, problem: &Problem) -> String {
    let StoredSession { id, dir, .. } = found;
    let file = dir.join(&problem.file);
    let file = file.display();
    match (problem.kind.as_str(), problem.record) {
        ("newer", _) => {
            "continue it with the version of posse that wrote it, or a later one".into()
        }
        ("missing", 1) => format!(
            "put {file} back where it was; without it nothing can be proved, and `posse resume` \
             refuses the session and changes nothing"
        ),
        ("empty", 1) if problem.never_begun => {
            format!("`posse sessions rm {id}` removes it: there is nothing to continue")
        }
        ("empty", 1) => format!(
            "put {file} back if you have a copy of it; if it never had a record, or there is no \
             copy, `posse sessions rm {id}` removes the session: there is nothing to continue"
        ),
        (_, 1) => format!(
            "no record of it can be proved, so `posse resume` refuses it and changes nothing; read \
             what is left with `less {file}`, and start a new session with `posse run`; \
             `posse sessions rm {id}` removes this one"
        ),
        (_, record) => format!(
            "`posse resume {id}` continues after record {} and keeps the rest beside the journal; \
             with `--fork` it continues in a new session, and this one stays as it is",
            record - 1
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_the_damaged_tail_and_the_fix() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().to_owned();
        let record = concat!(
            r#"{"v":1,"record":2,"ts":1,"id":"1-2","sessionId":"s","type":"message.delivered","#,
            r#""messageId":"m","hash":"0"}"#,
        );
        let text = format!("good\nbro\0ken\n{record}\nhalf");
        std::fs::write(dir.join("session.jsonl"), &text).unwrap();
        let remains = DamagedTail::of(&dir, "session.jsonl", 5).unwrap();
        let bytes = text.len() as u64 - 5;
        assert_eq!(remains, DamagedTail { bytes, lines: 3, readable: 1 });
        assert_eq!(
            DamagedTail::of(&dir, "session-000001.jsonl", 0).unwrap(),
            DamagedTail::default()
        );
        let found = StoredSession { id: "ID".to_owned(), project: "p".to_owned(), dir };
        let way = |kind: &str, record| {
            let problem = Problem {
                file: "session.jsonl".to_owned(),
                line: 1,
                offset: 0,
                record,
                kind: kind.to_owned(),
                what: String::new(),
                torn_tail: false,
                never_begun: false,
            };
            recommended_fix(&found, &problem)
        };
        assert!(way("hash", 1).contains("no record of it can be proved"));
        assert!(way("hash", 1).contains("`posse sessions rm ID`"));
        assert!(way("missing", 1).starts_with("put "), "{}", way("missing", 1));
        assert!(way("zeros", 8).starts_with("`posse resume ID` continues after record 7"));
        assert!(way("empty", 1).contains("session.jsonl back if you have a copy"));
        assert!(way("newer", 8).contains("version of posse"));
    }
}
