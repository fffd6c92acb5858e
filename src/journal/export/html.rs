//! Renders a story as one HTML page without scripts and external resources. A content security
//! policy in the page enforces this.

use std::io::{self, Write};

use posse_actors::text::clipped;

use jiff::tz::TimeZone;

use crate::export::markdown::local_time;
use crate::export::safe::{html, html_line, rendered};
use crate::export::story::{
    CallOutcome, EntryContent, MessageAuthor, Story, StoryCall, StoryEntry, StoryQuestion,
    duration, tokens,
};
use crate::transcript::{counted, formatted_time};

const STYLE: &str = include_str!("html/style.css");
/// Maximum characters of the prompt in the page title. A longer prompt is cut there, and `…` is
/// appended.
const TITLE_MAX: usize = 80;
/// Maximum number of lines of the diff of a successful call that the page shows expanded. Other
/// successful calls are collapsed; calls that failed or have no outcome are expanded.
const OPEN_LINES_MAX: usize = 12;

/// Writes `story` as a whole HTML page. Times are in `zone`.
pub(super) fn write(story: &Story, zone: &TimeZone, out: &mut dyn Write) -> io::Result<()> {
    let title = title(story);
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>"
    )?;
    write_header(story, &title, zone, out)?;
    let mut day = String::new();
    for entry in &story.entries {
        let today = date(entry.ts, zone);
        if !day.is_empty() && today != day {
            writeln!(out, "<p class=\"day\">{}</p>", html_line(&today))?;
        }
        day = today;
        write_entry(entry, zone, out)?;
    }
    if story.left_out > 0 {
        let left_out = story.left_out;
        writeln!(out, "<p class=\"note\">{left_out} more records are not shown here.</p>")?;
    }
    if let Some((reason, exit)) = &story.ended {
        let class = if *exit == 0 { "good" } else { "bad" };
        let reason = html_line(reason);
        writeln!(out, "<p class=\"end {class}\">{reason}, exit code {exit}</p>")?;
    }
    writeln!(out, "</main>\n</body>\n</html>")
}

fn title(story: &Story) -> String {
    let named = story.title.as_deref().or(story.prompt.as_deref());
    let prompt = named.unwrap_or_default();
    let line = prompt.trim().lines().next().unwrap_or_default();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = clipped(&line, TITLE_MAX, "…");
    if title.is_empty() { html_line(&format!("Session {}", story.id)) } else { html_line(&title) }
}

fn write_header(
    story: &Story,
    title: &str,
    zone: &TimeZone,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "<header>\n<h1>{title}</h1>\n<dl>")?;
    let mut rows = vec![("Session", story.id.clone())];
    if let Some(started) = &story.started {
        let length = story.last_ms.and_then(|last| last.checked_sub(started.ts));
        let length = length.map(|ms| format!(", {}", duration(ms))).unwrap_or_default();
        rows.push(("Started", format!("{}{length}", local_time(started.ts, zone))));
        rows.push(("Directory", started.cwd.clone()));
        rows.push(("Agent", started.agent.clone()));
        rows.push(("Model", format!("{} via {}", started.model, started.provider)));
    }
    rows.push(("Work", story.work()));
    rows.extend(tokens(&story.accounts.total).map(|text| ("Tokens", text)));
    if story.ended.is_none() {
        rows.push(("End", "not ended".to_owned()));
    }
    if let Some(started) = &story.started {
        rows.push(("Written by", format!("posse {}", started.posse)));
    }
    for (label, text) in rows {
        writeln!(out, "<div><dt>{label}</dt><dd>{}</dd></div>", html_line(&text))?;
    }
    writeln!(out, "</dl>\n</header>")
}

fn write_entry(entry: &StoryEntry, zone: &TimeZone, out: &mut dyn Write) -> io::Result<()> {
    let time = time(entry.ts, zone);
    match &entry.content {
        EntryContent::User { author, text, images, queued } => {
            let late = if *queued { " · while it worked" } else { "" };
            let (class, who) = match author {
                MessageAuthor::AgentOf(path) => ("model", format!("Task of {}", html_line(path))),
                MessageAuthor::Posse => ("posse", "posse to the model".to_owned()),
                MessageAuthor::User => ("user", "You".to_owned()),
            };
            writeln!(out, "<section class=\"{class}\"><h2>{who}{late} {time}</h2>")?;
            writeln!(out, "<div class=\"text\">{}</div>", rendered(text))?;
            write_images(*images, out)?;
            writeln!(out, "</section>")
        }
        EntryContent::Reply { who, thinking, text } => {
            let who = who.as_deref().map(|who| format!(" · {}", html_line(who)));
            let who = who.unwrap_or_default();
            writeln!(out, "<section class=\"model\"><h2>Model{who} {time}</h2>")?;
            if !thinking.trim().is_empty() {
                writeln!(
                    out,
                    "<details class=\"thinking\"><summary>Thinking</summary>\
                     <div class=\"text\">{}</div></details>",
                    rendered(thinking)
                )?;
            }
            if !text.trim().is_empty() {
                writeln!(out, "<div class=\"text\">{}</div>", rendered(text))?;
            }
            writeln!(out, "</section>")
        }
        EntryContent::Partial { text, cause } => {
            writeln!(out, "<section class=\"model cut\"><h2>Model, cut off {time}</h2>")?;
            writeln!(out, "<div class=\"text\">{}</div>", rendered(text))?;
            writeln!(out, "<p class=\"bad\">{}</p></section>", html_line(cause))
        }
        EntryContent::Call(call) => write_call(call, &time, out),
        EntryContent::Note { bad, word, text } => {
            let class = if *bad { "note bad" } else { "note" };
            let text = html(text.trim_end());
            writeln!(out, "<p class=\"{class}\"><b>{word}</b> <span>{text}</span> {time}</p>")
        }
    }
}

fn write_call(call: &StoryCall, time: &str, out: &mut dyn Write) -> io::Result<()> {
    let good = call.end.as_ref().is_some_and(|end| end.good && end.exit_code.unwrap_or(0) == 0);
    let short = call.end.as_ref().is_some_and(|end| {
        end.diff.as_deref().unwrap_or(&end.text).lines().count() <= OPEN_LINES_MAX
    });
    let has_diff = call.end.as_ref().is_some_and(|end| end.diff.is_some());
    let open = if !good || (has_diff && short) { " open" } else { "" };
    let class = if good { "call" } else { "call failed" };
    let who = call.who.as_deref().map(|who| format!("{} → ", html_line(who))).unwrap_or_default();
    let summary = call.summary.as_deref().unwrap_or_default();
    // Summaries often begin with the tool's name.
    let rest = summary.strip_prefix(call.name.as_str()).unwrap_or(summary).trim_start();
    writeln!(
        out,
        "<details class=\"{class}\"{open}><summary><b>{who}{}</b> <code>{}</code>{} {time}</summary>",
        html_line(&call.name),
        html_line(rest),
        badges(call)
    )?;
    if let Some(arguments) = call.arguments_shown() {
        writeln!(out, "<pre class=\"arguments\">{}</pre>", html(&arguments))?;
    }
    for question in &call.questions {
        write_question(question, call, out)?;
    }
    if let Some(end) = &call.end {
        write_end(end, out)?;
    }
    writeln!(out, "</details>")
}

fn badges(call: &StoryCall) -> String {
    let tier = call.tier.as_ref().map(|tier| ("", format!("sandbox {tier}")));
    let badge = |(class, text): (&str, String)| {
        format!(" <span class=\"badge {class}\">{}</span>", html_line(&text))
    };
    call.facts().into_iter().chain(tier).map(badge).collect()
}

fn write_question(
    question: &StoryQuestion,
    call: &StoryCall,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (class, answer) = match &question.answer {
        Some((true, text)) => ("good", text.as_str()),
        Some((false, text)) => ("bad", text.as_str()),
        None => ("bad", "no answer"),
    };
    let subject = question.subject(call).map(|text| format!("{}: ", html(text)));
    writeln!(
        out,
        "<p class=\"question\">Asked: {}{} <b class=\"{class}\">{}</b></p>",
        subject.unwrap_or_default(),
        html(&question.reason),
        html(answer)
    )
}

fn write_end(end: &CallOutcome, out: &mut dyn Write) -> io::Result<()> {
    if let Some(diff) = &end.diff {
        write!(out, "<pre class=\"diff\">")?;
        for line in diff.lines() {
            let class = match line.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "file",
                [b'+', ..] => "added",
                [b'-', ..] => "removed",
                [b'@', ..] => "place",
                _ => "",
            };
            writeln!(out, "<span class=\"{class}\">{}</span>", html(line))?;
        }
        writeln!(out, "</pre>")?;
    } else if !end.text.trim().is_empty() {
        writeln!(out, "<pre class=\"result\">{}</pre>", html(end.text.trim_end_matches('\n')))?;
    }
    write_images(end.images, out)
}

fn write_images(images: usize, out: &mut dyn Write) -> io::Result<()> {
    if images > 0 {
        writeln!(out, "<p class=\"note\">{} not shown</p>", counted(images as u64, "image"))?;
    }
    Ok(())
}

fn date(ms: u64, zone: &TimeZone) -> String {
    formatted_time(ms, zone, "%Y-%m-%d").unwrap_or_default()
}

fn time(ms: u64, zone: &TimeZone) -> String {
    format!("<time>{}</time>", formatted_time(ms, zone, "%H:%M:%S").unwrap_or_default())
}
