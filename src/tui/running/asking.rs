//! The words of the runtime: how it begins, what was chosen, how a task ended.

use std::io::Write as _;

use posse_actors::agent_invocation::Ending;

use crate::failure::{Failure, printable};
use crate::talk::outcome::{Advised, judge, word};
use crate::tui::app::App;
use crate::tui::running::session::Concluded;
use crate::tui::theme::Role;
use crate::tui::view::tool::lasted;
use crate::tui::{Found, Options};

type Lines = Vec<(Role, String)>;

/// What a session begins with.
pub(super) fn introduction(app: &App, options: &Options) -> Lines {
    let kept = if options.kept { "" } else { " (not kept, cannot be resumed)" };
    let mut lines = vec![(
        Role::Dim,
        format!("posse {} · session {}{kept}", env!("CARGO_PKG_VERSION"), app.session),
    )];
    let place = printable(&app.status.cwd);
    lines.push((
        Role::Dim,
        match app.status.tier.as_str() {
            "full" => format!("in {place} · commands run in a sandbox"),
            _ => format!("in {place}"),
        },
    ));
    match app.status.tier.as_str() {
        "full" => (),
        "reduced" => lines
            .push((Role::Warn, "sandbox reduced: secret files can be read by commands".to_owned())),
        _ => lines.push((Role::Bad, "no sandbox: commands run with all of your rights".to_owned())),
    }
    if options.dry_run {
        lines.push((Role::Warn, "dry run: nothing is written or run".to_owned()));
    }
    lines
}

/// What somebody sees at once who has no model yet.
pub(super) fn first_run(failures: &[Failure]) -> Lines {
    let mut lines = vec![
        (Role::Heading, format!("posse {}", env!("CARGO_PKG_VERSION"))),
        (Role::Text, String::new()),
        (Role::Warn, "There is no model to ask yet.".to_owned()),
    ];
    for failure in failures {
        lines.extend(failure.to_string().lines().map(|line| (Role::Dim, format!("  {line}"))));
    }
    lines
}

/// What they see as soon as somebody has looked around.
pub(super) fn found_here(found: &Found) -> Lines {
    let mut lines = vec![(Role::Text, String::new())];
    lines.push((Role::Strong, "What was found here".to_owned()));
    lines.extend(found.facts.iter().map(|(good, text)| {
        let (role, mark) = if *good { (Role::Good, "✓") } else { (Role::Dim, "·") };
        (role, format!("  {mark} {text}"))
    }));
    lines.push((Role::Text, String::new()));
    lines.push((Role::Strong, "Ways on".to_owned()));
    let ways = [
        "posse demo        everything on a recorded model, without a key or a network (/exit first)",
        "p or /provider    choose a provider; a local server needs no key",
        "export KEY=…      the key of a provider, such as ANTHROPIC_API_KEY, then `posse` again",
        "/doctor           try what posse needs here",
    ];
    lines.extend(ways.map(|way| (Role::Text, format!("  {way}"))));
    lines
}

/// What was chosen, and who said so.
pub(super) fn selection(app: &App) -> Lines {
    let rows = [
        ("provider", &app.status.provider, &app.sources.provider),
        ("model", &app.status.model, &app.sources.model),
        ("agent", &app.status.agent, &app.sources.agent),
    ];
    let line = |(word, name, source): (&str, &String, &String)| {
        (Role::Dim, format!("{word:<9} {} ({})", printable(name), printable(source)))
    };
    rows.map(line).to_vec()
}

/// Shows how a task ended.
pub(super) fn conclude(app: &mut App, concluded: Concluded, yes: bool) {
    let Concluded { outcome, took, rule_shown } = concluded;
    let verdict = judge(outcome.as_ref(), None, Advised { yes, rule: rule_shown });
    app.view.failures(verdict.failure.as_slice());
    let Some(outcome) = outcome else { return };
    // What the user ran says itself how it ended.
    if outcome.turns == 0 && outcome.ending == Ending::Answered(String::new()) {
        return;
    }
    let word = word(&outcome.ending);
    let replies = if outcome.turns == 1 { "reply" } else { "replies" };
    let tokens = match (outcome.usage.input_tokens, outcome.usage.output_tokens) {
        (Some(read), Some(written)) => format!(" · {read} tokens read, {written} written"),
        _ => String::new(),
    };
    let took = lasted(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    let empty = match &outcome.ending {
        Ending::Answered(answer) if answer.trim().is_empty() => ", and the last one was empty",
        _ => "",
    };
    let count = outcome.turns;
    app.view.note(Role::Dim, format!("({word}: {count} {replies}{empty}{tokens} · {took})"));
}

/// What is said when the terminal is the shell's again.
pub(super) fn farewell(session: &str) {
    let id = printable(session);
    let text = format!("session {id} · posse resume {id}\n");
    std::io::stderr().write_all(text.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use crate::failure::Exit;
    use crate::tui::testing::Stage;

    use super::*;

    #[test]
    fn who_has_no_model_sees_what_is_here_and_the_ways_on() {
        let build = |stage: &mut Stage| {
            let what = "no model provider is configured, and no key is in the environment";
            let failure = Failure::new("CFG023", Exit::Configuration, what).fix("set one");
            stage.app.view.lines(first_run(&[failure]));
            stage.app.view.lines(found_here(&Found {
                facts: vec![
                    (true, "a login of the Codex program: /provider codex".to_owned()),
                    (
                        false,
                        "there is no sandbox here: commands run with all of your rights".into(),
                    ),
                ],
            }));
        };
        insta::assert_snapshot!(Stage::screens(build, Stage::new));
    }
}
