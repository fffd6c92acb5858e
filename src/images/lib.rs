//! Images for models: validated, bounded, and without camera metadata.
//!
//! The bytes are untrusted, so they are decoded on a thread of their own within limits of memory
//! and time, one at a time. The result is always encoded again from the pixels. Without images, no
//! thread runs and no memory is allocated.

mod format;

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::error::{ImageError, LimitErrorKind};
use image::{DynamicImage, ImageDecoder, ImageReader};
use nix::fcntl::OFlag;
use posse_base::failure::{ErrorCode, Exit, Failure};

pub use format::{ImageFormat, other};

/// JPEG qualities (1 to 100), tried in this order until the image is small enough.
const QUALITIES: [u8; 3] = [85, 70, 50];
/// Maximum number of halvings of an image that is too large.
const HALVINGS_MAX: u32 = 4;
/// Maximum wait until earlier images have been converted.
const TURN_MAX: Duration = Duration::from_secs(20);

/// Limits of an image and of its conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Maximum size of the file in bytes.
    pub file_bytes_max: u64,
    /// Maximum length of the longer side in pixels; a larger image is scaled down.
    pub side_pixels_max: u32,
    /// Maximum size of the converted image, as the length of its Base64 text in bytes.
    pub sent_bytes_max: usize,
    /// Maximum memory for decoding, in bytes. An image with more than a quarter as many pixels is
    /// an error.
    pub memory_bytes_max: u64,
    /// Maximum duration of the conversion, not counting the wait for earlier images.
    pub time_max: Duration,
}

impl Default for ImageLimits {
    fn default() -> ImageLimits {
        ImageLimits {
            file_bytes_max: 8 << 20,
            side_pixels_max: 2000,
            sent_bytes_max: 4_500_000,
            memory_bytes_max: 64 << 20,
            time_max: Duration::from_secs(2),
        }
    }
}

/// A converted image that can be sent to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedImage {
    /// Format of the original file.
    pub format: ImageFormat,
    /// Width and height of the original in pixels, upright.
    pub original: (u32, u32),
    /// Width and height of the converted image in pixels.
    pub size: (u32, u32),
    /// True if the original is an animation, of which only the first picture is used.
    pub animated: bool,
    /// Media type of `bytes`: `image/png` or `image/jpeg`.
    pub mime: &'static str,
    /// The encoded image.
    pub bytes: Vec<u8>,
}

impl LoadedImage {
    /// The image as a data URL.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.mime, STANDARD.encode(&self.bytes))
    }

    /// One line for people and models: `PNG, 4000x3000, sent as 2000x1500`. The sent size is left
    /// out if it is that of the original; a note follows if only the first picture of an animation
    /// is used.
    pub fn describe(&self) -> String {
        let ((width, height), (new_width, new_height)) = (self.original, self.size);
        let mut text = format!("{}, {width}x{height}", self.format.name());
        if self.original != self.size {
            // Writing to a string cannot fail.
            let _ = write!(text, ", sent as {new_width}x{new_height}");
        }
        if self.animated {
            text.push_str(", only its first picture");
        }
        text
    }
}

/// Loads and converts the image in the file `path`. Blocks as [`from_bytes`] does.
///
/// Fails with `IMG001` if the file cannot be read or is not a regular file, with `IMG002` if it is
/// too large, and with the errors of [`from_bytes`].
pub fn load(path: &Path, limits: &ImageLimits) -> Result<LoadedImage, Failure> {
    let place = path.display().to_string();
    let unreadable = |error: io::Error| {
        wrong(ErrorCode::ImageUnreadable, format!("the image cannot be read: {error}"))
            .at(place.clone())
            .fix("name an image file that exists and that you may read")
    };
    // Opening a pipe must not wait for a writer.
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = file.map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(wrong(ErrorCode::ImageUnreadable, "the image is not a file")
            .at(place)
            .fix("name the image file itself"));
    }
    if about.len() > limits.file_bytes_max {
        return Err(too_large(about.len(), limits).at(place));
    }
    let mut bytes = Vec::new();
    file.take(limits.file_bytes_max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    from_bytes(bytes, limits).map_err(|failure| failure.at(place))
}

/// Converts the image in `bytes` for sending. Blocks for at most `limits.time_max`, plus up to 20
/// seconds while other images are being converted.
///
/// Errors: `IMG002` too large, `IMG003` unknown format, `IMG004` empty or damaged, `IMG005`
/// conversion or wait exceeds memory or time limits, `IMG006` cannot be made small enough.
pub fn from_bytes(bytes: Vec<u8>, limits: &ImageLimits) -> Result<LoadedImage, Failure> {
    if bytes.len() as u64 > limits.file_bytes_max {
        return Err(too_large(bytes.len() as u64, limits));
    }
    if bytes.is_empty() {
        let what = "the image is empty (0 bytes)";
        return Err(wrong(ErrorCode::ImageDamaged, what).fix("save it again"));
    }
    let Some(format) = ImageFormat::of(&bytes) else {
        let what = match other(&bytes) {
            Some(other) => format!("{other} cannot be shown"),
            None => "the file is no PNG, JPEG, GIF or WebP image".to_owned(),
        };
        return Err(wrong(ErrorCode::ImageFormatUnknown, what).fix("convert it to PNG"));
    };
    if format == ImageFormat::Jpeg && !format::jpeg_ends(&bytes) {
        return Err(damaged("it ends before its last line"));
    }
    let limits = *limits;
    bounded(limits, move |deadline| convert(&bytes, format, limits, deadline))
}

/// Runs `work` on a new thread, one work at a time, and returns its result. Waits at most
/// [`TURN_MAX`] for the start and `limits.time_max` for the end; both timeouts are the error
/// `IMG005`. After a timeout the thread ends by itself: `work` gets its deadline (monotonic) as
/// argument, and does not start at all if the wait for the start has timed out.
fn bounded(
    limits: ImageLimits,
    work: impl FnOnce(Instant) -> Result<LoadedImage, Failure> + Send + 'static,
) -> Result<LoadedImage, Failure> {
    static TURN: Mutex<()> = Mutex::new(());
    let (begun_tx, begun) = sync_channel(1);
    let (done_tx, done) = sync_channel(1);
    let spawned = thread::Builder::new().name("image".to_owned()).spawn(move || {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // After a timeout the result is dropped.
        if begun_tx.send(()).is_ok() {
            drop(done_tx.send(work(Instant::now() + limits.time_max)));
        }
        drop(turn);
    });
    spawned.map_err(|error| {
        let what = format!("no thread for the image: {error}");
        wrong(ErrorCode::ImageTooCostly, what).fix("try again")
    })?;
    if begun.recv_timeout(TURN_MAX).is_err() {
        return Err(timeout_error());
    }
    match done.recv_timeout(limits.time_max) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(timeout_error()),
        Err(RecvTimeoutError::Disconnected) => Err(damaged("the decoder gave up")),
    }
}

/// Decodes an image, rotates it upright, scales it down and encodes it. If the encoded image is too
/// large, halves its sides, at most [`HALVINGS_MAX`] times. Fails after `deadline`.
fn convert(
    bytes: &[u8],
    format: ImageFormat,
    limits: ImageLimits,
    deadline: Instant,
) -> Result<LoadedImage, Failure> {
    let picture = decode(bytes, format, &limits, deadline)?;
    let original = (picture.width(), picture.height());
    let max = limits.side_pixels_max;
    let mut picture =
        if original.0.max(original.1) > max { picture.thumbnail(max, max) } else { picture };
    let animated = format::is_animated(bytes, format);
    for _ in 0..=HALVINGS_MAX {
        if Instant::now() >= deadline {
            return Err(timeout_error());
        }
        if let Some((mime, bytes)) = encode(&picture, format, limits.sent_bytes_max)? {
            let sent = (picture.width(), picture.height());
            return Ok(LoadedImage { format, original, size: sent, animated, mime, bytes });
        }
        picture = picture.thumbnail(picture.width().div_ceil(2), picture.height().div_ceil(2));
    }
    let what = format!("the image cannot be made smaller than {} bytes", limits.sent_bytes_max);
    Err(wrong(ErrorCode::ImageTooDetailed, what).fix("cut out the part that matters"))
}

/// Decodes the pixels of the first picture: upright, with eight bits per colour.
fn decode(
    bytes: &[u8],
    format: ImageFormat,
    limits: &ImageLimits,
    deadline: Instant,
) -> Result<DynamicImage, Failure> {
    let source = io::BufReader::new(Hurried { bytes: Cursor::new(bytes), deadline });
    let mut reader = ImageReader::with_format(source, format.decoder_format());
    let mut bounds = image::Limits::default();
    bounds.max_alloc = Some(limits.memory_bytes_max);
    reader.limits(bounds.clone());
    let mut decoder = reader.into_decoder().map_err(|error| undecodable(&error, deadline))?;
    let (width, height) = decoder.dimensions();
    // A decoded pixel takes four bytes, independent of the file.
    let pixels_max = limits.memory_bytes_max / 4;
    if u64::from(width) * u64::from(height) > pixels_max {
        let what = format!("the image has {width}x{height} pixels, more than {pixels_max} in all");
        return Err(wrong(ErrorCode::ImageTooCostly, what).fix("make it smaller"));
    }
    bounds
        .reserve(decoder.total_bytes())
        .and_then(|()| decoder.set_limits(bounds))
        .map_err(|error| undecodable(&error, deadline))?;
    let orientation = decoder.orientation().unwrap_or(image::metadata::Orientation::NoTransforms);
    let mut picture =
        DynamicImage::from_decoder(decoder).map_err(|error| undecodable(&error, deadline))?;
    picture.apply_orientation(orientation);
    Ok(match (picture.color().has_alpha(), picture.color().has_color()) {
        (true, _) => DynamicImage::ImageRgba8(picture.into_rgba8()),
        (false, true) => DynamicImage::ImageRgb8(picture.into_rgb8()),
        (false, false) => DynamicImage::ImageLuma8(picture.into_luma8()),
    })
}

/// Encodes `picture` such that its Base64 text has at most `sent_bytes_max` bytes. Returns media
/// type and bytes. An original in JPEG stays JPEG; others become PNG if that is small enough, else
/// JPEG without transparency. `None`: no encoding is small enough.
fn encode(
    picture: &DynamicImage,
    format: ImageFormat,
    sent_bytes_max: usize,
) -> Result<Option<(&'static str, Vec<u8>)>, Failure> {
    let fits = |bytes: &Vec<u8>| bytes.len().div_ceil(3) * 4 <= sent_bytes_max;
    let failed = |error: ImageError| damaged(&error.to_string());
    if format != ImageFormat::Jpeg {
        let mut bytes = Vec::new();
        picture.write_with_encoder(PngEncoder::new(&mut bytes)).map_err(failed)?;
        if fits(&bytes) {
            return Ok(Some(("image/png", bytes)));
        }
    }
    let opaque = picture.color().has_alpha().then(|| DynamicImage::ImageRgb8(picture.to_rgb8()));
    let picture = opaque.as_ref().unwrap_or(picture);
    for quality in QUALITIES {
        let mut bytes = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
        picture.write_with_encoder(encoder).map_err(failed)?;
        if fits(&bytes) {
            return Ok(Some(("image/jpeg", bytes)));
        }
    }
    Ok(None)
}

/// Reader that fails after the deadline.
struct Hurried<'a> {
    bytes: Cursor<&'a [u8]>,
    deadline: Instant,
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.bytes.read(buffer)
    }
}

impl io::Seek for Hurried<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

fn undecodable(error: &ImageError, deadline: Instant) -> Failure {
    use LimitErrorKind::{DimensionError, InsufficientMemory};
    if Instant::now() >= deadline {
        return timeout_error();
    }
    if let ImageError::Limits(limits) = error
        && matches!(limits.kind(), DimensionError | InsufficientMemory)
    {
        let what = "decoding the image would take too much memory";
        return wrong(ErrorCode::ImageTooCostly, what).fix("make it smaller");
    }
    damaged(&error.to_string())
}

fn damaged(why: &str) -> Failure {
    // A decoder may quote its input.
    let why: String = why.chars().take(200).collect();
    wrong(ErrorCode::ImageDamaged, format!("the image is damaged: {why}")).fix("save it again")
}

fn timeout_error() -> Failure {
    wrong(ErrorCode::ImageTooCostly, "decoding the image took too long").fix("make it smaller")
}

fn too_large(bytes: u64, limits: &ImageLimits) -> Failure {
    let max = limits.file_bytes_max;
    wrong(ErrorCode::ImageTooManyBytes, format!("the image has {bytes} bytes, more than {max}"))
        .fix("make it smaller")
}

fn wrong(code: ErrorCode, what: impl Into<String>) -> Failure {
    Failure::new(code, Exit::Usage, what)
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
