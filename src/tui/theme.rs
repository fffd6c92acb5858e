//! Themes: styles by meaning. Colours come from the terminal's palette, so they fit the user's
//! choice.

use ratatui::style::{Color, Modifier, Style};

/// Meaning of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// Plain text.
    Text,
    /// Less important text.
    Dim,
    /// Text that draws attention.
    Accent,
    /// Input of the user, and the mark of the prompt.
    User,
    /// Report of a success.
    Good,
    /// Error or failed call.
    Bad,
    /// Warning, or a request for the user's answer.
    Warn,
    /// Heading of a Markdown text or of a page.
    Heading,
    /// Strongly emphasised text, title or table head.
    Strong,
    /// Emphasised text of Markdown.
    Emphasis,
    /// Text that is struck through.
    Struck,
    /// Inline code.
    Code,
    /// Text of a link.
    Link,
    /// Keyword in code.
    Keyword,
    /// String literal in code.
    Literal,
    /// Number in code.
    Number,
    /// Comment in code.
    Comment,
    /// Type or function name in code.
    Name,
    /// Added line of a diff.
    Added,
    /// Removed line of a diff.
    Removed,
    /// Selected entry of a list.
    Selected,
}

/// Colour theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// Colours for dark backgrounds.
    #[default]
    Dark,
    /// Colours for light backgrounds.
    Light,
    /// No dim text; bold, bright colours.
    HighContrast,
    /// No colours, only bold, dim and similar text. Its name is `none`.
    Plain,
}

impl Theme {
    /// All themes with their names.
    pub const ALL: [(&'static str, Theme); 4] = [
        ("dark", Theme::Dark),
        ("light", Theme::Light),
        ("high-contrast", Theme::HighContrast),
        ("none", Theme::Plain),
    ];

    /// Returns the theme with that name; `None` if there is none.
    pub fn named(name: &str) -> Option<Theme> {
        Theme::ALL.iter().find(|(known, _)| *known == name).map(|(_, theme)| *theme)
    }

    /// Name of the theme in the configuration and in `/theme`.
    pub fn name(self) -> &'static str {
        Theme::ALL.iter().find(|(_, theme)| *theme == self).map_or("dark", |(name, _)| *name)
    }

    /// Style of a role.
    pub(super) fn style(self, role: Role) -> Style {
        let style = Style::new();
        let bold = style.add_modifier(Modifier::BOLD);
        match self {
            Theme::Plain => without_colour(role),
            Theme::HighContrast => match role {
                Role::Text | Role::Dim | Role::Comment | Role::Emphasis | Role::Struck => {
                    without_colour(role).remove_modifier(Modifier::DIM)
                }
                Role::Accent | Role::User | Role::Link | Role::Keyword => bold.fg(Color::LightCyan),
                Role::Good | Role::Added | Role::Literal => bold.fg(Color::LightGreen),
                Role::Bad | Role::Removed => bold.fg(Color::LightRed),
                Role::Warn | Role::Number | Role::Code | Role::Name => bold.fg(Color::LightYellow),
                Role::Heading | Role::Strong => bold.add_modifier(Modifier::UNDERLINED),
                Role::Selected => bold.add_modifier(Modifier::REVERSED),
            },
            Theme::Dark | Theme::Light => {
                let light = self == Theme::Light;
                let either = |dark, bright| if light { bright } else { dark };
                match role {
                    Role::Text => style,
                    Role::Dim | Role::Comment => style.add_modifier(Modifier::DIM),
                    Role::Accent => style.fg(either(Color::Cyan, Color::Blue)),
                    Role::User | Role::Heading => bold.fg(either(Color::Cyan, Color::Blue)),
                    Role::Good | Role::Added | Role::Literal => style.fg(Color::Green),
                    Role::Bad | Role::Removed => style.fg(Color::Red),
                    Role::Warn | Role::Number | Role::Code => {
                        style.fg(either(Color::Yellow, Color::Magenta))
                    }
                    Role::Strong => bold,
                    Role::Emphasis => style.add_modifier(Modifier::ITALIC),
                    Role::Struck => style.add_modifier(Modifier::CROSSED_OUT),
                    Role::Link => style
                        .fg(either(Color::Cyan, Color::Blue))
                        .add_modifier(Modifier::UNDERLINED),
                    Role::Keyword => style.fg(either(Color::Magenta, Color::Blue)),
                    Role::Name => style.fg(either(Color::Cyan, Color::Magenta)),
                    Role::Selected => bold.add_modifier(Modifier::REVERSED),
                }
            }
        }
    }
}

fn without_colour(role: Role) -> Style {
    let style = Style::new();
    match role {
        Role::Dim | Role::Comment | Role::Removed => style.add_modifier(Modifier::DIM),
        Role::User | Role::Heading | Role::Strong | Role::Bad | Role::Warn | Role::Added => {
            style.add_modifier(Modifier::BOLD)
        }
        Role::Emphasis => style.add_modifier(Modifier::ITALIC),
        Role::Struck => style.add_modifier(Modifier::CROSSED_OUT),
        Role::Link => style.add_modifier(Modifier::UNDERLINED),
        Role::Selected => style.add_modifier(Modifier::REVERSED),
        Role::Text
        | Role::Accent
        | Role::Good
        | Role::Code
        | Role::Keyword
        | Role::Literal
        | Role::Number
        | Role::Name => style,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 21] = [
        Role::Text,
        Role::Dim,
        Role::Accent,
        Role::User,
        Role::Good,
        Role::Bad,
        Role::Warn,
        Role::Heading,
        Role::Strong,
        Role::Emphasis,
        Role::Struck,
        Role::Code,
        Role::Link,
        Role::Keyword,
        Role::Literal,
        Role::Number,
        Role::Comment,
        Role::Name,
        Role::Added,
        Role::Removed,
        Role::Selected,
    ];

    #[test]
    fn plain_theme_has_no_colours() {
        for role in ROLES {
            let style = Theme::Plain.style(role);
            assert!(style.fg.is_none() && style.bg.is_none(), "{role:?}");
        }
    }

    #[test]
    fn high_contrast_theme_has_no_dim_text() {
        for role in ROLES {
            let style = Theme::HighContrast.style(role);
            assert!(!style.add_modifier.contains(Modifier::DIM), "{role:?}");
        }
    }

    #[test]
    fn every_theme_is_found_by_its_name() {
        for (name, theme) in Theme::ALL {
            assert_eq!(Theme::named(name), Some(theme));
            assert_eq!(theme.name(), name);
        }
        assert_eq!(Theme::named("pink"), None);
    }
}
