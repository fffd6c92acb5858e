//! Logins against a vendor on loopback that keeps its tokens, and spends each once.

use posse_base::failure::ErrorCode;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use posse_actors::conversation::{CallId, Message};
use posse_actors::ports::{Provider, ToolSpec};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::connect;
use crate::encoder::Encoder;
use crate::openai_responses::encode::ResponsesDialect;
use crate::profile::{ProviderProfile, Settings};
use crate::testing::histories::any_history;
use crate::testing::replies::{joined, shown};
use crate::testing::strict::{self, assert_valid};
use crate::testing::{ReceivedRequest, Server, ServerStep, answer, ask, request, stream};

const REPLY: &str = include_str!("../openai_responses/fixtures/text.sse");
const HOUR: i64 = 3600;

/// A token of so many seconds.
fn token(kind: &str, nth: u32, seconds: i64) -> String {
    let claims = json!({
        "exp": Timestamp::now().as_second() + seconds, "jti": format!("{kind}-{nth}"),
        "https://api.openai.com/auth": {
            "chatgpt_account_id": "account-of-the-token", "chatgpt_account_is_fedramp": true},
    });
    format!("e30.{}.sig-{kind}-{nth}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// The vendor: valid tokens, and requests received.
#[derive(Debug, Default)]
struct Vendor {
    access: String,
    refresh: String,
    /// Lifetime of new tokens in seconds.
    seconds: i64,
    /// Refuses renewals with this reason.
    refuses: Option<(&'static str, String)>,
    /// Response instead of [`REPLY`].
    says: Option<Vec<ServerStep>>,
    /// Tokens are of no use, new ones neither.
    takes_nothing: bool,
    /// Answers that came of asking for new tokens.
    renewals: u32,
    /// Concurrent change of the file during a request.
    meanwhile: Option<(PathBuf, String)>,
}

type SharedVendor = Arc<Mutex<Vendor>>;

impl Vendor {
    fn answer(&mut self, seen: &ReceivedRequest) -> Vec<ServerStep> {
        if seen.head.starts_with("POST /oauth/token ") {
            return self.renew(&serde_json::from_str(&seen.body).unwrap());
        }
        let bearer = format!("authorization: Bearer {}\r\n", self.access);
        if seen.head.contains(&bearer) && !self.takes_nothing {
            return self.says.clone().unwrap_or_else(|| stream(REPLY));
        }
        answer("401 Unauthorized", "", r#"{"error":{"message":"token expired"}}"#)
    }

    fn renew(&mut self, asked: &Value) -> Vec<ServerStep> {
        self.renewals += 1;
        if let Some((path, text)) = self.meanwhile.take() {
            fs::write(path, text).unwrap();
        }
        if let Some((status, body)) = &self.refuses {
            return answer(status, "", body);
        }
        if asked["refresh_token"] != self.refresh.as_str() {
            let code = json!({"error": {"code": "refresh_token_reused"}});
            return answer("401 Unauthorized", "", &code.to_string());
        }
        assert_eq!(asked["grant_type"], "refresh_token");
        self.refresh = format!("refresh-of-the-vendor-{}", self.renewals);
        self.access = token("access", self.renewals, self.seconds);
        let tokens = json!({"access_token": self.access, "refresh_token": self.refresh,
            "id_token": token("id", self.renewals, HOUR)});
        answer("200 OK", "content-type: application/json\r\n", &tokens.to_string())
    }
}

/// A vendor, and a folder with a login for it.
struct LoginFixture {
    server: Server,
    vendor: SharedVendor,
    dir: TempDir,
}

impl LoginFixture {
    /// `seconds`: how long the token in the file lasts.
    async fn new(seconds: i64) -> LoginFixture {
        let access = token("access", 0, seconds);
        let vendor = Vendor {
            access: access.clone(),
            refresh: "refresh-of-the-user".to_owned(),
            seconds: HOUR,
            ..Vendor::default()
        };
        let vendor = Arc::new(Mutex::new(vendor));
        let shared = Arc::clone(&vendor);
        let server = Server::answering(move |seen| Some(shared.lock().unwrap().answer(seen))).await;
        let world = LoginFixture { server, vendor, dir: tempfile::tempdir().unwrap() };
        world.write(&login(&access, "refresh-of-the-user"));
        world
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("auth.json")
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
        fs::set_permissions(self.file(), Permissions::from_mode(0o600)).unwrap();
    }

    fn profile(&self) -> ProviderProfile {
        self.profile_in(self.dir.path().to_str().unwrap())
    }

    fn profile_in(&self, home: &str) -> ProviderProfile {
        let environment = |name: &str| match name {
            HOME_VARIABLE => Some(home.to_owned()),
            LOOPBACK_VARIABLE => Some(self.server.address.clone()),
            _ => None,
        };
        ProviderProfile::resolve("codex", Settings::default(), environment).unwrap()
    }

    fn provider(&self) -> Arc<dyn Provider> {
        connect(self.profile()).unwrap()
    }

    fn renewals(&self) -> u32 {
        self.vendor.lock().unwrap().renewals
    }

    async fn fails(&self) -> ProviderError {
        ask(&*self.provider(), request("hi")).await.0.unwrap_err()
    }
}

/// A file as written by the Codex program, with an unknown member.
fn login(access: &str, refresh: &str) -> String {
    json!({
        "OPENAI_API_KEY": null, "auth_mode": "chatgpt", "last_refresh": "2026-01-01T00:00:00Z",
        "tokens": {"access_token": access, "refresh_token": refresh, "id_token": "x.y.z",
            "account_id": "account-of-the-file", "later": [1]},
        "laterVersions": {"keep": "this"},
    })
    .to_string()
}

#[tokio::test]
async fn sends_what_its_server_expects() {
    let world = LoginFixture::new(HOUR).await;
    let tools = Arc::new([ToolSpec {
        name: "bash".to_owned(),
        description: "Runs.".to_owned(),
        parameters: json!({"type": "object"}),
        side_effect: posse_actors::ports::SideEffect::External,
        source: "builtin".to_owned(),
        annotations: posse_actors::ports::ToolAnnotations::default(),
    }]);
    let wanted = posse_actors::ports::Request {
        tools,
        stream: false,
        tokens_max: Some(9),
        temperature: Some(1.0),
        thinking: None,
        session: None,
        ..request("hi")
    };
    ask(&*world.provider(), wanted).await.0.unwrap();
    assert_eq!(world.renewals(), 0);
    let seen = world.server.seen().remove(0);
    assert!(seen.head.starts_with("POST /backend-api/codex/responses HTTP/1.1\r\n"));
    let installation = world.profile().login.unwrap().installation_id();
    for line in [
        "chatgpt-account-id: account-of-the-file",
        "x-openai-fedramp: true",
        "originator: posse",
        "user-agent: posse/",
        &format!("x-codex-installation-id: {installation}"),
    ] {
        assert!(seen.head.contains(line), "{line}\n{}", seen.head);
    }
    assert_valid(strict::codex, seen.body.as_bytes());
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(body["reasoning"], json!({"effort": "medium", "summary": "auto"}));
    assert_eq!((&body["model"], &body["store"]), (&json!("gpt-5.1-codex"), &json!(false)));
    // The Codex program's own number comes first.
    let own = "01234567-89ab-cdef-0123-456789abcdef";
    fs::write(world.dir.path().join("installation_id"), own).unwrap();
    fs::set_permissions(world.dir.path().join("installation_id"), Permissions::from_mode(0o600))
        .unwrap();
    assert_eq!(world.profile().login.unwrap().installation_id(), own);
}

#[tokio::test]
async fn eight_requests_at_once_renew_once() {
    let world = LoginFixture::new(-HOUR).await;
    let provider = world.provider();
    let asked = join_all((0..8).map(|_| ask(&*provider, request("hi")))).await;
    assert!(asked.iter().all(|(reply, _)| reply.is_ok()));
    assert_eq!(world.renewals(), 1);
    let text = fs::read_to_string(world.file()).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["tokens"]["refresh_token"], "refresh-of-the-vendor-1");
    assert_eq!(file["tokens"]["account_id"], "account-of-the-file");
    assert_eq!(
        (&file["laterVersions"]["keep"], &file["tokens"]["later"]),
        (&json!("this"), &json!([1]))
    );
    assert_ne!(file["last_refresh"], "2026-01-01T00:00:00Z");
    assert_eq!(fs::metadata(world.file()).unwrap().mode() & 0o777, 0o600);
    let left: Vec<_> = fs::read_dir(world.dir.path().join(".posse-login")).unwrap().collect();
    assert_eq!(left.len(), 1, "the lock and nothing else");
}

/// Two folders that are one are two logins to this process, as to two processes.
#[tokio::test]
async fn two_processes_sharing_the_file_renew_once() {
    let world = LoginFixture::new(-HOUR).await;
    let path = world.dir.path().to_str().unwrap();
    let name = world.dir.path().file_name().unwrap().to_str().unwrap();
    let profiles =
        [path.to_owned(), format!("{path}/../{name}")].map(|home| world.profile_in(&home));
    let logins = profiles.each_ref().map(|profile| profile.login.clone().unwrap());
    assert!(!Arc::ptr_eq(&logins[0], &logins[1]));
    let both = profiles.map(|profile| connect(profile).unwrap());
    let asked = join_all(both.iter().map(|provider| ask(&**provider, request("hi")))).await;
    assert!(asked.iter().all(|(reply, _)| reply.is_ok()));
    assert_eq!(world.renewals(), 1);
}

#[tokio::test]
async fn failed_early_renewal_does_not_fail_the_request() {
    let refused = || Some(("400 Bad Request", r#"{"error":"invalid_grant"}"#.to_owned()));
    // In a minute the token expires; the renewal is refused, or nothing can be written.
    for is_writable in [true, false] {
        let world = LoginFixture::new(60).await;
        world.vendor.lock().unwrap().refuses = refused();
        if !is_writable {
            fs::write(world.dir.path().join(".posse-login"), "not a folder").unwrap();
        }
        let provider = world.provider();
        for _ in 0..2 {
            ask(&*provider, request("hi")).await.0.unwrap();
        }
        assert_eq!(world.renewals(), u32::from(is_writable), "it is not repeated");
    }
    // An expired token is no replacement.
    let world = LoginFixture::new(-HOUR).await;
    world.vendor.lock().unwrap().refuses = refused();
    assert_eq!(world.fails().await.class(), "unauthorized");
}

#[tokio::test]
async fn rejected_token_is_renewed_once() {
    let world = LoginFixture::new(HOUR).await;
    let provider = world.provider();
    world.vendor.lock().unwrap().access = "another".to_owned();
    ask(&*provider, request("hi")).await.0.unwrap();
    assert_eq!((world.renewals(), world.server.seen().len()), (1, 3));
    // It does not take the new one either: nothing goes round in circles.
    let server = Server::answering(|seen| {
        Some(if seen.head.starts_with("POST /oauth") {
            let tokens = json!({"access_token": token("access", 9, HOUR)});
            answer("200 OK", "", &tokens.to_string())
        } else {
            answer("401 Unauthorized", "", r#"{"detail":"no"}"#)
        })
    })
    .await;
    let stubborn = LoginFixture { server, ..LoginFixture::new(HOUR).await };
    assert_eq!(stubborn.fails().await.class(), "unauthorized");
    assert_eq!(stubborn.server.seen().len(), 3);
}

#[tokio::test]
async fn token_renewed_by_another_process_is_used() {
    let world = LoginFixture::new(HOUR).await;
    let provider = world.provider();
    ask(&*provider, request("hi")).await.0.unwrap();
    let fresh = token("access", 50, HOUR);
    world.vendor.lock().unwrap().access.clone_from(&fresh);
    world.write(&login(&fresh, "refresh-of-another"));
    ask(&*provider, request("hi")).await.0.unwrap();
    assert_eq!(world.renewals(), 0);

    // A program without the lock is faster: the old token is spent, the new one is in the file.
    let theirs = token("access", 60, HOUR);
    {
        let mut vendor = world.vendor.lock().unwrap();
        vendor.access.clone_from(&theirs);
        vendor.refresh = "refresh-of-theirs".to_owned();
        vendor.meanwhile = Some((world.file(), login(&theirs, "refresh-of-theirs")));
    }
    ask(&*provider, request("hi")).await.0.unwrap();
    assert_eq!(world.renewals(), 1);
    let file = fs::read_to_string(world.file()).unwrap();
    assert!(file.contains("refresh-of-theirs"), "what is in the file stays");
}

#[tokio::test]
async fn clock_skew_does_not_renew_per_request() {
    let world = LoginFixture::new(-HOUR).await;
    world.vendor.lock().unwrap().seconds = -HOUR;
    let provider = world.provider();
    for _ in 0..3 {
        ask(&*provider, request("hi")).await.0.unwrap();
    }
    assert_eq!(world.renewals(), 1);
}

#[tokio::test]
async fn token_without_expiry_is_used_until_refused() {
    for odd in ["opaque", "a.b.c", "e30..", "e30.e30.e30"] {
        let world = LoginFixture::new(HOUR).await;
        world.vendor.lock().unwrap().access = odd.to_owned();
        world.write(&login(odd, "refresh-of-the-user"));
        ask(&*world.provider(), request("hi")).await.0.unwrap();
        assert_eq!(world.renewals(), 0, "{odd}");
    }
}

#[tokio::test]
async fn login_error_is_reported_after_one_request() {
    let code = |code: &str| json!({"error": {"code": code, "message": "m"}}).to_string();
    let table = [
        ("401 Unauthorized", code("refresh_token_expired"), "unauthorized", "has expired"),
        ("401 Unauthorized", code("refresh_token_reused"), "unauthorized", "renewed elsewhere"),
        ("401 Unauthorized", code("refresh_token_invalidated"), "unauthorized", "was revoked"),
        (
            "400 Bad Request",
            r#"{"error":"invalid_grant"}"#.to_owned(),
            "unauthorized",
            "was revoked",
        ),
        ("400 Bad Request", code("odd\u{1b}[2J"), "unauthorized", "(answered 400: odd2J)"),
        ("429 Too Many", code("rate_limit"), "rate_limited", "429"),
        ("503 Unavailable", code("x"), "overloaded", "503"),
        ("200 OK", "{}".to_owned(), "broken_reply", "no new token"),
        ("200 OK", "<html>log in to the network".to_owned(), "not_the_provider", "HTML"),
    ];
    for (status, body, class, words) in table {
        let world = LoginFixture::new(-HOUR).await;
        world.vendor.lock().unwrap().refuses = Some((status, body));
        let before = fs::read_to_string(world.file()).unwrap();
        let provider = world.provider();
        let error = ask(&*provider, request("hi")).await.0.unwrap_err();
        assert_eq!(error.class(), class, "{status} {}", error.chain());
        assert!(error.chain().contains(words), "{words}: {}", error.chain());
        assert!(!error.chain().contains("refresh-of-the-user"), "{}", error.chain());
        ask(&*provider, request("hi")).await.0.unwrap_err();
        if class == "unauthorized" {
            assert!(error.chain().contains("`codex login`"), "{}", error.chain());
            assert_eq!(world.renewals(), 1, "what is spent is not sent again");
            // The user logs in again and continues.
            let access = token("access", 70, HOUR);
            {
                let mut vendor = world.vendor.lock().unwrap();
                vendor.refuses = None;
                vendor.access.clone_from(&access);
            }
            world.write(&login(&access, "refresh-of-the-new-login"));
            ask(&*provider, request("hi")).await.0.unwrap();
        } else {
            assert_eq!(fs::read_to_string(world.file()).unwrap(), before);
        }
    }
}

#[tokio::test]
async fn valid_token_is_used_while_renewal_fails() {
    for (seconds, class) in [(100, None), (-HOUR, Some("unreachable"))] {
        let world = LoginFixture::new(seconds).await;
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", gone.local_addr().unwrap());
        drop(gone);
        let mut profile = world.profile();
        let login = Login {
            store: Store::new(world.dir.path().to_owned()),
            base_url: profile.base_url.clone(),
            issuer: Issuer::new(&address).unwrap(),
            state: Arc::default(),
            secrets: Mutex::default(),
        };
        profile.login = Some(Arc::new(login));
        let reply = ask(&*connect(profile).unwrap(), request("hi")).await.0;
        assert_eq!(reply.err().map(|error| error.class()), class);
    }
}

/// The caller may be dropped: the new token is kept.
#[tokio::test]
async fn renewal_continues_after_its_request_is_cancelled() {
    let world = LoginFixture::new(-HOUR).await;
    let login = world.profile().login.unwrap();
    {
        let asking = login.access(None);
        let mut asking = std::pin::pin!(asking);
        while world.renewals() == 0 {
            tokio::select! {
                _ = &mut asking => break,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
    }
    login.access(None).await.unwrap();
    assert_eq!(world.renewals(), 1);
    assert!(fs::read_to_string(world.file()).unwrap().contains("refresh-of-the-vendor-1"));
}

#[tokio::test]
async fn login_file_writable_by_others_is_refused() {
    type Spoil = fn(&LoginFixture);
    let table: [(&str, Spoil); 9] = [
        ("is a link", |world| {
            let aside = world.dir.path().join("aside");
            fs::rename(world.file(), &aside).unwrap();
            symlink(aside, world.file()).unwrap();
        }),
        ("mode 0666", |world| {
            fs::set_permissions(world.file(), Permissions::from_mode(0o666)).unwrap();
        }),
        ("mode 0640", |world| {
            fs::set_permissions(world.file(), Permissions::from_mode(0o640)).unwrap();
        }),
        ("larger than 1 MB", |world| world.write(&" ".repeat((1 << 20) + 1))),
        ("is not a file", |world| {
            fs::remove_file(world.file()).unwrap();
            fs::create_dir(world.file()).unwrap();
        }),
        ("is not a login", |world| world.write("\0\u{fffd}{{")),
        ("has no token", |world| world.write(r#"{"tokens":{"access_token":" "}}"#)),
        ("has an API key", |world| world.write(r#"{"OPENAI_API_KEY":"sk-of-the-user"}"#)),
        ("there is no ", |world| fs::remove_file(world.file()).unwrap()),
    ];
    for (words, spoil) in table {
        let world = LoginFixture::new(HOUR).await;
        spoil(&world);
        let error = world.fails().await;
        assert_eq!(error.class(), "unauthorized", "{words}");
        assert!(error.chain().contains(words), "{words}: {}", error.chain());
        assert!(!error.chain().contains("sk-of-the-user"), "{}", error.chain());
        assert_eq!(world.server.seen().len(), 0, "{words}");
        let failure = world.profile().login.unwrap().check().unwrap_err();
        assert_eq!(failure.code, ErrorCode::LoginMissing);
    }
    // That of another user, if we may make one.
    let world = LoginFixture::new(HOUR).await;
    if std::os::unix::fs::chown(world.file(), Some(12345), None).is_ok() {
        let chain = world.fails().await.chain();
        assert!(chain.contains("belongs to another user (12345)"), "{chain}");
    }
}

#[tokio::test]
async fn tokens_are_in_no_error_and_no_debug_text() {
    let world = LoginFixture::new(HOUR).await;
    let access = world.vendor.lock().unwrap().access.clone();
    let echo = format!(r#"{{"error":{{"message":"bad {access} of refresh-of-the-user"}}}}"#);
    let server = Server::answering(move |_| Some(answer("400 Bad Request", "", &echo))).await;
    let world = LoginFixture { server, ..world };
    let error = world.fails().await;
    assert!(error.chain().contains("bad [secret] of [secret]"), "{}", error.chain());
    let shown = format!("{error:?} {:?} {:?}", world.profile(), world.provider().account());
    assert!(!shown.contains("sig-access") && !shown.contains("refresh-of"), "{shown}");
}

#[test]
fn configuration_cannot_redirect_a_login() {
    let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
    for own in [
        json!({"baseURL": "https://evil.example/v1"}),
        json!({"baseURL": "http://127.0.0.1:9/v1"}),
        json!({"apiKey": "sk-1"}),
        json!({"apiKeyEnv": "OPENAI_API_KEY"}),
        json!({"auth": "bearer"}),
    ] {
        let settings: Settings = serde_json::from_value(own.clone()).unwrap();
        let failure = ProviderProfile::resolve("codex", settings, home).unwrap_err();
        assert_eq!(failure.code, ErrorCode::LoginSettingsInvalid, "{own}");
    }
    let profile = ProviderProfile::resolve("codex", Settings::default(), home).unwrap();
    assert_eq!(profile.base_url, BASE_URL);
    let by_type: Settings = serde_json::from_value(json!({"type": "codex"})).unwrap();
    let other = ProviderProfile::resolve("mine", by_type, home).unwrap();
    assert!(Arc::ptr_eq(&profile.login.unwrap(), &other.login.unwrap()), "one login for both");
    for address in ["https://evil.example", "http://127.0.0.1.evil.example", "http://10.0.0.1", "x"]
    {
        let given = |name: &str| match name {
            LOOPBACK_VARIABLE => Some(address.to_owned()),
            name => home(name),
        };
        assert_eq!(
            Login::of("codex", given).unwrap_err().code,
            ErrorCode::LoginSettingsInvalid,
            "{address}"
        );
    }
    assert_eq!(Login::of("codex", |_| None).unwrap_err().code, ErrorCode::LoginSettingsInvalid);
}

proptest! {
    #[test]
    fn every_history_is_accepted_by_its_server(
        history in any_history([crate::openai_responses::PROTOCOL, "codex", "gpt-5.1-codex"]),
    ) {
        let home = |name: &str| (name == "HOME").then(|| "/nowhere".to_owned());
        let profile = ProviderProfile::resolve("codex", Settings::default(), home).unwrap();
        let encoder = Encoder::<ResponsesDialect>::new(profile);
        let wanted = posse_actors::ports::Request {
            messages: history, stream: true, ..request("")
        };
        let body = encoder.encode(&wanted, true).unwrap();
        assert_valid(strict::codex, &body.bytes);
    }
}

/// Events that only this server sends, and the parts that are sent back.
#[tokio::test]
async fn decodes_recorded_replies() {
    let calls = stream(include_str!("fixtures/thinking_and_calls.sse"));
    let limit = include_str!("fixtures/usage_limit.json");
    let limit = answer("429 Too Many Requests", "content-type: application/json\r\n", limit);
    let world = LoginFixture::new(HOUR).await;
    let provider = world.provider();
    let mut all = String::new();
    for (name, says) in [("thinking and calls", calls.clone()), ("usage limit", limit)] {
        world.vendor.lock().unwrap().says = Some(says);
        let (reply, deltas) = ask(&*provider, request("hi")).await;
        // Where it is differs from run to run.
        let shown = shown(&reply).replace(&world.server.address, "http://codex");
        writeln!(all, "== {name}\n{}\n{shown}", joined(&deltas)).unwrap();
    }
    insta::assert_snapshot!(all);
    world.vendor.lock().unwrap().says = Some(calls);
    let mut wanted = request("hi");
    let mut message = ask(&*provider, wanted.clone()).await.0.unwrap().message;
    for (nth, call) in message.tool_calls.iter_mut().enumerate() {
        call.id = CallId::new(format!("c{nth}"));
    }
    wanted.messages.push(Arc::new(Message::Assistant(message)));
    ask(&*provider, wanted).await.0.unwrap();
    let body = world.server.seen().last().unwrap().body.clone();
    assert_valid(strict::codex, body.as_bytes());
    assert!(body.contains("gAAAAABpY29kZXgtc2Vzc2lvbg=="), "{body}");
    assert!(body.contains("\"c0\"") && body.contains("\"c1\""), "{body}");
}

/// A rejected new token is an error, and its age does not matter.
#[tokio::test]
async fn refusal_with_a_new_token_is_reported_and_not_retried() {
    let world = LoginFixture::new(HOUR).await;
    // It rejects even its own tokens.
    world.vendor.lock().unwrap().takes_nothing = true;
    let provider = world.provider();
    let (reply, _) = ask(&*provider, request("hello")).await;
    assert_eq!(reply.unwrap_err().class(), "unauthorized");
    let asked =
        |path: &str| world.server.seen().iter().filter(|seen| seen.head.starts_with(path)).count();
    let models = "POST /backend-api/codex/responses ";
    assert_eq!((asked(models), asked("POST /oauth/token ")), (2, 1));
    // No request in between, and a second request does not loop either.
    assert_eq!(ask(&*provider, request("hello")).await.0.unwrap_err().class(), "unauthorized");
    assert_eq!((asked(models), asked("POST /oauth/token ")), (4, 2));
}

#[cfg(feature = "keyring")]
#[tokio::test]
async fn a_login_in_the_keyring_is_used_renewed_and_put_back() {
    let world = LoginFixture::new(HOUR).await;
    let text = fs::read_to_string(world.file()).unwrap();
    keyring::write(world.dir.path(), &text).unwrap();
    fs::remove_file(world.file()).unwrap();
    let provider = world.provider();
    assert!(ask(&*provider, request("hello")).await.0.is_ok());
    assert_eq!(world.renewals(), 0);
    // The vendor forgets the token: it is renewed, and the successor is in the keyring.
    world.vendor.lock().unwrap().access = "another".to_owned();
    assert!(ask(&*provider, request("hello")).await.0.is_ok());
    assert_eq!(world.renewals(), 1);
    let kept = keyring::read(world.dir.path()).unwrap().unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["tokens"]["refresh_token"], "refresh-of-the-vendor-1");
    assert!(!world.file().exists(), "nothing secret is written where nothing was");
    assert!(!world.dir.path().join(".posse-login/auth.json").exists());
    // A file comes first: the Codex program keeps only one of the two.
    world.write(&login(&token("access", 9, HOUR), "refresh-of-the-file"));
    assert_eq!(
        Store::new(world.dir.path().to_owned()).read().unwrap().refresh().unwrap().expose_secret(),
        "refresh-of-the-file"
    );
}
