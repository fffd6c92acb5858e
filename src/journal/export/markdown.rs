//! Renders a story as Markdown.
//!
//! Texts of people and models are quoted and outputs of tools are fenced, so that no text can end
//! its own block or become a heading of the document. Links can be defined anywhere in a document,
//! so it is sanitised as a whole before it is written.

use std::io::{self, Write};

use jiff::tz::TimeZone;

use crate::export::safe::{clean, code, escaped, fenced, markdown};
use crate::export::story::{EntryContent, MessageAuthor, Story, StoryCall, StoryEntry, tokens};
use crate::transcript::{counted, formatted_time};

/// Writes `story` as a whole Markdown document. Times are in `zone`.
pub(super) fn write(story: &Story, zone: &TimeZone, out: &mut dyn Write) -> io::Result<()> {
    let mut document = Vec::new();
    write_document(story, zone, &mut document)?;
    let document = String::from_utf8(document).map_err(io::Error::other)?;
    out.write_all(markdown(document).as_bytes())
}

fn write_document(story: &Story, zone: &TimeZone, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# Session {}\n", code(&story.id))?;
    if let Some(title) = &story.title {
        writeln!(out, "- Title: {}", escaped(title))?;
    }
    if let Some(started) = &story.started {
        let rows = [
            ("Started", local_time(started.ts, zone)),
            ("Directory", code(&started.cwd)),
            ("Agent", escaped(&started.agent)),
            ("Model", format!("{} via {}", escaped(&started.model), escaped(&started.provider))),
            ("posse", escaped(&started.posse)),
        ];
        for (label, text) in rows {
            writeln!(out, "- {label}: {text}")?;
        }
    }
    let end = story.ended.as_ref();
    let end = end.map_or("not ended".to_owned(), |(reason, exit)| {
        format!("{}, exit code {exit}", escaped(reason))
    });
    writeln!(out, "- End: {end}")?;
    let tokens = tokens(&story.accounts.total).map(|text| format!(", tokens: {text}"));
    writeln!(out, "- Size: {}{}", story.work(), tokens.unwrap_or_default())?;
    for entry in &story.entries {
        writeln!(out)?;
        write_entry(entry, zone, out)?;
    }
    if story.left_out > 0 {
        writeln!(out, "\n{} more records are not shown here.", story.left_out)?;
    }
    Ok(())
}

fn write_entry(entry: &StoryEntry, zone: &TimeZone, out: &mut dyn Write) -> io::Result<()> {
    match &entry.content {
        EntryContent::User { author, text, images, queued } => {
            let late = if *queued { ", while it worked" } else { "" };
            let who = match author {
                MessageAuthor::AgentOf(path) => format!("Task of {}", escaped(path)),
                MessageAuthor::Posse => "posse to the model".to_owned(),
                MessageAuthor::User => "You".to_owned(),
            };
            writeln!(out, "## {who} ({}{late})\n\n{}", local_time(entry.ts, zone), quoted(text))?;
            if *images > 0 {
                writeln!(out, "\n[{}]", counted(*images as u64, "image"))?;
            }
        }
        EntryContent::Reply { who, thinking, text } => {
            let who = who.as_deref().map(|who| format!(" {}", escaped(who))).unwrap_or_default();
            writeln!(out, "## Model{who} ({})\n", local_time(entry.ts, zone))?;
            if !thinking.trim().is_empty() {
                writeln!(out, "Thinking:\n\n{}\n", quoted(thinking))?;
            }
            writeln!(out, "{}", quoted(text))?;
        }
        EntryContent::Partial { text, cause } => {
            let when = local_time(entry.ts, zone);
            writeln!(out, "## Model, cut off ({when})\n\n{}\n", quoted(text))?;
            writeln!(out, "**{}**", escaped(cause))?;
        }
        EntryContent::Call(call) => write_call(call, out)?,
        EntryContent::Note { bad, word, text } => {
            let strong = if *bad { "**" } else { "" };
            let mut lines = text.lines();
            let first = escaped(lines.next().unwrap_or_default());
            writeln!(out, "{strong}{word}{strong} ({}): {first}", local_time(entry.ts, zone))?;
            let rest: Vec<&str> = lines.collect();
            if !rest.is_empty() {
                write!(out, "\n{}", fenced(&rest.join("\n"), ""))?;
            }
        }
    }
    Ok(())
}

fn write_call(call: &StoryCall, out: &mut dyn Write) -> io::Result<()> {
    let who = call.who.as_deref().map(|who| format!("{} → ", escaped(who))).unwrap_or_default();
    let summary = call.summary.as_deref().unwrap_or(&call.name);
    let facts: Vec<String> = call.facts().iter().map(|(_, fact)| escaped(fact)).collect();
    let summary = code(summary.lines().next().unwrap_or_default());
    writeln!(out, "### {who}{summary} ({})\n", facts.join(", "))?;
    if let Some(arguments) = call.arguments_shown() {
        writeln!(out, "{}", fenced(&arguments, ""))?;
    }
    for question in &call.questions {
        let subject = question.subject(call).map(|text| format!("{}: ", escaped(text)));
        let (subject, reason) = (subject.unwrap_or_default(), escaped(&question.reason));
        let answer = question.answer.as_ref().map_or("no answer", |(_, text)| text.as_str());
        writeln!(out, "> Asked: {subject}{reason}  \n> Answer: {}\n", escaped(answer))?;
    }
    let Some(end) = &call.end else { return Ok(()) };
    if let Some(diff) = &end.diff {
        write!(out, "{}", fenced(diff, "diff"))?;
    }
    if !end.text.trim().is_empty() && end.diff.is_none() {
        write!(out, "{}", fenced(&end.text, "text"))?;
    }
    if end.images > 0 {
        writeln!(out, "\n[{}]", counted(end.images as u64, "image"))?;
    }
    Ok(())
}

/// Formats `text` as a Markdown quotation: each line begins with `> `.
fn quoted(text: &str) -> String {
    let text = clean(text);
    let lines: Vec<String> = text.trim_end().lines().map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

/// Formats a time in milliseconds since 1970 as date and time in `zone`: `2026-11-21 21:56:52`. `?`
/// if `ms` is no valid time.
pub(super) fn local_time(ms: u64, zone: &TimeZone) -> String {
    formatted_time(ms, zone, "%Y-%m-%d %H:%M:%S").unwrap_or_else(|| "?".to_owned())
}
