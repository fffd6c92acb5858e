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

/// True if the structure of `bytes` says that the image is an animation: a PNG with a chunk `acTL`
/// before its pixels, a GIF with a second picture, a WebP with a chunk `ANMF`. Pixel data, which can
/// contain the same bytes by chance, is not searched. Always false for JPEG.
pub(super) fn is_animated(bytes: &[u8], format: ImageFormat) -> bool {
    match format {
        ImageFormat::Png => png_is_animated(bytes),
        ImageFormat::Jpeg => false,
        ImageFormat::Gif => has_second_picture(bytes).unwrap_or(false),
        ImageFormat::WebP => webp_is_animated(bytes),
    }
}

fn png_is_animated(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let [a, b, c, d, kind @ ..] = rest {
        match kind.first_chunk::<4>() {
            Some(b"acTL") => return true,
            Some(b"IDAT") | None => return false,
            Some(_) => {}
        }
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        // Length, kind and checksum.
        rest = length.checked_add(12).and_then(|end| rest.get(end..)).unwrap_or_default();
    }
    false
}

fn webp_is_animated(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let [kind @ .., a, b, c, d] = rest.get(..8).unwrap_or_default() {
        if kind == b"ANMF" {
            return true;
        }
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        // Chunks begin at even positions.
        let end = length.checked_add(8 + length % 2);
        rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
    }
    false
}

/// True if the GIF file `bytes` has a second picture. `None`: it ends, or is damaged, before that
/// is known.
fn has_second_picture(bytes: &[u8]) -> Option<bool> {
    let table_bytes = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + table_bytes(*bytes.get(10)?);
    let mut pictures = 0;
    loop {
        match bytes.get(at)? {
            // An extension with its kind.
            0x21 => at += 2,
            // A picture: position, size, flags, its own colours and the size of codes.
            0x2c if pictures == 0 => {
                pictures = 1;
                at += 11 + table_bytes(*bytes.get(at + 9)?);
            }
            0x2c => return Some(true),
            _ => return Some(false),
        }
        // Blocks of data, until an empty one.
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1 + length;
            if length == 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn animations_are_known_by_structure_and_not_by_pixels() {
        let chunk = |kind: &[u8; 4], data: &[u8]| {
            let length = u32::try_from(data.len()).unwrap().to_be_bytes();
            [&length[..], kind, data, &[0; 4]].concat()
        };
        let png = |chunks: &[Vec<u8>]| [b"\x89PNG\r\n\x1a\n", &chunks.concat()[..]].concat();
        let header = chunk(b"IHDR", &[0; 13]);
        let riff = |kind: &[u8; 4], data: &[u8]| {
            let length = u32::try_from(data.len()).unwrap().to_le_bytes();
            let pad = vec![0; data.len() % 2];
            [&kind[..], &length, data, &pad].concat()
        };
        let webp = |chunks: &[Vec<u8>]| [b"RIFF\0\0\0\0WEBP", &chunks.concat()[..]].concat();
        let gif = |parts: &[&[u8]]| {
            let head = b"GIF89a\x01\0\x01\0\x80\0\0";
            [&head[..], &[0; 6], &parts.concat(), &b";"[..]].concat()
        };
        // Pixels with the bytes of two extensions.
        let picture = b",\0\0\0\0\x01\0\x01\0\0\x02\x08\x21\xf9\x04\x21\xf9\x04\0\0\0";
        let delay = b"\x21\xf9\x04\0\x0a\0\0\0";
        let repeats = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0";
        let text = b"\x21\xfe\x0bNETSCAPE2.0\0";
        let (png_kind, gif_kind, webp_kind) =
            (ImageFormat::Png, ImageFormat::Gif, ImageFormat::WebP);
        let table = [
            (png(&[header.clone(), chunk(b"acTL", &[0; 8]), chunk(b"IDAT", b"x")]), png_kind, true),
            (png(&[header.clone(), chunk(b"IDAT", b"an acTL in pixels")]), png_kind, false),
            (png(&[header.clone(), chunk(b"tEXt", b"acTL"), chunk(b"IDAT", b"")]), png_kind, false),
            (png(&[header]), png_kind, false),
            (b"\x89PNG\r\n\x1a\n\xff\xff\xff\xffjunk".to_vec(), png_kind, false),
            (gif(&[delay, picture]), gif_kind, false),
            (gif(&[repeats, delay, picture]), gif_kind, false),
            (gif(&[text, picture]), gif_kind, false),
            (gif(&[delay, picture, delay, picture]), gif_kind, true),
            (gif(&[picture, picture]), gif_kind, true),
            (gif(&[delay, picture])[..30].to_vec(), gif_kind, false),
            (b"GIF89a".to_vec(), gif_kind, false),
            (webp(&[riff(b"VP8X", &[0; 10]), riff(b"ANMF", b"abc")]), webp_kind, true),
            (webp(&[riff(b"VP8 ", b"odd ANMF."), riff(b"EXIF", b"ANMF")]), webp_kind, false),
            (b"RIFF\0\0\0\0WEBPVP8 \xff\xff\xff\xff".to_vec(), webp_kind, false),
        ];
        for (row, (bytes, format, expected)) in table.into_iter().enumerate() {
            assert_eq!(ImageFormat::of(&bytes), Some(format), "row {row}");
            assert_eq!(is_animated(&bytes, format), expected, "row {row}");
        }
    }
}
