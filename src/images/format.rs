//! Detection of a file's format by content, never by name.

/// An image format that can be decoded and converted for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// PNG, possibly animated.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF, possibly animated.
    Gif,
    /// WebP, possibly animated.
    WebP,
}

impl ImageFormat {
    /// Format of a file that starts with `bytes`. `None`: the format is not supported.
    pub fn of(bytes: &[u8]) -> Option<ImageFormat> {
        match bytes {
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(ImageFormat::Png),
            [0xff, 0xd8, 0xff, ..] => Some(ImageFormat::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(ImageFormat::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
                Some(ImageFormat::WebP)
            }
            _ => None,
        }
    }

    /// Name of the format for people and models, such as `WebP`.
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Png => "PNG",
            ImageFormat::Jpeg => "JPEG",
            ImageFormat::Gif => "GIF",
            ImageFormat::WebP => "WebP",
        }
    }

    pub(super) fn decoder_format(self) -> image::ImageFormat {
        match self {
            ImageFormat::Png => image::ImageFormat::Png,
            ImageFormat::Jpeg => image::ImageFormat::Jpeg,
            ImageFormat::Gif => image::ImageFormat::Gif,
            ImageFormat::WebP => image::ImageFormat::WebP,
        }
    }
}

/// Description of the unsupported format of a file that starts with `bytes`, such as `a PDF file`.
/// `None`: no such format is recognised in the first 512 bytes. Supported formats are not examined.
pub fn other(bytes: &[u8]) -> Option<&'static str> {
    let start = &bytes[..bytes.len().min(512)];
    let contains = |text: &[u8]| start.windows(text.len()).any(|window| window == text);
    match start {
        [b'%', b'P', b'D', b'F', ..] => Some("a PDF file"),
        [b'B', b'M', ..] => Some("a BMP image"),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some("a TIFF image"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', ..] => Some("an AVIF image"),
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => Some("a HEIC image or a film"),
        _ if contains(b"<svg") => Some("an SVG image"),
        _ => None,
    }
}

/// True if the JPEG file `bytes` has an end marker after the start of its pixel data. Without this
/// check, decoders fill the missing rest of a truncated file with grey.
pub(super) fn jpeg_ends(bytes: &[u8]) -> bool {
    let mut at = 2;
    // Thumbnails lie within segments, so only markers between segments count.
    while let [0xff, mark, rest @ ..] = bytes.get(at..).unwrap_or_default() {
        match (mark, rest) {
            (0xff, _) => at += 1,
            (0xda, rest) => return rest.windows(2).any(|pair| pair == [0xff, 0xd9]),
            (0x01 | 0xd0..=0xd8, _) => at += 2,
            (_, [high, low, ..]) => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => return false,
        }
    }
    false
}

/// True if `bytes` contain a marker of an animation in this `format`. In a GIF, a second picture
/// with a delay counts, too. Always false for JPEG.
pub(super) fn is_animated(bytes: &[u8], format: ImageFormat) -> bool {
    let contains = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    match format {
        ImageFormat::Png => contains(b"acTL"),
        ImageFormat::Jpeg => false,
        // The extension with the number of repetitions, or with the delay of each picture.
        ImageFormat::Gif => {
            let each = |window: &&[u8]| *window == b"\x21\xf9\x04";
            contains(b"NETSCAPE2.0")
                || contains(b"ANIMEXTS1.0")
                || bytes.windows(3).filter(each).nth(1).is_some()
        }
        ImageFormat::WebP => contains(b"ANMF"),
    }
}
