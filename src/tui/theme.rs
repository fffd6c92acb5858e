//! Themes: styles by meaning. Terminals with more than 16 colours get colours that are designed for a
//! dark or a light background; others get colours of their own palette.

mod color;
mod own;
mod palette;

use ratatui::style::{Color, Modifier, Style};
use strum::{AsRefStr, VariantArray};

pub use color::ColorDepth;
pub(super) use color::Rgb;
pub use own::OwnTheme;

use palette::Palette;

/// Meaning of a piece of text. Its name in a theme file is the name of the variant in camel case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, AsRefStr, VariantArray)]
#[strum(serialize_all = "camelCase")]
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
    /// Background of an input of the user.
    Band,
    /// Background of an added line of a diff.
    AddedLine,
    /// Background of a removed line of a diff.
    RemovedLine,
    /// Changed words in an added line of a diff.
    AddedWord,
    /// Changed words in a removed line of a diff.
    RemovedWord,
    /// Selected entry of a list.
    Selected,
}

impl Role {
    /// The role with that name in a theme file.
    fn named(name: &str) -> Option<Role> {
        Role::VARIANTS.iter().find(|role| role.as_ref() == name).copied()
    }

    /// Names of all roles in a theme file.
    fn names() -> impl Iterator<Item = &'static str> {
        Role::VARIANTS.iter().map(AsRef::as_ref)
    }
}

/// The built-in theme on which a theme is based.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Base {
    /// Dark or light, by the background that the terminal reports.
    #[default]
    Auto,
    /// Colours for dark backgrounds.
    Dark,
    /// Colours for light backgrounds.
    Light,
    /// No dim text; bold, bright colours of the terminal's palette.
    HighContrast,
    /// No colours, only bold, dim and similar text. Its name is `none`.
    Plain,
}

impl Base {
    const ALL: [(&'static str, Base); 5] = [
        ("auto", Base::Auto),
        ("dark", Base::Dark),
        ("light", Base::Light),
        ("high-contrast", Base::HighContrast),
        ("none", Base::Plain),
    ];

    fn named(name: &str) -> Option<Base> {
        Base::ALL.iter().find(|(known, _)| *known == name).map(|(_, base)| *base)
    }

    fn name(self) -> &'static str {
        Base::ALL.iter().find(|(_, base)| *base == self).map_or("auto", |(name, _)| *name)
    }
}

/// Colour theme for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Theme {
    base: Base,
    depth: ColorDepth,
    /// Background that the terminal has reported; `None` before.
    background: Option<Rgb>,
    /// Theme of the user; `None` for a built-in theme.
    own: Option<&'static OwnTheme>,
}

impl Theme {
    /// The theme without colours.
    pub const PLAIN: Theme =
        Theme { base: Base::Plain, depth: ColorDepth::Sixteen, background: None, own: None };

    /// The theme `auto` on a terminal with that number of colours.
    pub fn of_terminal(depth: ColorDepth) -> Theme {
        Theme { depth, ..Theme::default() }
    }

    /// This theme's terminal with the theme of that name: a built-in one, or one of `own`. `None` if
    /// there is none.
    pub fn switched(self, name: &str, own: &[&'static OwnTheme]) -> Option<Theme> {
        let found = own.iter().find(|theme| theme.name == name).copied();
        let base = Base::named(name).or(found.map(|theme| theme.base))?;
        Some(Theme { base, own: found, ..self })
    }

    /// This theme on a terminal with that background.
    pub(crate) fn on_background(self, background: Rgb) -> Theme {
        Theme { background: Some(background), ..self }
    }

    /// Name of the theme in the configuration and in `/theme`.
    pub fn name(self) -> &'static str {
        self.own.map_or(self.base.name(), |own| &own.name)
    }

    /// The names of the built-in themes and of `own`.
    pub fn names(own: &[&'static OwnTheme]) -> Vec<&'static str> {
        let own = own.iter().map(|theme| theme.name.as_str());
        Base::ALL.iter().map(|(name, _)| *name).chain(own).collect()
    }

    /// Returns `true` if the background of the terminal changes the colours of the theme.
    pub(crate) fn depends_on_background(self) -> bool {
        self.base == Base::Auto || self.depth != ColorDepth::Sixteen && self.palette().is_some()
    }

    /// Style of a role.
    pub(super) fn style(self, role: Role) -> Style {
        let base = self.base_style(role);
        self.own.map_or(base, |own| own.changed(role, base, self.depth))
    }

    /// True if inputs of the user and changed lines have a background.
    pub(super) fn has_backgrounds(self) -> bool {
        self.style(Role::AddedLine).bg.is_some()
    }

    /// True for a light background, by the theme or by the terminal.
    fn is_light(self) -> bool {
        match self.base {
            Base::Light => true,
            Base::Auto => self.background.is_some_and(Rgb::is_light),
            Base::Dark | Base::HighContrast | Base::Plain => false,
        }
    }

    /// The palette of a theme for more than 16 colours; `None` if the theme uses other colours. Before
    /// the background is known, `auto` uses the 16 colours of the terminal, which fit it.
    fn palette(self) -> Option<&'static Palette> {
        let is_known = match self.base {
            Base::Auto => self.background.is_some(),
            Base::Dark | Base::Light => true,
            Base::HighContrast | Base::Plain => false,
        };
        let palette = if self.is_light() { &palette::LIGHT } else { &palette::DARK };
        Some(palette).filter(|_| is_known && self.depth != ColorDepth::Sixteen)
    }

    fn base_style(self, role: Role) -> Style {
        match (self.base, self.palette()) {
            (Base::Plain, _) => without_colour(role),
            (Base::HighContrast, _) => with_high_contrast(role),
            (_, Some(palette)) => {
                // A theme for another kind of background does not fit that of the terminal.
                let fits = |own: &Rgb| own.is_light() == palette.background.is_light();
                let known = self.background.filter(fits);
                let terminal = known.unwrap_or(palette.background);
                let mut style = without_colour(role);
                style.add_modifier.remove(Modifier::DIM);
                style.fg = palette.foreground(role).map(|color| color.shown(self.depth));
                let background = palette.background(role, terminal);
                style.bg = background.map(|color| color.shown(self.depth));
                if style.bg.is_some() && known.is_none() {
                    // The terminal's own text may not be readable on this background.
                    style.fg = Some(palette.text.shown(self.depth));
                }
                if matches!(role, Role::Bad | Role::Warn | Role::Added) || style.bg.is_some() {
                    style.add_modifier = Modifier::empty();
                }
                style
            }
            (_, None) => with_16_colours(role, self.is_light()),
        }
    }
}

fn with_high_contrast(role: Role) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match role {
        Role::Text
        | Role::Dim
        | Role::Comment
        | Role::Emphasis
        | Role::Struck
        | Role::Band
        | Role::AddedLine
        | Role::RemovedLine
        | Role::AddedWord
        | Role::RemovedWord => without_colour(role).remove_modifier(Modifier::DIM),
        Role::Accent | Role::User | Role::Link | Role::Keyword => bold.fg(Color::LightCyan),
        Role::Good | Role::Added | Role::Literal => bold.fg(Color::LightGreen),
        Role::Bad | Role::Removed => bold.fg(Color::LightRed),
        Role::Warn | Role::Number | Role::Code | Role::Name => bold.fg(Color::LightYellow),
        Role::Heading | Role::Strong => bold.add_modifier(Modifier::UNDERLINED),
        Role::Selected => bold.add_modifier(Modifier::REVERSED),
    }
}

/// Style of a role in the 16 colours of the terminal's palette, which fit the user's choice.
fn with_16_colours(role: Role, light: bool) -> Style {
    let style = Style::new();
    let bold = style.add_modifier(Modifier::BOLD);
    let either = |dark, bright| if light { bright } else { dark };
    match role {
        Role::Text | Role::Band | Role::AddedLine | Role::RemovedLine => style,
        Role::AddedWord | Role::RemovedWord => style.add_modifier(Modifier::UNDERLINED),
        Role::Dim | Role::Comment => style.add_modifier(Modifier::DIM),
        Role::Accent => style.fg(either(Color::Cyan, Color::Blue)),
        Role::User | Role::Heading => bold.fg(either(Color::Cyan, Color::Blue)),
        Role::Good | Role::Added | Role::Literal => style.fg(Color::Green),
        Role::Bad | Role::Removed => style.fg(Color::Red),
        Role::Warn | Role::Number | Role::Code => style.fg(either(Color::Yellow, Color::Magenta)),
        Role::Strong => bold,
        Role::Emphasis => style.add_modifier(Modifier::ITALIC),
        Role::Struck => style.add_modifier(Modifier::CROSSED_OUT),
        Role::Link => style.fg(either(Color::Cyan, Color::Blue)).add_modifier(Modifier::UNDERLINED),
        Role::Keyword => style.fg(either(Color::Magenta, Color::Blue)),
        Role::Name => style.fg(either(Color::Cyan, Color::Magenta)),
        Role::Selected => {
            bold.fg(either(Color::Cyan, Color::Blue)).add_modifier(Modifier::REVERSED)
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
        Role::Link | Role::AddedWord | Role::RemovedWord => {
            style.add_modifier(Modifier::UNDERLINED)
        }
        Role::Selected => style.add_modifier(Modifier::REVERSED),
        Role::Text
        | Role::Accent
        | Role::Good
        | Role::Code
        | Role::Keyword
        | Role::Literal
        | Role::Number
        | Role::Name
        | Role::Band
        | Role::AddedLine
        | Role::RemovedLine => style,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, depth: ColorDepth) -> Theme {
        Theme::of_terminal(depth).switched(name, &[]).unwrap()
    }

    #[test]
    fn plain_theme_has_no_colours() {
        for role in Role::VARIANTS {
            let style = Theme::PLAIN.style(*role);
            assert!(style.fg.is_none() && style.bg.is_none(), "{role:?}");
        }
    }

    #[test]
    fn high_contrast_theme_has_no_dim_text() {
        for role in Role::VARIANTS {
            let style = named("high-contrast", ColorDepth::Truecolor).style(*role);
            assert!(!style.add_modifier.contains(Modifier::DIM), "{role:?}");
        }
    }

    #[test]
    fn every_theme_is_found_by_its_name() {
        for (name, _) in Base::ALL {
            assert_eq!(named(name, ColorDepth::Sixteen).name(), name);
        }
        assert_eq!(Theme::default().switched("pink", &[]), None);
        let own: &'static OwnTheme = Box::leak(Box::new(OwnTheme::parse("pink", "{}").unwrap()));
        let theme = Theme::default().switched("pink", &[own]).unwrap();
        assert_eq!((theme.name(), theme.base), ("pink", Base::Dark));
        assert_eq!(
            Theme::names(&[own]),
            ["auto", "dark", "light", "high-contrast", "none", "pink"]
        );
    }

    /// Before the terminal has answered, backgrounds could make text unreadable.
    #[test]
    fn auto_theme_follows_the_background() {
        let unknown = Theme::of_terminal(ColorDepth::Truecolor);
        assert_eq!(unknown.style(Role::Accent).fg, Some(Color::Cyan));
        assert!(!unknown.has_backgrounds());
        let dark = unknown.on_background(Rgb(0x10, 0x20, 0x30));
        let light = unknown.on_background(Rgb(0xff, 0xf0, 0xe0));
        assert_eq!(
            dark.style(Role::Accent),
            named("dark", ColorDepth::Truecolor).style(Role::Accent)
        );
        assert_eq!(
            light.style(Role::Accent),
            named("light", ColorDepth::Truecolor).style(Role::Accent)
        );
        assert_eq!(dark.style(Role::Band).bg, Some(Color::Rgb(0x27, 0x36, 0x44)));
        let sixteen = Theme::default().on_background(Rgb(255, 255, 255));
        assert_eq!(sixteen.style(Role::Accent).fg, Some(Color::Blue));
        assert!(!sixteen.has_backgrounds());
    }

    /// The user's choice wins over the terminal.
    #[test]
    fn background_that_does_not_fit_the_theme_is_ignored() {
        let light = named("light", ColorDepth::Truecolor);
        assert_eq!(light.on_background(Rgb(0, 0, 0)).style(Role::Band), light.style(Role::Band));
        // Its own text would be black on dark.
        let dark = named("dark", ColorDepth::Truecolor).on_background(Rgb(255, 255, 255));
        assert_eq!(dark.style(Role::Band).fg, Some(Color::Rgb(0xd8, 0xdb, 0xe0)));
        let other = light.on_background(Rgb(0xee, 0xee, 0xee));
        assert_ne!(other.style(Role::Band), light.style(Role::Band));
    }

    #[test]
    fn roles_are_found_by_their_names() {
        for role in Role::VARIANTS {
            assert_eq!(Role::named(role.as_ref()), Some(*role));
        }
        assert_eq!(Role::named("addedWord"), Some(Role::AddedWord));
        assert_eq!(Role::named("pink"), None);
    }
}
