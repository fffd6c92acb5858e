//! Slices of files of all kinds and sizes.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};

use posse_actors::conversation::text_of;
use posse_images::ImageLimits;
use posse_images::testing::{jpeg_with_position, picture, png_bomb};
use proptest::prelude::*;

use super::page::{FileLines, Slice};
use super::*;
use crate::testing::ToolFixture;

fn ask(desk: &ToolFixture, arguments: &Value) -> String {
    desk.ask("read_file", arguments)
}

/// Lines of a text; `stopped`: the caller is gone.
fn read(file: impl Read, size: u64, slice: Slice, stopped: bool) -> FileLines {
    let (stop, guard) = Stop::after(Duration::MAX);
    if stopped {
        drop(guard);
    }
    page::read(file, size, slice, page::PAGE_BYTES_MAX, &stop).unwrap().expect("it is text")
}

/// Output for a file with `bytes`.
fn shown(bytes: &[u8], offset: u64, limit: u64) -> String {
    let page = read(bytes, bytes.len() as u64, Slice { offset, limit, bare: false }, false);
    page.into_output("f").map_or_else(|error| error.to_string(), |page| text_of(&page.content))
}

#[test]
fn lines_are_numbered_and_the_next_offset_named() {
    let desk = ToolFixture::new();
    desk.put("f", "one\ntwo\nthree");
    assert_eq!(ask(&desk, &json!({"path": "f"})), "1\tone\n2\ttwo\n3\tthree\n[lines 1-3 of 3]");
    assert_eq!(
        ask(&desk, &json!({"path": "f", "offset": 2, "limit": 1})),
        "2\ttwo\n[lines 2-2 of 3; next offset 3]"
    );
    let output = desk.call("read_file", &json!({"path": "f", "limit": 2})).unwrap();
    assert_eq!(
        output.metadata,
        json!({"totalLines": 3, "totalIsExact": true, "linesRead": 2, "offset": 1, "nextOffset": 3})
    );
}

#[test]
fn unreadable_file_types_are_named() {
    let desk = ToolFixture::new();
    desk.put("f", "one\n");
    desk.put("empty", "");
    desk.put("binary", b"\x7fELF\0");
    for (arguments, expected) in [
        (json!({"path": "f", "offset": 9}), "ARG004 f has 1 line; offset 9 is beyond"),
        (
            json!({"path": "f", "offset": 1_000_000_000_000_u64}),
            "ARG004 f has 1 line; offset 1000000000000 is beyond",
        ),
        (json!({"path": "f", "offset": 0}), "ARG001 offset: must be at least 1, not 0"),
        (json!({"path": "f", "limit": 5001}), "ARG001 limit: must be at most 5000, not 5001"),
        (json!({"path": "empty"}), "empty is empty"),
        (json!({"path": "empty", "offset": 2}), "ARG004 empty has 0 lines; offset 2 is beyond"),
        (
            json!({"path": "binary"}),
            "ARG003 binary is binary (5 bytes); look at it with bash: `file` or `xxd`",
        ),
        (json!({"path": "none"}), "FIL001 none does not exist"),
        (json!({"path": "."}), "ARG003 . is a folder; list_dir shows what is in it"),
    ] {
        assert_eq!(ask(&desk, &arguments), expected, "{arguments}");
    }
}

#[test]
fn shows_text_of_all_kinds() {
    assert_eq!(shown(b"a\r\nb\r\n", 1, 9), "1\ta\n2\tb\n[lines 1-2 of 2; lines end with CRLF]");
    assert_eq!(shown(b"\xef\xbb\xbfa\n", 1, 9), "1\ta\n[lines 1-1 of 1]");
    assert_eq!(
        shown(b"caf\xe9\n", 1, 9),
        "1\tcaf\u{fffd}\n[lines 1-1 of 1; bytes that are not UTF-8 are shown as \u{fffd}]"
    );
    assert_eq!(shown(b"\n\n", 1, 9), "1\t\n2\t\n[lines 1-2 of 2]");
}

#[test]
fn cuts_long_lines_and_pages() {
    let long = "x".repeat(1_000_000);
    let text = shown(format!("{long}\nend\n").as_bytes(), 1, 9);
    assert!(text.len() < 5000);
    assert!(text.ends_with(" … [cut: the line has 1000001 bytes]\n2\tend\n[lines 1-2 of 2]"));

    let wide = format!("{}\n", "y".repeat(999)).repeat(2000);
    let text = shown(wide.as_bytes(), 1, 2000);
    assert!(text.len() < 257 << 10);
    let next = text.rsplit_once("next offset ").unwrap().1.trim_end_matches(']');
    assert!(shown(wide.as_bytes(), next.parse().unwrap(), 1).starts_with(next));
}

#[test]
fn reads_the_end_of_a_huge_file_and_bounds_the_count() {
    let desk = ToolFixture::new();
    let path = desk.put("huge", "first\n");
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(&b"line\n".repeat(20 << 10)).unwrap();
    // The rest of a sparse file costs nothing to create.
    file.seek(SeekFrom::Start(65 << 20)).unwrap();
    file.write_all(b"\nlast\n").unwrap();
    assert_eq!(
        ask(&desk, &json!({"path": "huge", "limit": 1})),
        "1\tfirst\n[lines 1-1 of at least 20482; next offset 2]"
    );
    assert_eq!(
        ask(&desk, &json!({"path": "huge", "offset": 20_483})),
        "20483\tlast\n[lines 20483-20483 of 20483]"
    );
    assert_eq!(
        ask(&desk, &json!({"path": "huge", "offset": 1_000_000_000_u64})),
        "ARG004 huge has at least 20482 lines; offset 1000000000 is beyond"
    );
}

/// Returns one byte at a time, forever.
struct Endless;

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.fill(b'z');
        Ok(buffer.len())
    }
}

#[test]
fn endless_line_is_truncated() {
    let slice = Slice { offset: 1, limit: 5, bare: false };
    assert!(!read(Endless, u64::MAX, slice, false).complete);
}

#[test]
fn reading_stops_when_cancelled() {
    let slice = Slice { offset: 1 << 40, limit: 5, bare: false };
    assert!(!read(Endless, u64::MAX, slice, true).complete);
}

#[test]
fn reads_outputs_of_this_session_only() {
    let desk = ToolFixture::new();
    fs::create_dir(desk.path("session/outputs")).unwrap();
    fs::write(desk.path("session/outputs/call-7.txt"), "spilled\n").unwrap();
    fs::write(desk.path("session/secret.txt"), "secret\n").unwrap();
    std::os::unix::fs::symlink("../secret.txt", desk.path("session/outputs/link.txt")).unwrap();
    for (path, expected) in [
        ("output:call-7", "spilled\n[lines 1-1 of 1]"),
        ("output:call-8", "FIL001 there is no output:call-8"),
        ("output:../secret", "ARG002 an output is named by `output:` and the id of its call"),
        ("output:", "ARG002 an output is named by `output:` and the id of its call"),
        ("output:link", "ARG003 output:link: too many links, or a new one"),
    ] {
        assert_eq!(ask(&desk, &json!({ "path": path })), expected);
    }
}

#[test]
fn output_without_a_file_is_read_from_the_journal() {
    let desk = ToolFixture::set(|env| {
        env.recall = crate::stored_output::Recall::new(|_, name| {
            Box::pin(async move {
                match name.as_str() {
                    "call-9" => Ok(Some("one\ntwo\n".to_owned())),
                    "broken" => Err("the journal is damaged".to_owned()),
                    _ => Ok(None),
                }
            })
        });
    });
    fs::create_dir(desk.path("session/outputs")).unwrap();
    fs::write(desk.path("session/outputs/call-7.txt"), "spilled\n").unwrap();
    for (arguments, expected) in [
        (json!({"path": "output:call-9"}), "one\ntwo\n[lines 1-2 of 2]"),
        (json!({"path": "output:call-9", "offset": 2}), "two\n[lines 2-2 of 2]"),
        (json!({"path": "output:call-7"}), "spilled\n[lines 1-1 of 1]"),
        (json!({"path": "output:call-8"}), "FIL001 there is no output:call-8"),
        (
            json!({"path": "output:broken"}),
            "FIL001 output:broken cannot be read: the journal is damaged",
        ),
    ] {
        assert_eq!(ask(&desk, &arguments), expected);
    }
}

#[test]
fn text_of_an_earlier_read_fits_edit_file() {
    let desk = ToolFixture::set(|env| {
        env.recall = crate::stored_output::Recall::new(|_, _| {
            Box::pin(std::future::ready(Ok(Some("1\tone\n2\ttwo\n[lines 1-2 of 2]\n".to_owned()))))
        });
    });
    desk.put("f", "one\ntwo\n");
    let shown = ask(&desk, &json!({"path": "output:call-1", "offset": 2, "limit": 1}));
    let (line, _) = shown.split_once('\n').unwrap();
    assert_eq!(line, "2\ttwo");
    let edit = json!({"path": "f", "oldString": line, "newString": "2\t2"});
    assert!(desk.ask("edit_file", &edit).starts_with("updated f"));
    assert_eq!(desk.get("f"), b"one\n2\n");
}

#[test]
fn reads_the_judged_file_after_a_rename() {
    let desk = ToolFixture::new();
    let path = desk.put("f", "judged\n");
    let prepared = desk.prepare("read_file", &json!({"path": "f"})).unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    let output = desk.run("read_file", prepared);
    assert_eq!(text_of(&output.content), "1\tjudged\n[lines 1-1 of 1]");
}

/// Longer time limit: tests are not optimised, and share the machine with others.
fn patient() -> ToolFixture {
    ToolFixture::set(|env| {
        env.images = ImageLimits { time_max: Duration::from_mins(1), ..ImageLimits::default() };
    })
}

#[test]
fn shows_images_by_their_content() {
    use posse_actors::conversation::ContentPart;
    let desk = patient();
    let bytes = jpeg_with_position(60, 20, 1);
    desk.put("photo.txt", &bytes);
    let output = desk.call("read_file", &json!({"path": "photo.txt"})).unwrap();
    let [ContentPart::Text { text }, ContentPart::ImageUrl { url, .. }] = &*output.content else {
        panic!("{output:?}");
    };
    assert_eq!(text, "photo.txt: JPEG, 60x20");
    assert!(url.starts_with("data:image/jpeg;base64,/9j/"));
    assert_eq!(output.metadata["width"], 60);
    assert_eq!(output.metadata["sentBytes"], url.len());
    let again = ask(&desk, &json!({"path": "photo.txt"}));
    assert!(again.starts_with("photo.txt has not changed: call-1 has shown"), "{again}");
}

/// Invalid images are replaced by a placeholder, and the session continues.
#[test]
fn invalid_image_is_replaced_by_the_reason() {
    let desk = patient();
    let png = picture(64, 64, ::image::ImageFormat::Png);
    desk.put("empty.png", "");
    desk.put("cut.png", &png[..png.len() / 2]);
    desk.put("text.png", "not an image\n");
    desk.put("bomb.png", png_bomb(30_000, 30_000));
    desk.put("photo.heic", b"\0\0\0\x18ftypheic\0\0\0\0");
    desk.put("secret.pdf", b"%PDF-1.7\n\0/Encrypt");
    desk.put("drawing.svg", "<svg><script>alert(1)</script></svg>\n");
    desk.put("my 'photo'.png", &png);
    let mut large = png.clone();
    large.resize(9 << 20, 0);
    desk.put("large.png", &large);
    for (path, expected) in [
        ("empty.png", "empty.png is empty"),
        ("cut.png", "IMG004 cut.png: the image is damaged"),
        ("text.png", "1\tnot an image\n"),
        ("bomb.png", "IMG005 bomb.png: "),
        ("photo.heic", "IMG003 photo.heic: a HEIC image or a film cannot be shown"),
        ("secret.pdf", "IMG003 secret.pdf: a PDF file cannot be shown"),
        ("drawing.svg", "1\t<svg><script>"),
        ("my 'photo'.png", "my 'photo'.png: PNG, 64x64"),
        ("large.png", "IMG002 large.png: the image has 8388609 bytes, more than 8388608; make it"),
    ] {
        let said = ask(&desk, &json!({ "path": path }));
        assert!(said.starts_with(expected), "{path}: {said}");
    }
    assert_eq!(ask(&desk, &json!({"path": "none.png"})), "FIL001 none.png does not exist");
}

/// Reads in pieces of the given size.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(self.0.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

proptest! {
    #[test]
    fn shows_the_lines_that_are_there(
        text in "([a-c]{0,400}\n){0,60}[a-c]{0,3}",
        offset in 1..70_u64,
        limit in 1..70_u64,
        piece in 1..5000_usize,
    ) {
        let lines: Vec<&str> = text.lines().collect();
        let slice = Slice { offset, limit, bare: false };
        // A wrong size makes the reader continue in chunks.
        let page = read(Pieces(text.as_bytes(), piece), 1, slice, false);
        let output = page.into_output("f");
        let is_error = output.is_err();
        let output = output.unwrap_or_else(|error| ToolOutput::error(error.to_string()));
        let wanted: Vec<String> = (offset..)
            .zip(lines.iter().skip(usize::try_from(offset).unwrap() - 1))
            .take(usize::try_from(limit).unwrap())
            .map(|(number, line)| format!("{number}\t{line}\n"))
            .collect();
        let shown = text_of(&output.content);
        if wanted.is_empty() {
            prop_assert!(is_error || shown == "f is empty");
        } else {
            prop_assert!(shown.starts_with(&wanted.concat()));
            prop_assert_eq!(&output.metadata["totalLines"], &json!(lines.len()));
        }
    }
}
