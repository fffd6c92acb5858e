//! Contexts that become too large, over a real connection and with real files.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, order, says, status};
use crate::posse::{Machine, RunningPosse};

/// A context that is too small for four outputs of these files.
fn small() -> Value {
    json!({"context": {"main": {
        "maxContextTokens": 10_000, "recentTurns": 2, "minRecentTurns": 1,
        "summaryTargetTokens": 800,
    }}})
}

/// Content of a file: a fact, and much other text.
fn secret_of(nth: usize) -> String {
    format!("the number of file {nth} is {}", nth * 7919 + 13)
}

/// 4,400 bytes that do not repeat themselves without end.
fn long_talk() -> String {
    let words = |nth: u32| format!("so {nth:03} goes ");
    (0..400).map(words).collect()
}

fn put_files(machine: &Machine, count: usize) {
    for nth in 0..count {
        let filler = "a line that nobody needs\n".repeat(150);
        machine.write(&format!("f{nth}.txt"), format!("{filler}{}\n{filler}", secret_of(nth)));
    }
}

/// Id of the call that read a file, as the context mentions it.
fn id_of(context: &str, file: &str) -> Option<String> {
    let masked = context.split("returned are not shown any more: read_file output:");
    let mut before = "";
    for piece in masked {
        if before.ends_with(&format!("read_file {file} ")) {
            return piece.split(']').next().map(str::to_owned);
        }
        before = piece;
    }
    let listed =
        context.split("Call ").find(|piece| piece.contains(&format!(": read_file {file}")));
    listed?.split(':').next().map(str::to_owned)
}

#[test]
fn removed_output_is_read_again_by_its_id() {
    let read = |nth: usize| calls(&[("read_file", json!({"path": format!("f{nth}.txt")}))]);
    let mut answers: Vec<ModelAnswer> = (0..12).map(read).collect();
    answers.push(says("Read them."));
    answers.extend((0..4).map(|_| ModelAnswer::Obey));
    let server = ModelServer::start(answers);
    let machine = Machine::configured(&server, &small(), &json!({}));
    put_files(&machine, 12);
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut send = |instruction: Value| writeln!(stdin, "{instruction}").unwrap();

    send(json!({"type": "message", "content": "Read them all. Never write a file."}));
    let compacted = running.wait_for("context.compacted");
    assert_eq!(compacted["cause"], "threshold");
    let tokens = |key: &str| compacted[key].as_u64().unwrap();
    assert!(tokens("tokensBefore") > 7000 && tokens("tokensAfter") < 7000, "{compacted}");
    running.wait_for("agent.invocation.completed");
    send(json!({"type": "context"}));
    let used = running.wait_for("context.used");
    let part = |key: &str| used[key].as_u64().unwrap();
    assert_eq!((part("tokensMax"), part("compactsAt")), (10_000, 7000));
    assert!(part("total") <= 7000 && part("tools") > 500 && part("toolResults") > 0, "{used}");
    assert_eq!(used.get("record"), None, "it is no record");

    let context = server.requests().last().unwrap()["messages"].to_string();
    assert!(context.contains("Never write a file."), "{context}");
    assert!(!context.contains(&secret_of(0)), "{context}");
    let id = id_of(&context, "f0.txt").unwrap_or_else(|| panic!("no id: {context}"));
    let again = |path: String| order("read_file", &json!({ "path": path }));
    send(json!({"type": "message", "content": again(format!("output:{id}"))}));
    running.wait_for("agent.invocation.completed");
    let shown = server.tool_results().pop().unwrap();
    assert!(shown.contains(&secret_of(0)), "{shown}");
    send(json!({"type": "compact", "keep": "numbers of files"}));
    assert_eq!(running.wait_for("context.compacted")["cause"], "request");
    send(json!({"type": "message", "content": again("output:history".to_owned())}));
    running.wait_for("agent.invocation.completed");
    let shown = server.tool_results().pop().unwrap();
    assert!(shown.contains("USER: Read them all. Never write a file."), "{shown}");
    drop(stdin);
    running.end().assert_code(0);
    machine.verify();
}

/// Ids of the sessions, the most recently used first.
fn sessions(machine: &Machine) -> Vec<String> {
    let listed = machine.posse(&["sessions", "list", "--json"]);
    let rows: Value = serde_json::from_str(&listed.stdout).unwrap();
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn fork_reads_outputs_of_its_origin() {
    let read = |nth: usize| calls(&[("read_file", json!({"path": format!("f{nth}.txt")}))]);
    let mut answers: Vec<ModelAnswer> = (0..12).map(read).collect();
    answers.extend([says("Read them."), ModelAnswer::Obey]);
    let server = ModelServer::start_and_repeat(answers);
    let machine = Machine::configured(&server, &small(), &json!({}));
    put_files(&machine, 12);
    machine.posse(&["run", "Read them all."]).assert_code(0);
    let trunk = sessions(&machine).remove(0);
    let context = server.requests().last().unwrap()["messages"].to_string();
    let id = |nth: usize| {
        let id = id_of(&context, &format!("f{nth}.txt"));
        id.unwrap_or_else(|| panic!("no id: {context}"))
    };
    let ask = |session: &str, fork: bool, name: &str| {
        let order = order("read_file", &json!({ "path": format!("output:{name}") }));
        let mut args = vec!["resume", session];
        args.extend(fork.then_some("--fork"));
        let ended = machine.posse(&[args, vec![order.as_str()]].concat());
        ended.assert_code(0);
        (sessions(&machine).remove(0), server.tool_results().pop().unwrap())
    };
    let journal = |id: &str| machine.posse(&["sessions", "show", id, "--json"]).stdout;
    let before = journal(&trunk);
    let (branch, shown) = ask(&trunk, true, &id(0));
    assert!(branch != trunk && shown.contains(&secret_of(0)), "{shown}");
    // The whole history, not the compacted one.
    let (same, shown) = ask(&branch, false, "history");
    assert_eq!(same, branch);
    assert!(shown.contains("USER: Read them all.") && shown.contains(&secret_of(0)), "{shown}");
    let (_, shown) = ask(&branch, false, &format!("history-of-{trunk}-before-4"));
    assert!(shown.contains("USER: Read them all.") && !shown.contains(&secret_of(0)), "{shown}");
    // A fork of the fork.
    let (twig, shown) = ask(&branch, true, &id(1));
    assert!(twig != branch && shown.contains(&secret_of(1)), "{shown}");
    let (_, shown) = ask(&twig, false, "history-of-elsewhere-before-9");
    assert!(shown.contains("did not branch off from session elsewhere"), "{shown}");
    assert_eq!(journal(&trunk), before, "it was only read");
    machine.posse(&["sessions", "rm", &trunk, "--yes"]).assert_code(0);
    let (_, shown) = ask(&twig, false, &id(2));
    assert!(shown.contains(&format!("it is in session {trunk}")), "{shown}");
    assert!(shown.contains("that is gone"), "{shown}");
    machine.verify();
}

#[test]
fn refused_size_is_compacted_once_then_ends_with_an_error() {
    let full = || {
        let body = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
        status("400 Bad Request", &["content-type: application/json"], body)
    };
    let read = |nth: usize| calls(&[("read_file", json!({"path": format!("f{nth}.txt")}))]);
    let mut answers: Vec<ModelAnswer> = (0..3).map(read).collect();
    answers.extend([full(), full()]);
    let server = ModelServer::start(answers);
    let machine = Machine::with(&server);
    put_files(&machine, 3);
    let ended = machine.posse(&["run", "read them"]);
    ended.assert_code(1);
    assert!(ended.stderr.contains("PRV006"), "{}", ended.stderr);
    assert!(ended.stderr.contains("made smaller once"), "{}", ended.stderr);
    let requests = server.requests();
    assert_eq!(requests.len(), 5);
    let size = |nth: usize| requests[nth]["messages"].to_string().len();
    assert!(size(4) < size(3), "{} {}", size(3), size(4));
    machine.verify();
}

/// A server that accepts requests up to a size, not counting tools.
fn takes_little(request: &Value) -> ModelAnswer {
    if request["messages"].to_string().len() < 20_000 {
        return says("fine");
    }
    let body = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    status("400 Bad Request", &["content-type: application/json"], body)
}

#[test]
fn conversation_continues_after_a_too_large_prompt() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(takes_little)]);
    let machine = Machine::with(&server);
    let log = format!("What is wrong here? {}", "a line of a log ".repeat(4000));
    let lines = format!("hi\n{log}\nand now?\nand then?\n{log}\n/compact\n");
    let ended = machine.posse_with_input(&["plain"], lines.as_bytes());
    assert_eq!(ended.stdout, "fine\nfine\nfine\n", "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("PRV006").count(), 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("1 unanswered prompt removed"), "{}", ended.stderr);
    // The last prompt was refused when the process ended: a new prompt continues, and so does a
    // fork.
    for args in [&["-c", "--fork", "a branch"][..], &["-c", "still there?"]] {
        let again = machine.posse(args);
        again.assert_code(0);
        assert_eq!(again.stdout, "fine\n", "{args:?}: {}", again.stderr);
        let asked = server.requests().last().unwrap()["messages"].to_string();
        assert!(asked.contains("They begin: What is wrong here?"), "{asked}");
        assert!(asked.contains("read_file output:history"), "{asked}");
    }
    machine.verify();
}

#[test]
fn summary_role_writes_the_summary() {
    let chatter = |nth: usize| says(&format!("{nth} {}", long_talk()));
    let server = ModelServer::start((0..6).map(chatter).collect());
    let helper = ModelServer::start_and_repeat(vec![says("Goal: a red door")]);
    let mut settings = small();
    settings["roles"] = json!({"compact": {"profile": "helper"}});
    let provider = |url: String, model: &str| json!({"type": "openai-compatible", "baseURL": url, "model": model, "auth": "none"});
    settings["providers"] = json!({
        "helper": provider(helper.base_url(), "small-1"),
        "local": provider(server.base_url(), "scripted-1"),
    });
    settings["context"]["main"]["maxContextTokens"] = json!(7000);
    let machine = Machine::configured(&server, &settings, &json!({}));
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    for nth in 0..6 {
        let message = json!({"type": "message", "content": format!("prompt {nth}")});
        writeln!(stdin, "{message}").unwrap();
        running.wait_for("agent.invocation.completed");
    }
    drop(stdin);
    running.end().assert_code(0);
    let last = server.requests().last().unwrap()["messages"].to_string();
    assert!(last.contains("Summary: Goal: a red door"), "{last}");
    let asked = helper.requests().first().unwrap()["messages"].to_string();
    assert!(asked.contains("USER: prompt 0"), "{asked}");
    machine.verify();
}

/// Number of files that the model below requests again.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// A model that reads the next file again, by the id in its context, and knows nothing else.
fn wants_by_id(request: &Value) -> ModelAnswer {
    let nth = ASKED.fetch_add(1, Ordering::SeqCst);
    let context: Vec<String> =
        request["messages"].as_array().unwrap().iter().map(Value::to_string).collect();
    let context = context.join("\n");
    match id_of(&context, &format!("f{nth}.txt")) {
        Some(id) => calls(&[("read_file", json!({"path": format!("output:{id}")}))]),
        None => says(&format!("no id of f{nth}.txt")),
    }
}

/// Facts in tool output, rules in user messages: after five compactions the context contains every
/// rule, and every fact is reachable by its id.
#[test]
fn facts_are_readable_by_id_after_five_compactions() {
    const FILES: usize = 20;
    let rules = [
        "Always answer in French.",
        "Never touch Cargo.lock.",
        "From now on every commit is signed.",
        "You must run the tests before you say that it works.",
        "Don't use unwrap in library code.",
    ];
    let mut answers = Vec::new();
    for prompt in 0..rules.len() {
        let files = (0..FILES / rules.len()).map(|nth| prompt * FILES / rules.len() + nth);
        answers.extend(
            files.map(|nth| calls(&[("read_file", json!({"path": format!("f{nth}.txt")}))])),
        );
        answers.push(says("Read."));
    }
    answers.extend((0..FILES).map(|_| ModelAnswer::By(wants_by_id)));
    answers.push(says("Now I know."));
    let server = ModelServer::start(answers);
    let mut settings = small();
    settings["context"]["main"]["summaryTargetTokens"] = json!(1500);
    settings["maxTurns"] = json!(100);
    let machine = Machine::configured(&server, &settings, &json!({}));
    put_files(&machine, FILES);
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    for rule in rules.iter().chain([&"Tell me the numbers."]) {
        writeln!(stdin, "{}", json!({"type": "message", "content": rule})).unwrap();
        running.wait_for("agent.invocation.completed");
    }
    drop(stdin);
    running.end().assert_code(0);
    let requests = server.requests();
    assert_eq!(requests.len(), FILES + rules.len() + FILES + 1);
    let lengths: Vec<usize> =
        requests.iter().map(|request| request["messages"].to_string().len()).collect();
    let smaller = lengths.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(smaller >= 5, "{lengths:?}");
    let last = requests.last().unwrap()["messages"].to_string();
    for rule in rules {
        assert!(last.contains(rule), "{rule}: {last}");
    }
    // Result of the request for each fact by its id.
    for nth in 0..FILES {
        let request = &requests[FILES + rules.len() + nth + 1];
        let shown = request["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
        assert!(shown.contains(&secret_of(nth)), "{nth}: {shown}");
    }
    machine.verify();
}

#[test]
fn background_command_is_known_after_its_turn_is_compacted() {
    let chatter = |nth: usize| says(&format!("{nth} {}", long_talk()));
    let start = calls(&[("bash", json!({"command": "sleep 600", "background": true}))]);
    let answers = [start].into_iter().chain((0..8).map(chatter)).collect();
    let server = ModelServer::start(answers);
    let machine = Machine::configured(&server, &small(), &json!({}));
    let formats = ["run", "-y", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    for nth in 0..8 {
        let message = json!({"type": "message", "content": format!("prompt {nth}")});
        writeln!(stdin, "{message}").unwrap();
        running.wait_for("agent.invocation.completed");
    }
    drop(stdin);
    running.end().assert_code(0);
    let last = server.requests().last().unwrap()["messages"].to_string();
    assert!(last.contains("Earlier parts of this conversation"), "{last}");
    assert!(!last.contains("tool_calls"), "the call itself is gone: {last}");
    let line = last.split("Runs at the same time: background job ").nth(1);
    let line = line.unwrap_or_else(|| panic!("no job: {last}"));
    assert!(line.contains("(run sleep 600 in the background) runs; job_output"), "{line}");
}

#[test]
fn title_role_names_the_session_in_lists() {
    let server = ModelServer::start(vec![says("Done.")]);
    let namer = ModelServer::start(vec![says("Mend\u{1b}[31m the login")]);
    let provider = |url: String, model: &str| json!({"type": "openai-compatible", "baseURL": url, "model": model, "auth": "none"});
    let settings = json!({
        "roles": {"title": {"profile": "namer"}},
        "providers": {
            "namer": provider(namer.base_url(), "small-1"),
            "local": provider(server.base_url(), "scripted-1"),
        },
    });
    let machine = Machine::configured(&server, &settings, &json!({}));
    machine.posse(&["run", "please look why nobody can log in"]).assert_code(0);
    assert_eq!((server.requests().len(), namer.requests().len()), (1, 1));
    let listed = machine.posse(&["sessions", "list"]);
    assert!(listed.stdout.contains("Mend[31m the login"), "{}", listed.stdout);
    assert!(!listed.stdout.contains("please look"), "{}", listed.stdout);
    let rows: Value =
        serde_json::from_str(&machine.posse(&["sessions", "list", "--json"]).stdout).unwrap();
    assert_eq!(rows[0]["title"], "Mend[31m the login");
    assert_eq!(rows[0]["prompt"], "please look why nobody can log in");
    let id = rows[0]["id"].as_str().unwrap();
    let cost = machine.posse(&["sessions", "show", id, "--cost", "--json"]).stdout;
    assert!(cost.contains("build/title") && cost.contains("small-1"), "{cost}");
    machine.verify();
}

/// A session whose requests must stay within their budgets.
struct BoundedSession {
    name: &'static str,
    settings: Value,
    /// Budgets in tokens of the main agent and of subagents.
    budgets: [usize; 2],
    /// Number of requests of the main agent and of subagents.
    requests: [usize; 2],
    answers: Vec<ModelAnswer>,
}

fn reads_files(paths: &[&str]) -> ModelAnswer {
    let calls_of: Vec<(&str, Value)> =
        paths.iter().map(|path| ("read_file", json!({"path": path, "limit": 5000}))).collect();
    calls(&calls_of)
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn bounded_sessions() -> Vec<BoundedSession> {
    let main = |tokens: usize| json!({"context": {"main": {"maxContextTokens": tokens}}});
    let both = |main: usize, sub: usize| {
        json!({
            "agentMode": "multi-agent",
            "context": {
                "main": {"maxContextTokens": main}, "subAgent": {"maxContextTokens": sub},
            },
        })
    };
    let several = ["big.txt", "other.txt", "third.txt"];
    let explore = |more: Value| {
        let mut task = json!({"agent": "explore", "task": "Look at all of it."});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("delegate_agent", task)
    };
    let long: Vec<String> = (0..2000).map(|number| format!("It is {number}. ")).collect();
    let long = long.concat();
    vec![
        BoundedSession {
            name: "a large file and a large output",
            settings: main(20_000),
            budgets: [20_000, 0],
            requests: [6, 0],
            answers: vec![
                reads_files(&["big.txt"]),
                calls(&[("read_file", json!({"path": "big.txt", "offset": 1500, "limit": 5000}))]),
                reads_files(&several),
                calls(&[("bash", json!({"command": "cat big.txt"}))]),
                reads_files(&several),
                says("done"),
            ],
        },
        BoundedSession {
            name: "many results",
            settings: main(14_000),
            budgets: [14_000, 0],
            requests: [6, 0],
            answers: (0..5)
                .map(|_| reads_files(&[several, several, several].concat()))
                .chain([says("done")])
                .collect(),
        },
        BoundedSession {
            name: "images",
            settings: main(16_000),
            budgets: [16_000, 0],
            requests: [9, 0],
            answers: (0..8)
                .map(|_| reads_files(&["dot.png", "dot2.png"]))
                .chain([says("done")])
                .collect(),
        },
        BoundedSession {
            name: "a small known window",
            settings: json!({"models": {"scripted-1": {"contextWindow": 12_000}}}),
            budgets: [9_000, 0],
            requests: [5, 0],
            answers: (0..4)
                .map(|nth| reads_files(&several[..=nth % 3]))
                .chain([says("done")])
                .collect(),
        },
        BoundedSession {
            name: "subagents with large files, references and answers",
            settings: both(16_000, 8_000),
            budgets: [16_000, 8_000],
            requests: [4, 8],
            answers: vec![
                calls(&[explore(json!({"contextRefs": several}))]),
                reads_files(&several),
                reads_files(&["big.txt"]),
                says(&long),
                calls(&[explore(json!({"context": long}))]),
                reads_files(&["dot.png"]),
                reads_files(&several),
                says(&long),
                calls(&[explore(json!({"contextRefs": ["big.txt"], "returnMode": "brief"}))]),
                reads_files(&several),
                says(&long),
                says("done"),
            ],
        },
    ]
}

/// Estimated tokens of a request, as in the kernel: four bytes of text are a token, and an image is
/// 1,600.
fn tokens_of(request: &Value) -> usize {
    let mut images = 0;
    let mut text = request.clone();
    for message in text["messages"].as_array_mut().unwrap() {
        for part in message["content"].as_array_mut().into_iter().flatten() {
            if part["type"] == "image_url" {
                images += 1;
                *part = Value::Null;
            }
        }
    }
    text.to_string().len() / 4 + images * 1600
}

#[test]
fn requests_stay_within_their_context_budgets() {
    for session in bounded_sessions() {
        let BoundedSession { name, settings, budgets, requests, answers } = session;
        let server = ModelServer::start(answers);
        let machine = Machine::configured(&server, &settings, &json!({}));
        let text = "one line of a long file, and none of them matters much\n".repeat(6000);
        for file in ["big.txt", "other.txt", "third.txt"] {
            machine.write(file, &text);
        }
        for file in ["dot.png", "dot2.png"] {
            machine.write(file, crate::files::picture(40, 30, image::ImageFormat::Png));
        }
        let (ended, events) = machine.stream(&["--yes", "--sandbox", "off", "-p", "look"]);
        ended.assert_code(0);
        let is_main = |request: &&Value| {
            let system = request["messages"][0]["content"].to_string();
            !system.contains("Agent: explore")
        };
        let sent = server.requests();
        let (main, children): (Vec<&Value>, Vec<&Value>) = sent.iter().partition(is_main);
        for (sent, count, budget) in
            [(main, requests[0], budgets[0]), (children, requests[1], budgets[1])]
        {
            let sizes: Vec<usize> = sent.into_iter().map(tokens_of).collect();
            assert_eq!(sizes.len(), count, "{name}: {sizes:?}");
            assert!(sizes.iter().all(|size| *size <= budget + budget / 20), "{name}: {sizes:?}");
            assert!(count == 0 || sizes.iter().any(|size| *size > budget / 2), "{name}: {sizes:?}");
        }
        if name == "a large file and a large output" {
            // A page that is shorter than requested names the next line.
            let first = events.iter().find(|event| event["type"] == "tool.completed").unwrap();
            assert!(first["content"].to_string().contains("offset"), "{first}");
            assert!(events.iter().any(|event| event["type"] == "context.compacted"));
        }
        machine.verify();
    }
}

#[test]
fn agent_and_user_are_told_once_that_the_context_is_nearly_full() {
    let read = |nth: usize| calls(&[("read_file", json!({"path": format!("f{nth}.txt")}))]);
    let mut answers: Vec<ModelAnswer> = (0..5).map(read).collect();
    answers.push(says("done"));
    let server = ModelServer::start(answers);
    let settings = json!({"context": {"main": {
        "maxContextTokens": 10_000, "compression": "none",
    }}});
    let machine = Machine::configured(&server, &settings, &json!({}));
    put_files(&machine, 5);
    let (ended, events) = machine.stream(&["--yes", "-p", "look"]);
    ended.assert_code(0);
    let last = server.requests().pop().unwrap()["messages"].to_string();
    assert_eq!(last.matches("[From posse: the context is ").count(), 1, "{last}");
    let warned = |event: &&Value| {
        event["type"] == "warning"
            && event["message"].as_str().unwrap().starts_with("the context of build is ")
    };
    assert_eq!(events.iter().filter(warned).count(), 1, "{events:#?}");
    machine.verify();
}

/// A model that reads the big file until the server has reported the window, and then answers.
fn reads_until_known(request: &Value) -> ModelAnswer {
    if request["messages"].as_array().unwrap().len() < 8 {
        // The window is asked for beside the requests, and the server answers at once.
        calls(&[("bash", json!({"command": "sleep 0.3; cat big.txt"}))])
    } else {
        says("done")
    }
}

#[test]
fn unknown_window_is_asked_of_the_server_and_said_once() {
    let table = [
        (
            Some(json!({"data": [{"id": "scripted-1", "max_model_len": 14_000}]})),
            "reports a context window of 14000 tokens for scripted-1",
        ),
        (None, "the context window of scripted-1 is unknown; 32000 tokens are assumed"),
    ];
    for (models, notice) in table {
        let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(reads_until_known)]);
        if let Some(models) = models.clone() {
            server.lists(models);
        }
        let machine = Machine::configured(&server, &json!({}), &json!({}));
        machine.write("big.txt", "one line of a long file, and none matters\n".repeat(2000));
        let (ended, _) = machine.stream(&["--yes", "--sandbox", "off", "-p", "look"]);
        ended.assert_code(0);
        assert_eq!(ended.stdout.matches(notice).count(), 1, "{}", ended.stdout);
        assert!(ended.stdout.contains("set providers.local.contextWindow"), "{}", ended.stdout);
        // A fourth is reserved for the reply.
        let max = if models.is_some() { 10_500 } else { 24_000 };
        let sizes: Vec<usize> =
            server.requests().iter().map(|request| request.to_string().len() / 4).collect();
        assert!(sizes.iter().all(|size| *size <= max + max / 10), "{sizes:?}");
        machine.verify();
    }
}

#[test]
fn prompt_above_the_window_is_refused_before_it_is_sent() {
    for (window, bytes, compression) in [
        (1000, 8000, "deterministic"),
        (2500, 100_000, "deterministic"),
        (8000, 100_000, "deterministic"),
        (8000, 100_000, "none"),
    ] {
        let server = ModelServer::start_and_repeat(vec![says("hi")]);
        let context = json!({"models": {"scripted-1": {"contextWindow": window}},
            "context": {"main": {"compression": compression}}});
        let machine = Machine::configured(&server, &context, &json!({}));
        let ended = machine.posse(&["run", &"x ".repeat(bytes / 2)]);
        ended.assert_code(1);
        for part in [
            "error[PRV006]",
            &format!("the context window of scripted-1 has {window}"),
            "a shorter prompt, or the path of a file",
        ] {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
        assert_eq!(server.requests().len(), 0);
        machine.verify();
    }
}
