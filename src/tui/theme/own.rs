//! Themes of the user: JSON files that change styles of a built-in theme.

use ratatui::style::{Modifier, Style};
use serde_json::Value;

use crate::theme::color::{ColorDepth, Rgb};
use crate::theme::{Base, Role, Theme};

/// A theme of the user.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnTheme {
    /// Name for `ui.theme` and `/theme`: the name of the file without `.json`.
    pub name: String,
    pub(super) base: Base,
    styles: Vec<(Role, OwnStyle)>,
}

/// Style of a role in a theme of the user. `None` leaves the value of the base theme.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct OwnStyle {
    foreground: Option<Rgb>,
    background: Option<Rgb>,
    added: Modifier,
    removed: Modifier,
}

/// Names of the modifiers in a theme file.
const MODIFIERS: [(&str, Modifier); 5] = [
    ("bold", Modifier::BOLD),
    ("dim", Modifier::DIM),
    ("italic", Modifier::ITALIC),
    ("underline", Modifier::UNDERLINED),
    ("reverse", Modifier::REVERSED),
];

impl OwnTheme {
    /// Parses the text of a theme file: `{"base": "dark", "styles": {"accent": "#88c0d0", "heading":
    /// {"fg": "#81a1c1", "bold": true}}}`. The error names the wrong part and what is valid there.
    pub fn parse(name: &str, text: &str) -> Result<OwnTheme, String> {
        if Base::named(name).is_some() {
            return Err(format!("`{name}` is the name of a built-in theme; rename the file"));
        }
        let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Some(members) = file.as_object() else {
            return Err("the file must contain a JSON object".to_owned());
        };
        if let Some(key) = members.keys().find(|key| !["base", "styles"].contains(&key.as_str())) {
            return Err(format!("unknown key `{key}`; known: base, styles"));
        }
        let base = match &file["base"] {
            Value::Null => Base::Dark,
            value => value.as_str().and_then(Base::named).ok_or_else(|| {
                format!(
                    "`base` must be the name of a built-in theme: {}",
                    Theme::names(&[]).join(", ")
                )
            })?,
        };
        let mut styles = Vec::new();
        match &file["styles"] {
            Value::Null => (),
            Value::Object(given) => {
                for (key, value) in given {
                    let role = Role::named(key).ok_or_else(|| {
                        let names: Vec<&str> = Role::names().collect();
                        format!("unknown style `styles.{key}`; known: {}", names.join(", "))
                    })?;
                    styles.push((role, style(key, value)?));
                }
            }
            _ => return Err("`styles` must be an object".to_owned()),
        }
        Ok(OwnTheme { name: name.to_owned(), base, styles })
    }

    /// The style of a role in the base theme, with the changes of this theme.
    pub(super) fn changed(&self, role: Role, base: Style, depth: ColorDepth) -> Style {
        let Some((_, own)) = self.styles.iter().find(|(known, _)| *known == role) else {
            return base;
        };
        let mut style = base;
        style.fg = own.foreground.map(|color| color.shown(depth)).or(style.fg);
        style.bg = own.background.map(|color| color.shown(depth)).or(style.bg);
        style.add_modifier.remove(own.removed);
        style.add_modifier(own.added)
    }
}

/// Parses the style `key`: a colour, or an object.
fn style(key: &str, value: &Value) -> Result<OwnStyle, String> {
    let color = |at: &str, value: &Value| {
        value.as_str().and_then(Rgb::parse).ok_or_else(|| {
            format!("`styles.{at}` must be a colour such as \"#88c0d0\", not {value}")
        })
    };
    let mut style = OwnStyle::default();
    let Value::Object(members) = value else {
        style.foreground = Some(color(key, value)?);
        return Ok(style);
    };
    for (name, value) in members {
        let at = format!("{key}.{name}");
        match MODIFIERS.iter().find(|(known, _)| known == name) {
            Some((_, modifier)) => match value.as_bool() {
                Some(true) => style.added |= *modifier,
                Some(false) => style.removed |= *modifier,
                None => return Err(format!("`styles.{at}` must be true or false, not {value}")),
            },
            None if name == "fg" => style.foreground = Some(color(&at, value)?),
            None if name == "bg" => style.background = Some(color(&at, value)?),
            None => {
                let modifiers = MODIFIERS.map(|(name, _)| name).join(", ");
                return Err(format!("unknown key `styles.{at}`; known: fg, bg, {modifiers}"));
            }
        }
    }
    Ok(style)
}

#[cfg(test)]
mod tests {
    use ratatui::style::Color;

    use super::*;

    #[test]
    fn own_theme_changes_only_what_it_names() {
        let text = r##"{"base": "light", "styles": {
            "accent": "#88c0d0", "heading": {"fg": "#fff", "bg": "#000000", "bold": false}}}"##;
        let own = OwnTheme::parse("nord", text).unwrap();
        assert_eq!(own.base, Base::Light);
        let bold = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let depth = ColorDepth::Truecolor;
        let accent = bold.fg(Color::Rgb(0x88, 0xc0, 0xd0));
        assert_eq!(own.changed(Role::Accent, bold, depth), accent);
        let heading = Style::new().fg(Color::Rgb(255, 255, 255)).bg(Color::Rgb(0, 0, 0));
        assert_eq!(own.changed(Role::Heading, bold, depth), heading);
        assert_eq!(own.changed(Role::Dim, bold, depth), bold);
    }

    #[test]
    fn example_of_the_guide_is_valid() {
        let guide = include_str!("../../../docs/guide/tui.md");
        let (_, example) = guide.split_once("```json theme\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let own = OwnTheme::parse("mine", example).unwrap();
        assert_eq!(own.styles.len(), 3);
        for name in Role::names() {
            assert!(guide.contains(&format!("`{name}`")), "{name} is not in the guide");
        }
    }

    #[test]
    fn mistakes_name_the_place_and_what_is_valid() {
        let table = [
            ("dark", "{}", "built-in theme"),
            ("x", "[]", "must contain a JSON object"),
            ("x", "{", "EOF"),
            ("x", r#"{"color": 1}"#, "unknown key `color`; known: base, styles"),
            ("x", r#"{"base": "pink"}"#, "auto, dark, light, high-contrast, none"),
            ("x", r#"{"styles": 1}"#, "`styles` must be an object"),
            ("x", r#"{"styles": {"acent": "red"}}"#, "unknown style `styles.acent`; known: text, "),
            ("x", r#"{"styles": {"accent": "red"}}"#, "must be a colour such as"),
            ("x", r#"{"styles": {"accent": {"bold": 1}}}"#, "`styles.accent.bold` must be true"),
            ("x", r#"{"styles": {"accent": {"blink": true}}}"#, "known: fg, bg, bold"),
        ];
        for (name, text, part) in table {
            let error = OwnTheme::parse(name, text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
