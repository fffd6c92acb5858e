//! Test images.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "test support")]

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

/// A picture with some detail, encoded in `format`.
pub fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let pixel = |x: u32, y: u32| {
        let value = x.wrapping_mul(7).wrapping_add(y.wrapping_mul(13)) ^ (x.wrapping_mul(y) >> 4);
        Rgb([value, x, y].map(|part| part.to_le_bytes()[0]))
    };
    let mut bytes = Cursor::new(Vec::new());
    let picture = DynamicImage::ImageRgb8(RgbImage::from_fn(width, height, pixel));
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A PNG of few bytes that declares a size of `width` x `height` pixels.
pub fn png_bomb(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = picture(1, 1, ImageFormat::Png);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A JPEG with camera metadata: `orientation` as an Exif value from 1 to 8, and a location.
pub fn jpeg_with_position(width: u32, height: u32, orientation: u8) -> Vec<u8> {
    let bytes = picture(width, height, ImageFormat::Jpeg);
    let mut notes = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    notes.extend([orientation, 0, 0, 0, 0, 0, 0]);
    notes.extend(b"GPSLatitude 52.5163 GPSLongitude 13.3777");
    let length = u16::try_from(notes.len() + 2).unwrap().to_be_bytes();
    [&bytes[..2], &[0xff, 0xe1], &length, &notes, &bytes[2..]].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}
