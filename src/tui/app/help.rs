//! `/help` and `/keys`, and the text of `/status`.

use crossterm::event::KeyEvent;
use posse_actors::event::{PermissionMode, SandboxTier};
use posse_frontend::commands::ReportRequest;

use crate::app::{App, Effect};
use crate::help_page::{HelpOutcome, HelpPage};
use crate::status::Status;
use crate::theme::Role;

type StyledLines = Vec<(Role, String)>;

impl App {
    /// Opens the help. `keys_first`: with the keys at the start, for `/keys`.
    pub(super) fn open_help(&mut self, keys_first: bool) {
        self.help = Some(HelpPage::new(&self.keymap, &self.guides, keys_first));
    }

    pub(super) fn handle_help_key(&mut self, key: KeyEvent) {
        let Some(help) = &mut self.help else { return };
        let outcome = help.key(key);
        if outcome != HelpOutcome::Open {
            self.help = None;
        }
        match outcome {
            HelpOutcome::Open | HelpOutcome::Closed => (),
            HelpOutcome::Prompt(text) => self.composer.restore_text(&text),
            HelpOutcome::Guide(name) => {
                self.effects.push(Effect::Report(ReportRequest::guide(&name)));
            }
        }
    }
}

/// Text of `/status`.
pub(super) fn status(app: &App) -> StyledLines {
    let Status { provider, model, agent, cwd, tier, permission_mode, .. } = &app.view.status;
    let with = |value: &str, source: &str| {
        if source.is_empty() { value.to_owned() } else { format!("{value} ({source})") }
    };
    let sources = &app.sources;
    let tier = match tier {
        SandboxTier::Full => "full",
        SandboxTier::Reduced => "reduced: commands can read secret files",
        SandboxTier::Unknown(text) if text.is_empty() => "unknown yet",
        _ => "none: commands run with all your rights",
    };
    let rows = [
        ("session", app.session.clone()),
        ("provider", with(provider, &sources.provider)),
        ("model", with(model, &sources.model)),
        ("agent", with(agent, &sources.agent)),
        ("folder", cwd.clone()),
        ("sandbox", tier.to_owned()),
        ("mode", permission_mode.map_or("unknown yet", PermissionMode::as_str).to_owned()),
    ];
    rows.into_iter().map(|(name, value)| (Role::Text, format!("{name:<10} {value}"))).collect()
}
