//! One value changes and no other byte; what could not be read again is not written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

struct EditFixture {
    dir: TempDir,
    path: PathBuf,
}

impl EditFixture {
    fn new(text: &str) -> EditFixture {
        let desk = EditFixture::empty();
        fs::write(&desk.path, text).unwrap();
        fs::set_permissions(&desk.path, fs::Permissions::from_mode(0o600)).unwrap();
        desk
    }

    fn empty() -> EditFixture {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        EditFixture { dir, path }
    }

    fn set(&self, key: &str, value: &str) -> Result<String, Vec<Failure>> {
        edit(&self.path, key, Some(value)).map(|said| self.tidy(&said))
    }

    fn unset(&self, key: &str) -> Result<String, Vec<Failure>> {
        edit(&self.path, key, None).map(|said| self.tidy(&said))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }

    fn tidy(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "")
    }
}

#[test]
fn new_file_has_a_header_comment() {
    let desk = EditFixture::empty();
    let path = desk.dir.path().join("a/b/config.json");
    edit(&path, "sandbox.network", Some("deny")).unwrap();
    insta::assert_snapshot!(fs::read_to_string(&path).unwrap(), @r#"
    // The configuration of posse. Comments and trailing commas are allowed.
    // Every key: posse config schema. What counts, and why: posse config show --origin.
    {
      "sandbox": {
        "network": "deny"
      }
    }
    "#);
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn only_the_value_changes() {
    let before = "\u{feff}// top\r\n{\r\n\t\"maxTurns\" : 25, // why 25\r\n\t/* deep */ \"sandbox\": \
                  { \"mode\":\"off\" , },\r\n}\r\n// end";
    let desk = EditFixture::new(before);
    assert_eq!(desk.set("maxTurns", "7").unwrap(), "set maxTurns = 7 in /config.json (was 25)\n");
    assert_eq!(desk.text(), before.replace("25,", "7,") + "\n");
    desk.set("sandbox.mode", "\"read-only\"").unwrap();
    let expected = before.replace("25,", "7,").replace("\"off\"", "\"read-only\"") + "\n";
    assert_eq!(desk.text(), expected);
}

#[test]
fn added_key_is_removed_without_traces() {
    let before = "{\n  // turns\n  \"maxTurns\": 3\n}\n";
    let desk = EditFixture::new(before);
    desk.set("providers.mine.headers.X.Trace", "on").unwrap();
    desk.set("models.vendor/model-1.5.contextWindow", "8192").unwrap();
    insta::assert_snapshot!(desk.text(), @r#"
    {
      // turns
      "maxTurns": 3,
      "providers": {
        "mine": {
          "headers": {
            "X.Trace": "on"
          }
        }
      },
      "models": {
        "vendor/model-1.5": {
          "contextWindow": 8192
        }
      }
    }
    "#);
    desk.unset("models.vendor/model-1.5.contextWindow").unwrap();
    desk.unset("providers.mine.headers.X.Trace").unwrap();
    assert_eq!(desk.text(), before);
    assert_eq!(desk.unset("model").unwrap(), "model is not set in /config.json\n");
    assert_eq!(desk.text(), before);
}

#[test]
fn values_are_parsed_leniently() {
    let desk = EditFixture::empty();
    let table = [
        ("streaming.enabled", "off", "false"),
        ("maxTurns", "3", "3"),
        ("model", "gpt 5", "\"gpt 5\""),
        ("defaultAgent", "\"plan\"", "\"plan\""),
        ("timeout", "10m", "\"10m\""),
        ("sandbox.readSecrets", "[\"~/.x\"]", "[\"~/.x\"]"),
        ("providers.x.quirks.some", "{ \"a\": [1, null] }", "…"),
        ("providers.x.temperature", "0.5", "0.5"),
        ("providers.x.quirks.omitTemperature", "true", "true"),
        ("context.main.compactAtRatio", "0.5", "0.5"),
        ("context.main.maxContextTokens", "auto", "\"auto\""),
        ("context.subAgent.maxContextTokens", "9000", "9000"),
    ];
    for (key, given, shown) in table {
        let said = desk.set(key, given).unwrap();
        assert_eq!(said, format!("set {key} = {shown} in /config.json\n"));
    }
}

#[test]
fn unparsable_result_is_not_written() {
    let before = "{ \"maxTurns\": 3 }\n";
    let desk = EditFixture::new(before);
    let deep = "[".repeat(10_000);
    let table = [
        ("maxTurn", "3", "CFG002", Some("did you mean \"maxTurns\"?")),
        ("maxTurns", "0", "CFG003", None),
        ("maxTurns", "many", "CFG003", None),
        ("sandbox", "off", "CFG002", None),
        ("maxTurns.x", "1", "CFG002", None),
        ("", "1", "CFG002", None),
        ("..", "1", "CFG002", None),
        ("providers..model", "m", "CFG002", None),
        ("providers.a b.model", "m", "CFG003", None),
        ("sandbox.readSecrets", "[1]", "CFG003", None),
        ("providers.x.apiKeyEnv", "sk-12345678901234567890abcd", "CFG003", None),
        ("version", "2", "CFG012", None),
        ("providers.x.quirks.a", "{ \"a\": ", "CFG003", None),
        ("memory.x", "1", "CFG002", Some("remove it")),
        ("providers.x.quirks.a", &deep, "CFG003", None),
    ];
    for (key, value, code, fix) in table {
        let failures = desk.set(key, value).unwrap_err();
        assert_eq!(failures[0].code.as_str(), code, "{key}: {failures:?}");
        assert!(fix.is_none() || failures[0].fix.as_deref() == fix, "{failures:?}");
        assert!(!failures[0].to_string().contains("234567890"));
        assert_eq!(desk.text(), before, "{key}");
    }
    assert_eq!(fs::read_dir(desk.dir.path()).unwrap().count(), 1);
}

#[test]
fn invalid_file_is_not_changed() {
    let table = [
        ("{ \"a\" 1 }", "CFG001"),
        ("[]", "CFG001"),
        ("{ \"version\": 2, \"later\": true }", "CFG012"),
    ];
    for (text, code) in table {
        let desk = EditFixture::new(text);
        assert_eq!(desk.set("maxTurns", "3").unwrap_err()[0].code.as_str(), code, "{text}");
        assert_eq!(desk.unset("maxTurns").unwrap_err()[0].code.as_str(), code, "{text}");
        assert_eq!(desk.text(), text);
    }
    let desk = EditFixture::new("{ \"sandbox\": 3 }");
    let failures = desk.set("sandbox.mode", "off").unwrap_err();
    assert_eq!(
        failures[0].fix.as_deref(),
        Some("remove it first: posse config edit --unset sandbox")
    );
}

#[test]
fn one_error_can_be_fixed_while_others_remain() {
    let desk = EditFixture::new("{ \"modle\": 1, \"maxTurns\": 0 }");
    desk.unset("modle").unwrap();
    desk.set("maxTurns", "5").unwrap();
    assert_eq!(desk.text(), "{ \"maxTurns\": 5 }\n");
}

#[test]
fn secrets_are_not_shown() {
    let desk = EditFixture::empty();
    let said = desk.set("providers.x.apiKey", "sk-12345678901234567890abcd").unwrap();
    assert!(!said.contains("234567890"), "{said}");
    let said = desk.set("providers.x.apiKey", "sk-99999999901234567890efgh").unwrap();
    assert!(!said.contains("234567890") && said.contains("efgh"), "{said}");
    assert!(desk.text().contains("sk-99999999901234567890efgh"));
}

#[test]
fn user_link_is_followed_and_mode_kept() {
    let desk = EditFixture::empty();
    let real = desk.dir.path().join("dotfiles.json");
    fs::write(&real, "{}").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &desk.path).unwrap();
    desk.set("maxTurns", "3").unwrap();
    assert!(desk.path.is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("\"maxTurns\": 3"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn edit_result_is_explained() {
    let desk = EditFixture::empty();
    insta::assert_snapshot!(desk.tidy(&explain(&desk.path)));
}

#[test]
fn fix_for_a_list_is_a_command_that_works() {
    let desk = EditFixture::empty();
    for (given, example) in [
        ("example.org", r#"'["example.org"]'"#),
        ("a.org, b.org", r#"'["a.org","b.org"]'"#),
        ("[a.org]", r#"'["TEXT"]'"#),
    ] {
        let failures = desk.set("network.allowedDomains", given).unwrap_err();
        let fix = failures[0].fix.as_deref().unwrap();
        let command = format!("posse config edit network.allowedDomains {example}");
        assert_eq!(fix, format!("give a JSON list: {command}"), "{given}");
        desk.set("network.allowedDomains", example.trim_matches('\'')).unwrap();
    }
}
