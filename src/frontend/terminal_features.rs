//! Features of the terminal, determined from environment variables alone.

use crate::notifications::NotificationMethod;

/// Features of the terminal that posse uses only where they are known to work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent features")]
pub struct TerminalFeatures {
    /// Method with which the terminal shows desktop notifications; the bell if it has none or is
    /// unknown.
    pub notification: NotificationMethod,
    /// True if the terminal has the keyboard protocol of kitty (`CSI > flags u`). Other terminals
    /// may take its sequence for the one that restores the cursor position (`CSI u`).
    pub keyboard_flags: bool,
    /// True if the terminal accepts window titles (`OSC 2`).
    pub titles: bool,
    /// True if the terminal can be asked for its background colour (`OSC 11`).
    pub background: bool,
    /// True inside tmux, which hands sequences of other terminals on only if they are wrapped and
    /// its option `allow-passthrough` is on.
    pub in_tmux: bool,
}

/// Terminals whose notifications and keyboard protocol are documented: a word in `TERM` or the
/// value of `TERM_PROGRAM`, in lower case; the notification method; and support for the keyboard
/// protocol.
const KNOWN: [(&str, NotificationMethod, bool); 9] = [
    ("kitty", NotificationMethod::Osc99, true),
    ("ghostty", NotificationMethod::Osc777, true),
    ("foot", NotificationMethod::Osc777, true),
    ("contour", NotificationMethod::Osc777, true),
    ("wezterm", NotificationMethod::Osc777, true),
    ("iterm.app", NotificationMethod::Osc9, true),
    ("warpterminal", NotificationMethod::Osc9, false),
    ("alacritty", NotificationMethod::Bell, true),
    ("rio", NotificationMethod::Bell, true),
];

impl TerminalFeatures {
    /// Determines the features from `TERM`, `TERM_PROGRAM`, `KITTY_WINDOW_ID`, `TMUX` and `STY`.
    /// `variable`: returns the value of an environment variable.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> TerminalFeatures {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let term = variable("TERM").unwrap_or_default().to_ascii_lowercase();
        let in_tmux = is_set("TMUX") || term.starts_with("tmux");
        let base = TerminalFeatures {
            // The Linux console prints a title as text, or takes a part of it for a command.
            titles: !matches!(term.as_str(), "" | "dumb" | "linux"),
            // The Linux console and old hardware terminals print the query as text.
            background: !matches!(term.as_str(), "" | "dumb" | "linux" | "ansi")
                && !term.starts_with("vt"),
            in_tmux,
            ..TerminalFeatures::default()
        };
        // The variables of the terminal around a multiplexer say nothing about the multiplexer.
        if in_tmux || is_set("STY") || term.starts_with("screen") || !base.titles {
            return base;
        }
        let program = variable("TERM_PROGRAM").unwrap_or_default().to_ascii_lowercase();
        let by_term = KNOWN.iter().find(|(name, ..)| term.split('-').any(|word| word == *name));
        let by_program = KNOWN.iter().find(|(name, ..)| program == *name);
        let kitty = KNOWN.iter().find(|_| is_set("KITTY_WINDOW_ID") && !is_set("XTERM_VERSION"));
        match by_term.or(by_program).or(kitty) {
            Some((_, notification, keyboard_flags)) => TerminalFeatures {
                notification: *notification,
                keyboard_flags: *keyboard_flags,
                ..base
            },
            None => base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(variables: &[(&str, &str)]) -> TerminalFeatures {
        TerminalFeatures::of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// Variables, and the expected notification method and keyboard protocol.
    type Row = (&'static [(&'static str, &'static str)], NotificationMethod, bool);

    #[test]
    fn features_are_used_only_where_the_terminal_is_known() {
        use NotificationMethod::{Bell, Osc9, Osc99, Osc777};
        let table: [Row; 16] = [
            (&[("TERM", "xterm-kitty")], Osc99, true),
            (&[("TERM", "xterm-256color"), ("KITTY_WINDOW_ID", "1")], Osc99, true),
            (&[("TERM", "xterm-ghostty")], Osc777, true),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "ghostty")], Osc777, true),
            (&[("TERM", "foot-extra")], Osc777, true),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "WezTerm")], Osc777, true),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], Osc9, true),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "WarpTerminal")], Osc9, false),
            (&[("TERM", "alacritty")], Bell, true),
            (&[("TERM", "xterm-256color")], Bell, false),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "vscode")], Bell, false),
            (&[("TERM", "xterm"), ("KITTY_WINDOW_ID", "1"), ("XTERM_VERSION", "9")], Bell, false),
            (&[("TERM", "tmux-256color"), ("KITTY_WINDOW_ID", "1")], Bell, false),
            (&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/tmux,1,0")], Bell, false),
            (
                &[("TERM", "xterm-256color"), ("STY", "1.tty"), ("TERM_PROGRAM", "iTerm.app")],
                Bell,
                false,
            ),
            (&[], Bell, false),
        ];
        for (variables, notification, keyboard_flags) in table {
            let found = features(variables);
            assert_eq!(
                (found.notification, found.keyboard_flags),
                (notification, keyboard_flags),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn titles_and_tmux_are_recognized() {
        for (term, titles) in [("linux", false), ("dumb", false), ("xterm", true), ("vt220", true)]
        {
            assert_eq!(features(&[("TERM", term)]).titles, titles, "{term}");
        }
        for (term, background) in
            [("linux", false), ("dumb", false), ("vt220", false), ("xterm", true), ("tmux", true)]
        {
            assert_eq!(features(&[("TERM", term)]).background, background, "{term}");
        }
        assert!(features(&[("TERM", "screen-256color"), ("TMUX", "x")]).in_tmux);
        assert!(!features(&[("TERM", "screen-256color"), ("STY", "x")]).in_tmux);
        assert!(!features(&[]).titles);
    }
}
