//! Recorded replies that are cut, reset, stalled or damaged at any byte, read by the real adapters
//! over real connections: the next request is one that the strictest server takes, no half of a
//! call runs, and no text is there twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use posse::provider::connect;
use posse::provider::profile::ProviderProfile;
use posse_actors::conversation::Prompt;
use posse_actors::event::Event;
use posse_actors::outcome::Ending;
use posse_actors::ports::{
    Action, CallContext, CommandDeletions, Operation, PermittedCall, PortFuture, Prepared,
    Provider, RunContext, SideEffect, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};
use posse_actors::testing::SessionBuilder;
use serde_json::{Value, json};

use crate::byte_server::{ByteServer, DIALECTS, DialectFixture, Framing, Move, response};

const TEXT: &str = "I will look at “both”.";
const CALLS: [(&str, &str); 2] = [("read_file", "a.rs"), ("bash", "ls; pwd")];
const ANSWER: &str = "All done.";

/// Which offsets are tried where nobody asked for all of them: every so many, beginning with
/// another one for each way to end.
const STRIDE: usize = 41;

/// Longer than anything here takes; only a hang reaches it.
const HANG: Duration = Duration::from_secs(20);

/// A reply breaks off in one of these ways.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The connection ends in order where its end is the end of the body.
    Close,
    /// The connection ends in order in the middle of the chunks of a body.
    Chunks,
    Reset,
    Stall,
    /// A byte has another value.
    Damage,
}

impl Fault {
    fn framing(self) -> Framing {
        if self == Fault::Chunks { Framing::Chunked } else { Framing::Open }
    }

    /// What a connection does with `whole` up to `at`.
    fn moves(self, whole: &[u8], at: usize) -> Vec<Move> {
        let begin = Move::Send(whole[..at].to_vec());
        match self {
            Fault::Close | Fault::Chunks => vec![begin, Move::Close],
            Fault::Reset => vec![begin, Move::Reset],
            Fault::Stall => vec![begin, Move::Stall],
            Fault::Damage => {
                let mut damaged = whole.to_vec();
                damaged[at] ^= 1 << (at % 7);
                // In two pieces, as a network would.
                let rest = damaged.split_off(at);
                vec![
                    Move::Send(damaged),
                    Move::Pause(Duration::ZERO),
                    Move::Send(rest),
                    Move::Close,
                ]
            }
        }
    }
}

/// A tool that remembers what it was run with.
struct Noting {
    spec: ToolSpec,
    key: &'static str,
    ran: Arc<Mutex<Vec<(String, String)>>>,
}

impl Tool for Noting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let text = arguments[self.key].as_str().unwrap_or_default().to_owned();
        let operation = Operation::Execute {
            command: text.clone(),
            cwd: "/".to_owned(),
            links: Vec::new(),
            replaces: Vec::new(),
            deletions: CommandDeletions::default(),
            in_trial: false,
            secrets: posse_actors::ports::CommandSecrets::default(),
        };
        let action = Action {
            tool: self.spec.name.clone(),
            operations: vec![operation],
            summary: text.clone(),
            detail: text.clone(),
            digest: text.clone(),
        };
        Box::pin(async move { Ok(Prepared { action, payload: Box::new(text) }) })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        let text = call.into_payload().downcast::<String>().map_or_else(|_| String::new(), |t| *t);
        self.ran.lock().unwrap().push((self.spec.name.clone(), text));
        Box::pin(std::future::ready(ToolOutput::text("done")))
    }
}

fn noting(name: &str, key: &'static str, ran: &Arc<Mutex<Vec<(String, String)>>>) -> Noting {
    let spec = ToolSpec {
        name: name.to_owned(),
        description: "for tests".to_owned(),
        parameters: json!({
            "type": "object", "properties": {key: {"type": "string"}}, "required": [key],
        }),
        side_effect: SideEffect::Workspace,
        source: "programmatic".to_owned(),
        annotations: ToolAnnotations::default(),
    };
    Noting { spec, key, ran: Arc::clone(ran) }
}

/// A server of one protocol, and the adapter that asks it.
struct ProtocolServer {
    dialect: DialectFixture,
    server: ByteServer,
    provider: Arc<dyn Provider>,
}

impl ProtocolServer {
    fn new(dialect: DialectFixture) -> ProtocolServer {
        let server = ByteServer::start(&dialect, |_| Vec::new());
        let mut profile = ProviderProfile::new("mine", &server.base_url(), "m", None);
        profile.protocol = dialect.protocol;
        profile.max_tokens = Some(1000);
        // Long enough for a busy machine where nothing stalls, short where something does.
        profile.timeouts.silence_ms = Some(300);
        profile.timeouts.header_ms = Some(300);
        ProtocolServer { dialect, provider: connect(profile).unwrap(), server }
    }

    /// Cuts the first reply at `at`; what follows is whole.
    fn cut_at(&self, fault: Fault, whole: &[u8], at: usize) {
        let dialect = self.dialect;
        let fine = response(Framing::Open, dialect.calls);
        let last = response(Framing::Open, &(dialect.says)(ANSWER));
        let mut first = Some(fault.moves(whole, at));
        self.server.script(move |request| match first.take() {
            Some(moves) => moves,
            None if dialect.has_results(request) => vec![Move::Send(last.clone()), Move::Close],
            None => vec![Move::Send(fine.clone()), Move::Close],
        });
    }
}

/// What is left of one session.
struct CutResult {
    ending: Ending,
    ran: Vec<(String, String)>,
    events: Vec<Event>,
}

/// One session against the server of `line`.
async fn session(line: &ProtocolServer) -> CutResult {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut bench = SessionBuilder::new(Vec::new())
        .tool(noting("read_file", "path", &ran))
        .tool(noting("bash", "command", &ran));
    bench.provider = Some(Arc::clone(&line.provider));
    bench.limits.backoff_first = Duration::from_millis(1);
    bench.limits.backoff_max = Duration::from_millis(1);
    bench.limits.delta_interval = Duration::ZERO;
    let stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let ending = running.outcome().await.unwrap().ending;
    let events = stage.end().await.iter().map(|seen| seen.event().clone()).collect();
    let ran = ran.lock().unwrap().clone();
    CutResult { ending, ran, events }
}

fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(HANG, work).await });
    done.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// What must hold wherever the first reply was cut.
fn check_cut(line: &ProtocolServer, fault: Fault, whole: &[u8], at: usize) {
    line.cut_at(fault, whole, at);
    let place = format!("{}, {fault:?} at {at}", line.dialect.name);
    let left = soon(&place, session(line));
    assert_eq!(left.ending, Ending::Answered(ANSWER.to_owned()), "{place}");
    let expected = CALLS.map(|(name, with)| (name.to_owned(), with.to_owned()));
    assert_eq!(left.ran, expected, "{place}");
    let requests = line.server.requests();
    let last = requests.last().unwrap().to_string();
    assert_eq!(last.matches(TEXT).count(), 1, "{place}: {last}");
    // What was shown: pieces, of which those before a cut are marked as not counting.
    let (mut shown, mut cut) = (String::new(), 0);
    for event in &left.events {
        match event {
            Event::TextDelta { text } => shown.push_str(text),
            Event::ModelPartial { text, .. } => {
                assert_eq!(*text, shown, "{place}");
                assert!(TEXT.starts_with(text.as_str()), "{place}: {text}");
                shown.clear();
                cut += 1;
            }
            _ => (),
        }
    }
    assert_eq!(shown, format!("{TEXT}{ANSWER}"), "{place}");
    assert!(cut <= 1, "{place}: {cut} parts");
}

/// What must hold wherever a byte was another one: what was understood may be something else.
fn check_damage(line: &ProtocolServer, whole: &[u8], at: usize) {
    line.cut_at(Fault::Damage, whole, at);
    let place = format!("{}, damaged at {at}", line.dialect.name);
    let left = soon(&place, session(line));
    line.server.requests();
    // A reply may say anything now, but each call of it runs once at most, and of one reply alone.
    let calls = left.events.iter().filter_map(|event| match event {
        Event::ModelReply { message, .. } => Some(message.tool_calls.len()),
        _ => None,
    });
    let calls: Vec<usize> = calls.filter(|count| *count > 0).collect();
    assert!(calls.len() <= 1, "{place}: {calls:?}");
    assert!(left.ran.len() <= calls.iter().sum(), "{place}: {:?} of {calls:?}", left.ran);
    let unknown = matches!(&left.ending, Ending::Failed { .. } | Ending::Limited { .. });
    assert!(unknown || matches!(left.ending, Ending::Answered(_)), "{place}: {:?}", left.ending);
}

/// Tries `check` at offsets of the recorded reply of each protocol: all of them if `POSSE_CUTS` is
/// `all`, otherwise every so many.
#[expect(clippy::print_stdout, reason = "how many there were, for whoever asked for all")]
fn everywhere(
    faults: &[Fault],
    stride: usize,
    check: impl Fn(&ProtocolServer, Fault, &[u8], usize) + Sync,
) {
    let all = std::env::var("POSSE_CUTS").is_ok_and(|cuts| cuts == "all");
    let begin = Instant::now();
    let mut places = Vec::new();
    for (nth, dialect) in DIALECTS.into_iter().enumerate() {
        for (which, fault) in faults.iter().enumerate() {
            let whole = response(fault.framing(), dialect.calls);
            let step = if all { 1 } else { stride };
            let from = if all { 0 } else { (nth * 7 + which * 13) % stride };
            places.extend((from..whole.len()).step_by(step).map(|at| (nth, *fault, at)));
        }
    }
    let (next, check, places) = (AtomicUsize::new(0), &check, &places);
    let next = &next;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let lines = DIALECTS.map(ProtocolServer::new);
                while let Some((nth, fault, at)) = places.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let line = &lines[*nth];
                    let whole = response(fault.framing(), line.dialect.calls);
                    check(line, *fault, &whole, *at);
                }
            });
        }
    });
    println!("{} places in {:?}", places.len(), begin.elapsed());
}

#[test]
fn reply_cut_at_any_byte_is_retried_and_nothing_repeats() {
    let faults = [Fault::Close, Fault::Chunks, Fault::Reset];
    everywhere(&faults, STRIDE, check_cut);
}

#[test]
fn reply_stalled_at_any_byte_is_retried() {
    // Each costs the time that silence is borne.
    everywhere(&[Fault::Stall], 10 * STRIDE, check_cut);
}

#[test]
fn reply_with_a_changed_byte_leads_to_no_refused_request() {
    everywhere(&[Fault::Damage], STRIDE, |line, _, whole, at| check_damage(line, whole, at));
}
