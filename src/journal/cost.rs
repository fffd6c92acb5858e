//! `posse sessions show ID --cost`: cost of a session, computed from its records alone.

use std::io::{self, Write};

use posse_actors::cost::{UsageSource, dollars};
use posse_actors::event::{Event, StoredRecord};
use posse_actors::ledger::{Accounts, aligned};
use posse_base::failure::{Exit, Failure, printable};
use serde_json::{Value, json};

use crate::commands::{OutputStyle, ended_at, write_json};
use crate::read;
use crate::recovery::recover;
use crate::state::{StateDir, Within};
use crate::walk::{start_of, walk};

const HEAD: [&str; 8] = ["MODEL", "REQUEST", "TURN", "READ", "CACHED", "WRITTEN", "HOW", "COST"];

/// Prints the cost of session `id`, which may be a unique prefix; if `each` is true, also of every
/// recorded attempt of a model request. If the journal is damaged, the total includes costs of
/// unproved records, and the result is an error after the output.
pub fn show(
    state: &StateDir,
    id: &str,
    each: bool,
    view: &OutputStyle,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let found = state.find(Within::Everywhere, id)?;
    let mut accounts = Accounts::default();
    let mut requests: Vec<StoredRecord> = Vec::new();
    let problem = read::each_record(&found, &mut |record| {
        accounts.push(&record);
        if each && matches!(record.event, Event::ModelUsage { .. }) {
            requests.push(record);
        }
    })?;
    // The cost of attempts in progress is unknown, too.
    accounts.settle();
    if problem.is_some()
        && let Ok(walked) = walk(&found.dir, start_of(&found.id), &mut |_, _, _| Ok(()))
    {
        accounts.add_recovered(&recover(&found.dir, &walked, &accounts, true));
    }
    let written = if view.json {
        let mut value = accounts.json();
        value["sessionId"] = json!(found.id);
        if each {
            value["requests"] = requests.iter().map(to_json).collect();
        }
        write_json(&value, out)
    } else {
        write_text(&accounts, &requests, out)
    };
    let meaning = "the cost above is a minimum: some records are lost";
    ended_at(problem, meaning, &found, written, out)
}

fn write_text(
    accounts: &Accounts,
    requests: &[StoredRecord],
    out: &mut dyn Write,
) -> io::Result<()> {
    if accounts.total.requests == 0 {
        return writeln!(out, "no request was sent to a model");
    }
    if !requests.is_empty() {
        let rows: Vec<[String; 8]> =
            [HEAD.map(str::to_owned)].into_iter().chain(requests.iter().filter_map(row)).collect();
        writeln!(out, "{}", aligned(&rows))?;
    }
    out.write_all(accounts.table(printable).as_bytes())?;
    writeln!(out, "\ncost: {}", accounts.total.cost_text())
}

/// Converts a record to JSON: its event, with record number, time and agent path.
fn to_json(record: &StoredRecord) -> Value {
    let mut value = serde_json::to_value(&record.event).unwrap_or_default();
    value["record"] = json!(record.record);
    value["ts"] = json!(record.ts);
    value["agentPath"] = json!(record.origin.as_ref().map(|origin| &origin.agent_path));
    value
}

fn row(record: &StoredRecord) -> Option<[String; 8]> {
    let Event::ModelUsage { turn, usage, billing } = &record.event else { return None };
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let figures = [usage.input_tokens, usage.cached_input_tokens, usage.output_tokens].map(count);
    let [read, cached, written] = figures;
    let Some(billing) = billing else {
        let unknown = || "?".to_owned();
        let turn = turn.to_string();
        return Some([unknown(), unknown(), turn, read, cached, written, unknown(), unknown()]);
    };
    let mut how = billing.outcome.clone();
    if billing.attempt > 1 {
        how = format!("{how}, attempt {}", billing.attempt);
    }
    match billing.counted {
        UsageSource::Reported => (),
        UsageSource::Partly => how.push_str(", counted in part"),
        UsageSource::Unknown => how.push_str(", not counted"),
        UsageSource::Doubtful => how.push_str(", implausible figures"),
    }
    Some([
        printable(&format!("{}/{}", billing.provider, billing.model)),
        billing.request.to_string(),
        turn.to_string(),
        read,
        cached,
        written,
        printable(&how),
        billing.cost_nano_usd.map_or("?".to_owned(), dollars),
    ])
}
