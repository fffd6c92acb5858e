//! What things look like, by what they mean. Colours are those of the terminal's own palette, so
//! that they fit whatever its user chose.

use ratatui_core::style::{Color, Modifier, Style};

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// What is said.
    Text,
    /// Of less interest.
    Dim,
    /// Where to look.
    Accent,
    /// What the user said.
    User,
    /// It went well.
    Good,
    /// It did not.
    Bad,
    /// Something to know.
    Warn,
    /// A title.
    Heading,
    /// Emphasised.
    Strong,
    /// Emphasised a little.
    Emphasis,
    /// Code within a sentence.
    Code,
    /// An address.
    Link,
    /// A word of a language.
    Keyword,
    /// A text in a program.
    Literal,
    /// A number in a program.
    Number,
    /// A remark in a program.
    Remark,
    /// A type or a function in a program.
    Name,
    /// A line that was added.
    Added,
    /// A line that was removed.
    Removed,
    /// What is chosen in a list.
    Selected,
}

/// A set of looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// On a dark ground.
    #[default]
    Dark,
    /// On a light ground.
    Light,
    /// Nothing faint, nothing told by colour alone.
    HighContrast,
    /// Without colour.
    Plain,
}

impl Theme {
    /// All of them with their names.
    pub const ALL: [(&'static str, Theme); 4] = [
        ("dark", Theme::Dark),
        ("light", Theme::Light),
        ("high-contrast", Theme::HighContrast),
        ("none", Theme::Plain),
    ];

    /// The theme of that name.
    pub fn named(name: &str) -> Option<Theme> {
        Theme::ALL.iter().find(|(known, _)| *known == name).map(|(_, theme)| *theme)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Theme::ALL.iter().find(|(_, theme)| *theme == self).map_or("dark", |(name, _)| *name)
    }

    /// How something looks.
    pub(super) fn style(self, role: Role) -> Style {
        let style = Style::new();
        let bold = style.add_modifier(Modifier::BOLD);
        match self {
            Theme::Plain => without_colour(role),
            Theme::HighContrast => match role {
                Role::Text | Role::Dim | Role::Remark | Role::Emphasis => {
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
                    Role::Dim | Role::Remark => style.add_modifier(Modifier::DIM),
                    Role::Accent => style.fg(either(Color::Cyan, Color::Blue)),
                    Role::User | Role::Heading => bold.fg(either(Color::Cyan, Color::Blue)),
                    Role::Good | Role::Added | Role::Literal => style.fg(Color::Green),
                    Role::Bad | Role::Removed => style.fg(Color::Red),
                    Role::Warn | Role::Number | Role::Code => {
                        style.fg(either(Color::Yellow, Color::Magenta))
                    }
                    Role::Strong => bold,
                    Role::Emphasis => style.add_modifier(Modifier::ITALIC),
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
        Role::Dim | Role::Remark | Role::Removed => style.add_modifier(Modifier::DIM),
        Role::User | Role::Heading | Role::Strong | Role::Bad | Role::Warn | Role::Added => {
            style.add_modifier(Modifier::BOLD)
        }
        Role::Emphasis => style.add_modifier(Modifier::ITALIC),
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

    const ROLES: [Role; 20] = [
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
        Role::Code,
        Role::Link,
        Role::Keyword,
        Role::Literal,
        Role::Number,
        Role::Remark,
        Role::Name,
        Role::Added,
        Role::Removed,
        Role::Selected,
    ];

    #[test]
    fn without_colour_there_is_none() {
        for role in ROLES {
            let style = Theme::Plain.style(role);
            assert!(style.fg.is_none() && style.bg.is_none(), "{role:?}");
        }
    }

    #[test]
    fn nothing_is_faint_in_high_contrast() {
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
