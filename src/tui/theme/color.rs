//! Colours: parsing, mixing, brightness, and the nearest colour of a palette of 256.

use ratatui::style::Color;

/// A colour of 24 bits: red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rgb(pub(crate) u8, pub(crate) u8, pub(crate) u8);

/// Number of colours that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorDepth {
    /// The 16 colours of the terminal's own palette.
    #[default]
    Sixteen,
    /// The palette of 256 colours of xterm.
    Indexed,
    /// 24 bits.
    Truecolor,
}

impl ColorDepth {
    /// Determines the depth from `COLORTERM`, `TERM`, `TERM_PROGRAM` and `TMUX`. tmux converts
    /// colours to those of the terminal around it. `variable`: returns the value of an environment
    /// variable.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> ColorDepth {
        let value = |name: &str| variable(name).unwrap_or_default().to_ascii_lowercase();
        let (term, colorterm) = (value("TERM"), value("COLORTERM"));
        if matches!(term.as_str(), "" | "dumb" | "linux" | "ansi") || term.starts_with("vt") {
            return ColorDepth::Sixteen;
        }
        let known = ["kitty", "ghostty", "foot", "alacritty", "contour", "wezterm", "direct"];
        let programs = ["iterm.app", "vscode", "wezterm", "ghostty", "warpterminal", "hyper"];
        let is_full = matches!(colorterm.as_str(), "truecolor" | "24bit")
            || term.split('-').any(|word| known.contains(&word))
            || programs.contains(&value("TERM_PROGRAM").as_str())
            || !value("TMUX").is_empty();
        match (is_full, term.contains("256color")) {
            (true, _) => ColorDepth::Truecolor,
            (false, true) => ColorDepth::Indexed,
            (false, false) => ColorDepth::Sixteen,
        }
    }
}

impl Rgb {
    /// Parses `#rrggbb` or `#rgb`.
    pub(crate) fn parse(text: &str) -> Option<Rgb> {
        let digits = text.strip_prefix('#')?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let channel = |from: usize, count: usize| {
            let value = u8::from_str_radix(digits.get(from..from + count)?, 16).ok()?;
            Some(if count == 1 { value * 17 } else { value })
        };
        match digits.len() {
            3 => Some(Rgb(channel(0, 1)?, channel(1, 1)?, channel(2, 1)?)),
            6 => Some(Rgb(channel(0, 2)?, channel(2, 2)?, channel(4, 2)?)),
            _ => None,
        }
    }

    /// This colour with `percent` percent of `other` mixed in.
    pub(super) fn mixed(self, other: Rgb, percent: u16) -> Rgb {
        let mix = |own: u8, other: u8| {
            let sum =
                u16::from(own) * (100 - percent.min(100)) + u16::from(other) * percent.min(100);
            u8::try_from(sum / 100).unwrap_or(u8::MAX)
        };
        Rgb(mix(self.0, other.0), mix(self.1, other.1), mix(self.2, other.2))
    }

    /// Perceived brightness from 0 to 255 (ITU-R BT.601).
    fn brightness(self) -> u32 {
        (299 * u32::from(self.0) + 587 * u32::from(self.1) + 114 * u32::from(self.2)) / 1000
    }

    /// Returns `true` for a background on which dark text is readable.
    pub(super) fn is_light(self) -> bool {
        self.brightness() > 127
    }

    /// The colour for a terminal of that depth. [`ColorDepth::Sixteen`] counts as
    /// [`ColorDepth::Indexed`].
    pub(super) fn shown(self, depth: ColorDepth) -> Color {
        match depth {
            ColorDepth::Truecolor => Color::Rgb(self.0, self.1, self.2),
            ColorDepth::Sixteen | ColorDepth::Indexed => Color::Indexed(self.nearest_index()),
        }
    }

    /// Index of the nearest colour among the colour cube (16 to 231) and the greys (232 to 255) of
    /// xterm. The first 16 colours differ between terminals.
    fn nearest_index(self) -> u8 {
        const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        let step = |channel: u8| {
            let nearest = (0..6_u8).min_by_key(|at| STEPS[usize::from(*at)].abs_diff(channel));
            nearest.unwrap_or_default()
        };
        let (red, green, blue) = (step(self.0), step(self.1), step(self.2));
        let cube =
            Rgb(STEPS[usize::from(red)], STEPS[usize::from(green)], STEPS[usize::from(blue)]);
        let average = (u16::from(self.0) + u16::from(self.1) + u16::from(self.2)) / 3;
        let nth = u8::try_from((average.saturating_sub(3) / 10).min(23)).unwrap_or_default();
        let grey = Rgb(8 + 10 * nth, 8 + 10 * nth, 8 + 10 * nth);
        if self.distance(grey) < self.distance(cube) {
            232 + nth
        } else {
            16 + 36 * red + 6 * green + blue
        }
    }

    fn distance(self, other: Rgb) -> u32 {
        let square = |own: u8, other: u8| u32::from(own.abs_diff(other)).pow(2);
        square(self.0, other.0) + square(self.1, other.1) + square(self.2, other.2)
    }

    /// Contrast ratio of two colours, from 1 to 21 (WCAG 2).
    #[cfg(test)]
    pub(super) fn contrast(self, other: Rgb) -> f64 {
        let luminance = |rgb: Rgb| {
            let linear = |channel: u8| {
                let value = f64::from(channel) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(rgb.0) + 0.7152 * linear(rgb.1) + 0.0722 * linear(rgb.2)
        };
        let (own, other) = (luminance(self), luminance(other));
        (own.max(other) + 0.05) / (own.min(other) + 0.05)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_parsed() {
        let table = [
            ("#000000", Some(Rgb(0, 0, 0))),
            ("#1aF", Some(Rgb(0x11, 0xaa, 0xff))),
            ("#10a0F0", Some(Rgb(0x10, 0xa0, 0xf0))),
            ("10a0f0", None),
            ("#10a0f", None),
            ("#10a0fg", None),
            ("#+1+2+3", None),
            ("#日", None),
            ("", None),
        ];
        for (text, colour) in table {
            assert_eq!(Rgb::parse(text), colour, "{text}");
        }
    }

    #[test]
    fn nearest_colours_of_the_palette() {
        let table = [
            (Rgb(0, 0, 0), 16),
            (Rgb(255, 255, 255), 231),
            (Rgb(255, 0, 0), 196),
            (Rgb(95, 135, 175), 67),
            (Rgb(30, 30, 30), 234),
            (Rgb(128, 128, 128), 244),
        ];
        for (colour, index) in table {
            assert_eq!(colour.nearest_index(), index, "{colour:?}");
        }
    }

    #[test]
    fn depth_follows_the_environment() {
        use ColorDepth::{Indexed, Sixteen, Truecolor};
        let table: [(&[(&str, &str)], ColorDepth); 10] = [
            (&[], Sixteen),
            (&[("TERM", "linux"), ("COLORTERM", "truecolor")], Sixteen),
            (&[("TERM", "vt220")], Sixteen),
            (&[("TERM", "xterm")], Sixteen),
            (&[("TERM", "xterm-256color")], Indexed),
            (&[("TERM", "screen-256color"), ("STY", "1")], Indexed),
            (&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")], Truecolor),
            (&[("TERM", "xterm-kitty")], Truecolor),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], Truecolor),
            (&[("TERM", "tmux-256color"), ("TMUX", "/tmp/tmux")], Truecolor),
        ];
        for (variables, depth) in table {
            let found = ColorDepth::of(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(found, depth, "{variables:?}");
        }
    }
}
