//! Unusual files: invalid images, special names, hard links to secrets. Each is denied with a code
//! or works, and the session continues.

use std::ffi::OsStr;
use std::fs;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;

use image::codecs::gif::GifEncoder;
use image::{DynamicImage, Frame, ImageFormat, RgbImage, RgbaImage};
use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, says, text_of};
use crate::posse::Machine;

pub(crate) fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let picture = DynamicImage::ImageRgb8(RgbImage::new(width, height));
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A PNG whose pixels look random and are the same in each run, so that it cannot be compressed.
pub(crate) fn noise(width: u32, height: u32) -> Vec<u8> {
    let mut state: u32 = 0x9E37_79B9;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        u8::try_from(state >> 24).unwrap()
    };
    let picture = RgbImage::from_fn(width, height, |_, _| image::Rgb([byte(), byte(), byte()]));
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(picture).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn animation() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    encoder.encode_frames([(); 3].map(|()| Frame::new(RgbaImage::new(4, 4)))).unwrap();
    drop(encoder);
    bytes
}

/// A PNG that declares a size that its few bytes do not have.
fn bomb() -> Vec<u8> {
    let mut bytes = picture(1, 1, ImageFormat::Png);
    bytes[16..20].copy_from_slice(&30_000_u32.to_be_bytes());
    bytes[20..24].copy_from_slice(&30_000_u32.to_be_bytes());
    let mut sum = u32::MAX;
    for byte in &bytes[12..29] {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    bytes[29..33].copy_from_slice(&(!sum).to_be_bytes());
    bytes
}

/// A photo with the location in its metadata.
fn located() -> Vec<u8> {
    let bytes = picture(8, 8, ImageFormat::Jpeg);
    let notes = b"Exif\0\0MM\0*\0\0\0\x08\0\0GPSLatitude 52.5163";
    let length = u16::try_from(notes.len() + 2).unwrap().to_be_bytes();
    [&bytes[..2], &[0xff, 0xe1], &length, notes, &bytes[2..]].concat()
}

/// Every invalid image: name, content, and error.
fn images() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let png = || picture(40, 30, ImageFormat::Png);
    let truncated = {
        let bytes = picture(200, 200, ImageFormat::Png);
        bytes[..bytes.len() / 2].to_vec()
    };
    let svg = b"<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>".to_vec();
    vec![
        ("empty.png", Vec::new(), "empty"),
        ("truncated.png", truncated, "IMG004"),
        ("wrong-ending.jpg", png(), "PNG, 40x30"),
        ("polyglot.png", [png(), b"PK\x03\x04<script>".to_vec()].concat(), "PNG, 40x30"),
        ("animated.gif", animation(), "only its first picture"),
        ("dot.png", picture(1, 1, ImageFormat::Png), "PNG, 1x1"),
        ("bomb.png", bomb(), "IMG005"),
        ("huge.png", [png(), vec![0; 9 << 20]].concat(), "IMG002"),
        ("script.svg", svg, "script"),
        ("locked.pdf", b"%PDF-1.7\n/Encrypt 1 0 R\n\0\x01".to_vec(), "IMG003"),
        ("photo.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic\0".to_vec(), "IMG003"),
        ("located.jpg", located(), "JPEG, 8x8"),
    ]
}

#[test]
fn images_of_every_kind_are_shown_or_replaced_by_a_reason() {
    let images = images();
    let read = |name: &str| ("read_file", json!({ "path": name }));
    let wanted: Vec<_> = images.iter().map(|(name, ..)| read(name)).collect();
    let server = ModelServer::start(vec![calls(&wanted), says("done")]);
    let machine = Machine::with(&server);
    for (name, bytes, _) in &images {
        machine.write(name, bytes);
    }
    let ended = machine.posse(&["run", "look at them"]);
    ended.assert_code(0);
    machine.verify();
    let results = server.tool_results();
    for ((name, _, expected), result) in images.iter().zip(&results) {
        assert!(result.contains(expected), "{name}: {result}");
    }
    let sent = server.requests()[1].to_string();
    assert!(!sent.contains("GPSLatitude"));
    let count = sent.matches("data:image/").count();
    assert_eq!(count, 5, "those that could be shown");
}

#[test]
fn an_image_that_cannot_be_sent_is_a_usage_error() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    for (name, bytes, said) in images() {
        let code = match (name, said) {
            ("empty.png", _) => "IMG004",
            ("script.svg", _) => "IMG003",
            (_, said) if said.starts_with("IMG") => said,
            _ => continue,
        };
        machine.write(name, bytes);
        let ended = machine.posse(&["run", "--image", name, "look"]);
        ended.assert_code(2);
        let begin = format!("error[{code}]: ");
        assert!(ended.stderr.contains(&begin), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("fix: "), "{name}: {}", ended.stderr);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn dropped_file_is_attached_with_a_notice() {
    let server = ModelServer::start_and_repeat(vec![says("seen")]);
    let machine = Machine::with(&server);
    machine.write("sub/a b.png", picture(40, 30, ImageFormat::Png));
    let sub = machine.work("sub").display().to_string();
    for name in ["a b.png", "'a b.png'", r"a\ b.png", &format!("file://{sub}/a%20b.png")] {
        // Relative to `--cwd`, not to the folder in which posse was started.
        let ended = machine.posse(&["run", "--cwd", "sub", "--image", name, "look"]);
        ended.assert_code(0);
        assert!(ended.stderr.contains("a b.png (PNG, 40x30)"), "{name}: {}", ended.stderr);
    }
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn model_without_image_input_is_sent_no_image() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "dot.png"}))]),
        says("I cannot see it"),
    ]);
    let models = json!({"models": {
        "scripted-1": {"vision": false},
        "local/seer": {"vision": true},
    }});
    let machine = Machine::configured(&server, &models, &json!({}));
    machine.write("dot.png", picture(1, 1, ImageFormat::Png));
    let ended = machine.posse(&["run", "--image", "dot.png", "look"]);
    ended.assert_code(2);
    insta::assert_snapshot!(ended.stderr, @r#"
    error[IMG007]: scripted-1 does not accept images; nothing was sent
      where: --image
      why: scripted-1 takes no images; seer of local does
      fix: pass --model with one that does; or, if scripted-1 does, set models."scripted-1".vision to true
    "#);
    assert_eq!(server.requests().len(), 0);
    // An image in a tool result is replaced: the model could not know.
    machine.posse(&["run", "look at dot.png"]).assert_code(0);
    let results = server.tool_results();
    assert!(results[0].contains("[image left out: this model takes no images]"), "{results:?}");
    assert!(!server.requests()[1].to_string().contains("data:image/"));
    machine.verify();
}

#[test]
fn image_message_is_refused_before_sending_if_unsupported() {
    let server = ModelServer::start(Vec::new());
    let profile = json!({"quirks": {"noVision": true}});
    let machine = Machine::configured(&server, &json!({}), &profile);
    let url = "data:image/png;base64,iVBORw0KGgo=";
    let message = json!({"type": "message", "content": [
        {"type": "text", "text": "look"}, {"type": "image_url", "url": url},
    ]});
    let args = ["run", "--output-format", "stream-json", "--input-format", "stream-json"];
    let ended = machine.posse_with_input(&args, format!("{message}\n").as_bytes());
    ended.assert_code(2);
    assert!(ended.stderr.contains("error[IMG007]"), "{}", ended.stderr);
    assert_eq!(ended.events().last().unwrap()["exitCode"], 2);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn unknown_model_is_never_refused() {
    let server = ModelServer::start(vec![says("a dot")]);
    let machine = Machine::with(&server);
    machine.write("dot.png", picture(1, 1, ImageFormat::Png));
    machine
        .posse(&["run", "--image", "dot.png", "--model", "from-tomorrow", "look"])
        .assert_code(0);
    assert!(server.requests()[0].to_string().contains("data:image/"));
}

#[test]
fn the_oldest_of_too_many_images_are_left_out_with_a_warning() {
    let server = ModelServer::start(vec![says("two")]);
    let profile = json!({"quirks": {"maxImages": 2}});
    let machine = Machine::configured(&server, &json!({}), &profile);
    for (name, width) in [("1.png", 1), ("2.png", 2), ("3.png", 3)] {
        machine.write(name, picture(width, 1, ImageFormat::Png));
    }
    let (ended, events) =
        machine.stream(&["--image", "1.png", "--image", "2.png", "--image", "3.png", "how many?"]);
    ended.assert_code(0);
    let content = &server.requests()[0]["messages"][1]["content"];
    let kinds: Vec<&Value> = content.as_array().unwrap().iter().map(|part| &part["type"]).collect();
    assert_eq!(kinds, ["text", "text", "image_url", "image_url"]);
    assert!(text_of(content).contains("image left out"), "{content}");
    let warnings: Vec<_> = events.iter().filter(|event| event["type"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{events:?}");
    let said = warnings[0]["message"].as_str().unwrap();
    assert!(said.starts_with("the oldest 1 of 3 images are not sent"), "{said}");
    machine.verify();
}

/// A listed name can be read back for any file name.
#[test]
fn any_listed_name_can_be_read() {
    let names: [&[u8]; 7] = [
        b"line\nbreak.txt",
        b"not-utf8-\xff\xfe.txt",
        b"\"quoted\".txt",
        b"it's.txt",
        b"back\\slash.txt",
        b" spaces  inside ",
        b"esc\x1b[2J.txt",
    ];
    let machine = Machine::new();
    fs::create_dir_all(machine.work("odd")).unwrap();
    for name in names {
        fs::write(machine.work("odd").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let listed = |tool: &str, arguments: Value| {
        let server = ModelServer::start(vec![calls(&[(tool, arguments)]), says("done")]);
        let lister = Machine::with(&server);
        let cwd = machine.work("").display().to_string();
        lister.posse(&["run", "--cwd", &cwd, "list"]).assert_code(0);
        server.tool_results().remove(0)
    };
    let is_path = |line: &&str| !line.starts_with('[') && !line.is_empty();
    let globbed = listed("glob", json!({"pattern": "odd/*"}));
    let paths: Vec<&str> = globbed.lines().filter(is_path).collect();
    let inside = listed("list_dir", json!({"path": "odd"}));
    let sized = |line: &str| line.rsplit_once("  ").unwrap().0.to_owned();
    let joined: Vec<String> =
        inside.lines().filter(is_path).map(|line| format!("odd/{}", sized(line))).collect();
    assert_eq!((paths.len(), joined.len()), (names.len(), names.len()), "{globbed}\n{inside}");

    let paths = paths.into_iter().map(str::to_owned).chain(joined);
    let wanted: Vec<_> = paths.map(|path| ("read_file", json!({ "path": path }))).collect();
    let server = ModelServer::start(vec![calls(&wanted), says("done")]);
    let reader = Machine::with(&server);
    let cwd = machine.work("").display().to_string();
    reader.posse(&["run", "--cwd", &cwd, "read"]).assert_code(0);
    for ((_, arguments), result) in wanted.iter().zip(server.tool_results()) {
        assert!(
            result.starts_with("1\t") || result.contains("has not changed"),
            "{arguments}: {result}"
        );
    }
}

#[test]
fn a_secret_is_not_read_under_a_second_name() {
    let read = |path: &str| ("read_file", json!({ "path": path }));
    let wanted = [
        read("notes.txt"),
        read(".env"),
        ("grep", json!({"pattern": "hunter"})),
        ("grep", json!({"pattern": "hunter", "path": "notes.txt"})),
        ("edit_file", json!({"path": "notes.txt", "oldString": "hunter", "newString": "x"})),
        read("twin.txt"),
    ];
    let server = ModelServer::start(vec![calls(&wanted), says("done")]);
    let machine = Machine::with(&server);
    machine.write(".env", "KEY=hunter2\n");
    machine.write("open.txt", "nothing to hide\n");
    machine.write(".gitignore", ".env\n");
    fs::hard_link(machine.work(".env"), machine.work("notes.txt")).unwrap();
    fs::hard_link(machine.work("open.txt"), machine.work("twin.txt")).unwrap();
    machine.posse(&["run", "-y", "look"]).assert_code(0);
    let results = server.tool_results();
    for result in &results {
        assert!(!result.contains("hunter2"), "{result}");
    }
    assert!(results[0].contains("ARG003") && results[0].contains("secret"), "{}", results[0]);
    assert!(results[2].contains("[1 secret files not searched]"), "{}", results[2]);
    assert!(results[3].contains("ARG003"), "{}", results[3]);
    assert!(results[4].contains("ARG003"), "{}", results[4]);
    assert_eq!(machine.read(".env"), "KEY=hunter2\n");
    assert!(results[5].contains("nothing to hide"), "{}", results[5]);
}

#[test]
fn paths_below_an_added_folder_are_written_once() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("more")).unwrap();
    fs::write(machine.path("more/a.txt"), "needle\n").unwrap();
    let more = machine.path("more").canonicalize().unwrap().display().to_string();
    let wanted = [
        ("glob", json!({"pattern": "*.txt", "path": more})),
        ("grep", json!({"pattern": "needle", "path": more})),
    ];
    let server = ModelServer::start(vec![calls(&wanted), says("done")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "--add-dir", &more, "look"]).assert_code(0);
    let results = server.tool_results();
    assert_eq!(results[0].lines().next(), Some(&*format!("{more}/a.txt")));
    assert_eq!(results[1].lines().next(), Some(&*format!("{more}/a.txt:1:needle")));
}

#[test]
fn non_utf8_name_is_readable_and_unchanged() {
    let name = r#""bad-\xff.txt""#;
    let edit = json!({"path": name, "oldString": "one", "newString": "two"});
    let odd = json!({"path": r#""new\nname""#, "content": "x"});
    let wanted = [("edit_file", edit), ("write_file", odd)];
    let server = ModelServer::start(vec![calls(&wanted), says("done")]);
    let machine = Machine::with(&server);
    let file = machine.work("").join(OsStr::from_bytes(b"bad-\xff.txt"));
    fs::write(&file, "one\n").unwrap();
    let (ended, events) = machine.stream(&["change it"]);
    ended.assert_code(0);
    let results = server.tool_results();
    let expected = "ARG002 \"bad-\\xff.txt\": its name is not UTF-8; change it with bash";
    assert_eq!(results[0], expected);
    // An escaped name can only denote an existing file: none is created.
    assert!(results[1].starts_with("ARG002 "), "{}", results[1]);
    assert!(!events.iter().any(|event| event["type"] == "permission.requested"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
}
