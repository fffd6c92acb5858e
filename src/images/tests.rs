//! Images of every kind, and invalid ones.

use posse_base::failure::ErrorCode;
use std::fs;

use image::ImageFormat as PictureFormat;

use super::testing::{jpeg_with_position, picture, png_bomb};
use super::*;

fn limits() -> ImageLimits {
    // Tests are not optimised, and share the machine with others.
    ImageLimits { time_max: Duration::from_mins(1), ..ImageLimits::default() }
}

fn code(bytes: impl Into<Vec<u8>>) -> &'static str {
    from_bytes(bytes.into(), &limits()).unwrap_err().code.as_str()
}

/// Decoded image of the bytes to send.
fn sent(image: &LoadedImage) -> DynamicImage {
    assert_eq!(
        ImageFormat::of(&image.bytes).unwrap().name(),
        match image.mime {
            "image/png" => "PNG",
            _ => "JPEG",
        }
    );
    image::load_from_memory(&image.bytes).unwrap()
}

#[test]
fn format_is_detected_by_content() {
    for (format, name, mime) in [
        (PictureFormat::Png, "PNG", "image/png"),
        (PictureFormat::Jpeg, "JPEG", "image/jpeg"),
        (PictureFormat::Gif, "GIF", "image/png"),
        (PictureFormat::WebP, "WebP", "image/png"),
    ] {
        let image = from_bytes(picture(40, 30, format), &limits()).unwrap();
        assert_eq!((image.format.name(), image.mime), (name, mime));
        assert_eq!((image.original, image.size), ((40, 30), (40, 30)));
        assert_eq!(sent(&image).width(), 40);
        assert!(image.data_url().starts_with(&format!("data:{mime};base64,")));
        assert_eq!(image.describe(), format!("{name}, 40x30"));
    }
    let tiny = from_bytes(picture(1, 1, PictureFormat::Png), &limits()).unwrap();
    assert_eq!(tiny.size, (1, 1));
}

#[test]
fn large_images_are_scaled_with_their_aspect_ratio() {
    let image = from_bytes(picture(3000, 1500, PictureFormat::Jpeg), &limits()).unwrap();
    assert_eq!((image.original, image.size), ((3000, 1500), (2000, 1000)));
    assert_eq!(sent(&image).height(), 1000);
    assert_eq!(image.describe(), "JPEG, 3000x1500, sent as 2000x1000");
    let few = ImageLimits { sent_bytes_max: 20_000, ..limits() };
    let image = from_bytes(picture(600, 400, PictureFormat::Png), &few).unwrap();
    assert!(image.data_url().len() < 20_100, "{}", image.describe());
    assert_eq!(image.mime, "image/jpeg");
    let none = ImageLimits { sent_bytes_max: 100, ..limits() };
    let error = from_bytes(picture(600, 400, PictureFormat::Png), &none).unwrap_err();
    assert_eq!(error.code, ErrorCode::ImageTooDetailed);
}

#[test]
fn location_metadata_is_removed_and_rotation_applied() {
    let bytes = jpeg_with_position(60, 20, 1);
    assert!(bytes.windows(3).any(|window| window == b"GPS"));
    let image = from_bytes(bytes, &limits()).unwrap();
    assert_eq!(image.size, (60, 20));
    let lying = from_bytes(jpeg_with_position(60, 20, 6), &limits()).unwrap();
    assert_eq!(lying.size, (20, 60));
    for trace in [&b"GPS"[..], b"Exif"] {
        assert!(!image.bytes.windows(trace.len()).any(|window| window == trace));
    }
}

#[test]
fn data_after_the_image_is_not_sent() {
    let mut bytes = picture(8, 8, PictureFormat::Png);
    bytes.extend(b"PK\x03\x04<script>alert(1)</script>");
    let image = from_bytes(bytes, &limits()).unwrap();
    assert!(!image.bytes.windows(8).any(|window| window == b"<script>"));
}

#[test]
fn errors_name_the_reason() {
    assert_eq!(code(""), "IMG004");
    assert_eq!(code("not an image"), "IMG003");
    for format in [PictureFormat::Png, PictureFormat::Jpeg, PictureFormat::Gif, PictureFormat::WebP]
    {
        let bytes = picture(64, 64, format);
        assert_eq!(code(&bytes[..bytes.len() / 2]), "IMG004", "{format:?}");
        assert_eq!(code(&bytes[..13]), "IMG004", "{format:?}");
    }
    assert_eq!(code(png_bomb(30_000, 30_000)), "IMG005");
    assert_eq!(code(vec![0; (8 << 20) + 1]), "IMG002");
    for (bytes, named) in [
        (&b"<?xml version='1.0'?><svg><script/></svg>"[..], "an SVG image"),
        (b"%PDF-1.7 /Encrypt", "a PDF file"),
        (b"\0\0\0\x18ftypheic", "a HEIC image or a film"),
    ] {
        let error = from_bytes(bytes.to_vec(), &limits()).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.what),
            ("IMG003", format!("{named} cannot be shown"))
        );
    }
    let hurried = ImageLimits { time_max: Duration::ZERO, ..limits() };
    let error = from_bytes(picture(64, 64, PictureFormat::Png), &hurried).unwrap_err();
    assert_eq!(error.code, ErrorCode::ImageTooCostly);
}

#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it's a photo.png");
    fs::write(&file, picture(4, 4, PictureFormat::Gif)).unwrap();
    assert_eq!(load(&file, &limits()).unwrap().format, ImageFormat::Gif);
    let error = load(&folder.path().join("none"), &limits()).unwrap_err();
    assert_eq!(error.code, ErrorCode::ImageUnreadable);
    assert!(error.place.unwrap().ends_with("none"));
    assert_eq!(load(folder.path(), &limits()).unwrap_err().code, ErrorCode::ImageUnreadable);
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(load(&pipe, &limits()).unwrap_err().code, ErrorCode::ImageUnreadable);
    let large = File::create(folder.path().join("large")).unwrap();
    large.set_len(100 << 20).unwrap();
    assert_eq!(
        load(&folder.path().join("large"), &limits()).unwrap_err().code,
        ErrorCode::ImageTooManyBytes
    );
}

#[test]
fn animation_is_reduced_to_its_first_frame() {
    use image::codecs::gif::{GifEncoder, Repeat};
    use image::{Delay, Frame, RgbaImage};
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    encoder.set_repeat(Repeat::Infinite).unwrap();
    for shade in [0, 255] {
        let frame = RgbaImage::from_pixel(5, 5, image::Rgba([shade, 0, 0, 255]));
        let delay = Delay::from_numer_denom_ms(100, 1);
        encoder.encode_frame(Frame::from_parts(frame, 0, 0, delay)).unwrap();
    }
    drop(encoder);
    let image = from_bytes(bytes, &limits()).unwrap();
    assert!(image.animated);
    assert_eq!(sent(&image).to_rgb8().get_pixel(2, 2).0, [0, 0, 0]);
    assert_eq!(image.describe(), "GIF, 5x5, only its first picture");
}

#[test]
fn survives_any_bytes() {
    let whole = picture(24, 24, PictureFormat::Gif);
    for format in [PictureFormat::Png, PictureFormat::Jpeg, PictureFormat::WebP] {
        for at in (0..200).step_by(7) {
            let mut bytes = picture(24, 24, format);
            let at = at % bytes.len();
            bytes[at] ^= 0x55;
            if let Err(error) = from_bytes(bytes, &limits()) {
                assert!(error.code.as_str().starts_with("IMG00"), "{error}");
            }
        }
    }
    for cut in 0..whole.len().min(120) {
        assert!(from_bytes(whole[..cut].to_vec(), &limits()).is_err(), "{cut}");
    }
}
