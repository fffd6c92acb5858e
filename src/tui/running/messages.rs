//! Messages of the event loop: introduction, selection and the end of a task.

use std::io::Write as _;

use posse_actors::event::{PermissionMode, SandboxTier};
use posse_actors::outcome::Ending;
use posse_base::failure::{ErrorCode, Failure, printable};
use posse_base::terminal;
use posse_frontend::end_line::end_line;
use posse_frontend::outcome::{PermissionHints, judge};
use posse_frontend::resume_line;

use crate::app::App;
use crate::running::session::TaskSummary;
use crate::theme::Role;
use crate::{Options, SetupFacts};

type StyledLines = Vec<(Role, String)>;

/// Lines that introduce a session: version, id, folder, sandbox and dry run.
pub(super) fn introduction(app: &App, options: &Options) -> StyledLines {
    let kept = if options.kept { "" } else { " (not stored, cannot be resumed)" };
    let place = printable(&app.view.status.cwd);
    let tier = &app.view.status.tier;
    let sandbox = if *tier == SandboxTier::Full { " · commands run in a sandbox" } else { "" };
    let version = env!("CARGO_PKG_VERSION");
    let mut lines = vec![
        (Role::Strong, format!("posse {version}")),
        (Role::Dim, format!("in {place}{sandbox} · session {}{kept}", app.session)),
    ];
    match tier {
        SandboxTier::Full => (),
        SandboxTier::Reduced => {
            lines.push((Role::Warn, "sandbox reduced: commands can read secret files".to_owned()));
        }
        _ => lines.push((Role::Bad, "no sandbox: commands run with all your rights".to_owned())),
    }
    if options.dry_run {
        lines.push((Role::Warn, "dry run: nothing is written or run".to_owned()));
    }
    lines
}

/// Lines that explain a permission mode at the first start in a project.
pub(super) fn explained_mode(mode: PermissionMode) -> StyledLines {
    let about = mode.about().split("; ").next().unwrap_or_default();
    let mut lines =
        vec![(Role::Dim, format!("permission mode {mode}: {about} · Shift+Tab changes it"))];
    if matches!(mode, PermissionMode::Auto | PermissionMode::Edits) {
        let text = "programs of yours that watch the folder, such as dev servers, run what changed";
        lines.push((Role::Dim, text.to_owned()));
    }
    lines
}

/// First lines if no session can be opened: that no model is configured, and the errors.
pub(super) fn first_run(failures: &[Failure]) -> StyledLines {
    let mut lines = vec![
        (Role::Heading, format!("posse {}", env!("CARGO_PKG_VERSION"))),
        (Role::Text, String::new()),
        (Role::Warn, "No model is configured yet.".to_owned()),
    ];
    // The next steps say what is missing.
    let others = failures.iter().filter(|failure| failure.code != ErrorCode::ProviderNotConfigured);
    for failure in others {
        lines.extend(failure.to_string().lines().map(|line| (Role::Dim, format!("  {line}"))));
    }
    lines
}

/// Lines with facts about this machine and the next steps to set up a model.
pub(super) fn setup_report(found: &SetupFacts) -> StyledLines {
    let mut lines =
        vec![(Role::Text, String::new()), (Role::Strong, "Found on this machine".to_owned())];
    lines.extend(found.facts.iter().map(|(good, text)| {
        let (role, mark) = if *good { (Role::Good, "✓") } else { (Role::Dim, "·") };
        (role, format!("  {mark} {text}"))
    }));
    lines.push((Role::Text, String::new()));
    lines.push((Role::Strong, "Next steps".to_owned()));
    let ways = [
        "/provider      choose a provider; a local server needs no key",
        "export KEY=…   in the shell: a key, such as ANTHROPIC_API_KEY; then posse",
        "posse demo     in the shell: a demo with a recorded model; no key, no network",
        "/doctor        check what posse needs here",
    ];
    lines.extend(ways.map(|way| (Role::Text, format!("  {way}"))));
    lines
}

/// Lines with the selected provider, model and agent and their sources.
pub(super) fn selection(app: &App) -> StyledLines {
    let rows = [
        ("provider", &app.view.status.provider, &app.sources.provider),
        ("model", &app.view.status.model, &app.sources.model),
        ("agent", &app.view.status.agent, &app.sources.agent),
    ];
    let line = |(word, name, source): (&str, &String, &String)| {
        (Role::Dim, format!("{word:<9} {} ({})", printable(name), printable(source)))
    };
    rows.map(line).to_vec()
}

/// Shows the end of a task: its error, and its outcome with turns, tokens and duration. A tool call
/// of the user that ended normally shows nothing. `yes`: true if `--yes` was given.
pub(super) fn finish_task(app: &mut App, concluded: TaskSummary, yes: bool) {
    let TaskSummary { outcome, took, rule_shown } = concluded;
    let verdict = judge(
        outcome.as_ref(),
        None,
        PermissionHints { yes, rule: rule_shown, ..PermissionHints::default() },
    );
    app.view.failures(verdict.failure.as_slice());
    let Some(outcome) = outcome else { return };
    // A call of the user's own already shows its result.
    if outcome.turns == 0 && outcome.ending == Ending::Answered(String::new()) {
        return;
    }
    app.view.note(Role::Dim, end_line(&outcome, took, None));
}

/// Prints the command that resumes the session with `flags` on standard error, after the terminal
/// was restored.
pub(super) fn print_resume_hint(session: &str, flags: &[String]) {
    let text = resume_line(session, flags) + "\n";
    terminal::stderr().write_all(text.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use posse_base::failure::Exit;

    use crate::testing::TestScreen;

    use super::*;

    #[test]
    fn explained_mode_says_how_to_change_it_and_what_runs_changes() {
        let text = |mode| {
            let lines = explained_mode(mode);
            lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>()
        };
        assert_eq!(
            text(PermissionMode::Auto),
            [
                "permission mode auto: commands and edits run in the sandbox without questions · \
                 Shift+Tab changes it",
                "programs of yours that watch the folder, such as dev servers, run what changed"
            ]
        );
        assert_eq!(text(PermissionMode::Plan).len(), 1);
    }

    #[test]
    fn first_run_shows_facts_and_next_steps() {
        let build = |stage: &mut TestScreen| {
            let what = "no model provider is configured, and no key is in the environment";
            let failure = Failure::new(ErrorCode::ProviderNotConfigured, Exit::Configuration, what)
                .fix("set one");
            let other = Failure::new(ErrorCode::SessionElsewhere, Exit::Session, "another failure");
            stage.app.view.push_lines(first_run(&[failure, other]));
            stage.app.view.push_lines(setup_report(&SetupFacts {
                facts: vec![
                    (true, "a login of the Codex program: /provider codex".to_owned()),
                    (false, "no sandbox: commands run with all your rights".into()),
                ],
            }));
        };
        insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
    }
}
