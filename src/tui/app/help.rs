//! Texts of `/help`, `/keys` and `/status`.

use posse_actors::event::{PermissionMode, SandboxTier};
use posse_frontend::commands::COMMANDS;

use crate::app::App;
use crate::keymap::{ANSWERS, BINDINGS, Keymap};
use crate::status::Status;
use crate::theme::Role;

type StyledLines = Vec<(Role, String)>;

/// Text of `/help`.
pub(super) fn help(keymap: &Keymap) -> StyledLines {
    let mut lines = vec![(Role::Strong, "Commands".to_owned())];
    lines.extend(COMMANDS.iter().map(|entry| {
        let name = format!("/{} {}", entry.name, entry.argument);
        (Role::Text, format!("  {name:<18} {}", entry.help))
    }));
    lines.push((Role::Dim, "Everything else is a task. While one runs, Enter sends your text to the model at its next step.".to_owned()));
    lines.extend(keys(keymap));
    lines
}

/// Text of `/keys`, with the keys of the user.
pub(super) fn keys(keymap: &Keymap) -> StyledLines {
    let mut lines = vec![(Role::Strong, "Keys".to_owned())];
    let line = |keys: String, what: &str| (Role::Text, format!("  {keys:<28} {what}"));
    lines.extend(BINDINGS.iter().map(|binding| line(keymap.keys_of(binding), binding.what)));
    lines.push((Role::Strong, "At a permission request".to_owned()));
    lines.extend(ANSWERS.iter().map(|(key, what)| line(key.to_string(), what)));
    lines
}

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
