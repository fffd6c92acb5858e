//! Colours of the dark and the light theme for terminals with more than 16 colours.

use crate::theme::Role;
use crate::theme::color::Rgb;

/// Foreground colours of a theme, and the colours that are mixed into its background.
#[derive(Debug)]
pub(super) struct Palette {
    /// Background that is assumed where the terminal does not report its own.
    pub(super) background: Rgb,
    /// Text on that background.
    pub(super) text: Rgb,
    dim: Rgb,
    accent: Rgb,
    good: Rgb,
    bad: Rgb,
    warn: Rgb,
    heading: Rgb,
    code: Rgb,
    keyword: Rgb,
    literal: Rgb,
    number: Rgb,
    name: Rgb,
    /// Colour that is mixed into the background of an input of the user.
    band: (Rgb, u16),
    /// Colours that are mixed into the background of changed lines, and their shares in percent: of
    /// the line, and of its changed words.
    added: (Rgb, u16, u16),
    removed: (Rgb, u16, u16),
}

/// Colours on a dark background.
pub(super) const DARK: Palette = Palette {
    background: Rgb(0x1e, 0x1e, 0x1e),
    text: Rgb(0xd8, 0xdb, 0xe0),
    dim: Rgb(0x98, 0xa1, 0xae),
    accent: Rgb(0x6c, 0xc7, 0xe8),
    good: Rgb(0x8f, 0xce, 0x7e),
    bad: Rgb(0xff, 0x85, 0x8d),
    warn: Rgb(0xe9, 0xb7, 0x65),
    heading: Rgb(0x8a, 0xb4, 0xff),
    code: Rgb(0xe6, 0xc3, 0x84),
    keyword: Rgb(0xcf, 0xa6, 0xf7),
    literal: Rgb(0x9b, 0xd6, 0x8a),
    number: Rgb(0xf2, 0xae, 0x7c),
    name: Rgb(0x86, 0xc1, 0xff),
    band: (Rgb(0xff, 0xff, 0xff), 10),
    added: (Rgb(0x2e, 0xa0, 0x43), 20, 45),
    removed: (Rgb(0xda, 0x36, 0x33), 20, 45),
};

/// Colours on a light background.
pub(super) const LIGHT: Palette = Palette {
    background: Rgb(0xff, 0xff, 0xff),
    text: Rgb(0x20, 0x23, 0x27),
    dim: Rgb(0x55, 0x5d, 0x68),
    accent: Rgb(0x05, 0x5c, 0x82),
    good: Rgb(0x14, 0x63, 0x29),
    bad: Rgb(0xb3, 0x17, 0x26),
    warn: Rgb(0x7c, 0x4c, 0x00),
    heading: Rgb(0x1c, 0x46, 0xaa),
    code: Rgb(0x74, 0x45, 0x00),
    keyword: Rgb(0x70, 0x2c, 0xa3),
    literal: Rgb(0x19, 0x5f, 0x26),
    number: Rgb(0x93, 0x3f, 0x06),
    name: Rgb(0x16, 0x54, 0xa3),
    band: (Rgb(0x00, 0x00, 0x00), 6),
    added: (Rgb(0x2e, 0xa0, 0x43), 14, 32),
    removed: (Rgb(0xda, 0x36, 0x33), 12, 28),
};

impl Palette {
    /// Foreground of a role; `None` for the terminal's own.
    pub(super) fn foreground(&self, role: Role) -> Option<Rgb> {
        Some(match role {
            Role::Text
            | Role::Strong
            | Role::Emphasis
            | Role::Struck
            | Role::Band
            | Role::AddedLine
            | Role::RemovedLine
            | Role::AddedWord
            | Role::RemovedWord => return None,
            Role::Dim | Role::Comment => self.dim,
            Role::Accent | Role::User | Role::Link | Role::Selected => self.accent,
            Role::Good | Role::Added => self.good,
            Role::Bad | Role::Removed => self.bad,
            Role::Warn => self.warn,
            Role::Heading => self.heading,
            Role::Code => self.code,
            Role::Keyword => self.keyword,
            Role::Literal => self.literal,
            Role::Number => self.number,
            Role::Name => self.name,
        })
    }

    /// Background of a role on the background of the terminal; `None` for the latter.
    pub(super) fn background(&self, role: Role, terminal: Rgb) -> Option<Rgb> {
        Some(match role {
            Role::Band => terminal.mixed(self.band.0, self.band.1),
            Role::AddedLine => terminal.mixed(self.added.0, self.added.1),
            Role::AddedWord => terminal.mixed(self.added.0, self.added.2),
            Role::RemovedLine => terminal.mixed(self.removed.0, self.removed.1),
            Role::RemovedWord => terminal.mixed(self.removed.0, self.removed.2),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    /// Smallest contrast of text (WCAG 2, level AA).
    const CONTRAST_MIN: f64 = 4.5;

    #[test]
    fn text_is_readable_on_usual_backgrounds() {
        let dark = [(0x1e, 0x1e, 0x1e), (0, 0, 0), (0x28, 0x2c, 0x34), (0x00, 0x2b, 0x36)];
        let light = [(0xff, 0xff, 0xff), (0xfd, 0xf6, 0xe3), (0xee, 0xee, 0xee)];
        let check = |palette: &Palette, backgrounds: &[(u8, u8, u8)]| {
            for (red, green, blue) in backgrounds {
                let terminal = Rgb(*red, *green, *blue);
                for role in Role::VARIANTS.iter().copied() {
                    let Some(text) = palette.foreground(role) else { continue };
                    let contrast = text.contrast(terminal);
                    assert!(contrast >= CONTRAST_MIN, "{role:?} on {terminal:?}: {contrast}");
                }
            }
        };
        check(&DARK, &dark);
        check(&LIGHT, &light);
    }

    /// Code in changed lines keeps its colours.
    #[test]
    fn code_is_readable_on_changed_lines() {
        for (palette, text) in [(&DARK, Rgb(0xd0, 0xd0, 0xd0)), (&LIGHT, Rgb(0x20, 0x20, 0x20))] {
            for on in [Role::Band, Role::AddedLine, Role::RemovedLine] {
                let background = palette.background(on, palette.background).unwrap();
                assert!(text.contrast(background) >= 7.0, "{on:?}");
                for role in Role::VARIANTS.iter().copied() {
                    let Some(text) = palette.foreground(role) else { continue };
                    let contrast = text.contrast(background);
                    assert!(contrast >= 3.5, "{role:?} on {on:?}: {contrast}");
                }
            }
        }
    }
}
