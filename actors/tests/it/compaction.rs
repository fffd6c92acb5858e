//! Compaction of histories that exceed their budget, or that a provider refuses as too large.

use std::sync::Arc;

use posse_actors::compaction::{CompactionGoal, compact};
use posse_actors::context::{ContextBudget, ContextSettings, Windows};
use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, StopReason, ToolCall, Usage, text_of,
};
use posse_actors::event::{CompactionCause, Event};
use posse_actors::limits::Limits;
use posse_actors::outcome::Ending;
use posse_actors::ports::{Abilities, Completion, Fallback, ProviderError};
use posse_actors::replay::replay;
use posse_actors::root_session::FailPoints;
use posse_actors::testing::{ModelStep, ScriptedModel, SessionBuilder};

use crate::support::{end, quick};

/// Limits with a context of that many tokens, of which the last two turns stay whole.
fn small(tokens: u64) -> Limits {
    let budget = ContextBudget {
        tokens_max: Some(tokens),
        recent_turns: 2,
        recent_turns_min: 1,
        summary_tokens: tokens / 8,
        ..ContextBudget::main()
    };
    Limits { context_main: budget, turns_max: 200, ..quick() }
}

/// A call whose output is its text.
fn echo(text: &str) -> ModelStep {
    ModelStep::call("echo", &format!(r#"{{"text":{text:?}}}"#))
}

fn full() -> ModelStep {
    ModelStep::Fail(String::new(), ProviderError::ContextFull { source: "too long".into() })
}

fn text(history: &[Arc<Message>]) -> String {
    let of = |message: &Arc<Message>| match &**message {
        Message::System { content } => content.clone(),
        Message::User { content } | Message::Tool { content, .. } => text_of(content),
        Message::Assistant(said) => said.content.clone().unwrap_or_default(),
    };
    history.iter().map(of).collect::<Vec<_>>().join("\n")
}

/// Reason, tokens before and tokens after of each compaction.
fn compactions(bench: &SessionBuilder) -> Vec<(CompactionCause, u64, u64)> {
    let records = bench.journal.records();
    let of = |record: &posse_actors::event::StoredRecord| match &record.event {
        Event::ContextCompacted { cause, tokens_before, tokens_after, .. } => {
            Some((cause.clone()?, (*tokens_before)?, (*tokens_after)?))
        }
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

#[tokio::test]
async fn long_run_stays_within_budget_with_a_stable_prefix() {
    let mut steps: Vec<ModelStep> =
        (0..60).map(|nth| echo(&format!("{nth} {}", "word ".repeat(400)))).collect();
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(8000);
    let mut stage = bench.start().await;
    let outcome = stage.play("Never stop. Go.").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
    let seen = compactions(&bench);
    assert!((3..20).contains(&seen.len()), "{seen:?}");
    for (cause, before, after) in &seen {
        assert_eq!(*cause, CompactionCause::Threshold);
        assert!(*before > 5600 && *after <= 5600, "{seen:?}");
    }
    let requests = bench.model.requests();
    assert_eq!(requests.len(), 61);
    let mut changed = 0;
    for pair in requests.windows(2) {
        let same = |(a, b): (&Arc<Message>, &Arc<Message>)| Arc::ptr_eq(a, b);
        let grows = pair[0].len() < pair[1].len() && pair[0].iter().zip(&pair[1]).all(same);
        changed += usize::from(!grows);
    }
    assert_eq!(changed, seen.len(), "between compactions a request only grows at its end");
    assert!(text(&requests[60]).contains("Never stop. Go."));
    // The records give what the model saw last.
    let replayed = replay(&bench.journal.records(), None);
    assert_eq!(replayed.messages[..requests[60].len() - 1], requests[60][1..]);
}

#[tokio::test]
async fn request_refused_as_too_large_is_retried_once_compacted() {
    let big = "word ".repeat(400);
    let steps = vec![echo(&big), echo(&big), echo(&big), full(), ModelStep::say("done")];
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(1_000_000);
    let mut stage = bench.start().await;
    let outcome = stage.play("go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
    let requests = bench.model.requests();
    assert_eq!(requests.len(), 5);
    let size = |nth: usize| text(&requests[nth]).len();
    assert!(size(4) < size(3) * 2 / 3, "{} {}", size(3), size(4));
    assert_eq!(compactions(&bench).len(), 1);
    assert_eq!(compactions(&bench)[0].0, CompactionCause::Overflow);
}

/// Settings in which every model has a context window of that many tokens.
fn with_window(tokens: u64) -> ContextSettings {
    ContextSettings { windows: Some(Arc::new(move |_| Some(tokens))), ..ContextSettings::default() }
}

#[tokio::test]
async fn empty_reply_near_the_window_is_compacted_and_not_retried() {
    let big = "word ".repeat(400);
    let empty = || {
        let source = "nothing came".into();
        ModelStep::Fail(String::new(), ProviderError::Empty { source })
    };
    // The server says nothing at all; or it ends its reply at once.
    let silent = vec![empty(), empty()];
    let at_once = vec![ModelStep::say(""), ModelStep::say("")];
    for (row, (lost, window)) in [(silent, 2048), (at_once, 2048)].into_iter().enumerate() {
        let attempts = lost.len();
        let before = [echo(&big), echo(&big), echo(&big)];
        let steps = before.into_iter().chain(lost).chain([ModelStep::say("done")]);
        let mut bench = SessionBuilder::new(steps.collect());
        bench.context = with_window(window);
        // The threshold alone does not shorten it.
        bench.limits = small(1_000_000);
        bench.limits.context_main.compact_at = 100.0;
        let mut stage = bench.start().await;
        let outcome = stage.play("go").await;
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()), "row {row}");
        end(&bench, stage).await;
        let requests = bench.model.requests();
        assert_eq!(requests.len(), 3 + attempts + 1, "row {row}");
        let size = |nth: usize| text(&requests[nth]).len();
        assert!(size(3 + attempts) < size(3) * 2 / 3, "row {row}");
        let causes: Vec<_> = compactions(&bench).into_iter().map(|(cause, ..)| cause).collect();
        assert_eq!(causes, [CompactionCause::Overflow], "row {row}");
    }
}

#[tokio::test]
async fn known_window_comes_before_the_turns_that_stay() {
    let big = "word ".repeat(1200);
    let steps = vec![echo(&big), echo(&big), echo(&big), ModelStep::say("done")];
    let mut bench = SessionBuilder::new(steps);
    bench.context = with_window(4096);
    bench.limits = small(1_000_000);
    bench.limits.context_main.recent_turns = 6;
    bench.limits.context_main.recent_turns_min = 6;
    let mut stage = bench.start().await;
    let outcome = stage.play("go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
    for (nth, request) in bench.model.requests().iter().enumerate() {
        // A quarter of the window is left for the reply.
        let bytes = text(request).len();
        assert!(bytes / 4 < 4096 * 3 / 4, "request {nth}: {bytes} bytes");
    }
    assert!(!compactions(&bench).is_empty());
}

#[tokio::test]
async fn incompressible_request_is_not_retried_and_the_session_survives() {
    let mut bench = SessionBuilder::new(vec![full(), ModelStep::say("fine")]);
    bench.limits = small(1_000_000);
    let mut stage = bench.start().await;
    let outcome = stage.play(&"x".repeat(40_000)).await;
    let Ending::Failed { class, cause } = outcome.ending else { panic!("{:?}", outcome.ending) };
    assert_eq!(class, "provider.context_full");
    assert!(cause.contains("tokens do not fit"), "{cause}");
    assert!(cause.contains("nothing in it that could be left out"), "{cause}");
    assert_eq!(bench.model.requests().len(), 1);
    assert_eq!(stage.play("shorter").await.ending, Ending::Answered("fine".to_owned()));
    end(&bench, stage).await;
}

#[tokio::test]
async fn request_above_the_known_window_is_not_sent() {
    // Window, bytes of the prompt, and true if the history may be compacted.
    for (window, bytes, compacts) in
        [(1000, 8000, true), (2500, 12_000, true), (8000, 100_000, true), (8000, 100_000, false)]
    {
        let mut bench = SessionBuilder::new(vec![ModelStep::say("fine")]);
        let windows: Arc<Windows> = Arc::new(move |_| Some(window));
        bench.context.windows = Some(Arc::clone(&windows));
        bench.context.configured_windows = Some(windows);
        bench.limits = small(1_000_000);
        bench.limits.context_main.compacts = compacts;
        let mut stage = bench.start().await;
        let outcome = stage.play(&"x".repeat(bytes)).await;
        let Ending::Failed { class, cause } = outcome.ending else {
            panic!("{:?}", outcome.ending)
        };
        assert_eq!(class, "provider.context_full");
        let parts = [
            format!("do not fit into a window of {window}"),
            format!("the context window of script-1 has {window}"),
            if compacts { "could be left out" } else { "`compression` is" }.to_owned(),
        ];
        for part in parts {
            assert!(cause.contains(&part), "{part}: {cause}");
        }
        assert_eq!(bench.model.requests().len(), 0, "window {window}");
        if compacts {
            let fine = Ending::Answered("fine".to_owned());
            assert_eq!(stage.play("shorter").await.ending, fine, "window {window}");
        }
        end(&bench, stage).await;
    }
}

#[tokio::test]
async fn large_arguments_are_removed_before_a_request_exceeds_the_window() {
    let big = "word ".repeat(10_000);
    let steps = vec![echo(&big), ModelStep::say("done")];
    let mut bench = SessionBuilder::new(steps);
    bench.context = with_window(8000);
    bench.limits = small(1_000_000);
    let mut stage = bench.start().await;
    let outcome = stage.play("go").await;
    end(&bench, stage).await;
    for (nth, request) in bench.model.requests().iter().enumerate() {
        assert!(bytes_of_request(request) / 4 <= 8000, "request {nth}");
    }
    let is_overflow =
        matches!(&outcome.ending, Ending::Failed { class, .. } if class == "provider.context_full");
    assert!(
        outcome.ending == Ending::Answered("done".to_owned()) || is_overflow,
        "{:?}",
        outcome.ending
    );
}

/// Bytes of the texts and arguments in a request.
fn bytes_of_request(messages: &[Arc<Message>]) -> usize {
    let arguments = messages.iter().map(|message| match &**message {
        Message::Assistant(said) => said.tool_calls.iter().map(|call| call.arguments.len()).sum(),
        _ => 0,
    });
    text(messages).len() + arguments.sum::<usize>()
}

#[tokio::test]
async fn content_refused_as_too_large_stays_out_of_later_requests() {
    let bounded = |messages: &[Arc<Message>]| match text(messages).len() {
        ..8000 => ModelStep::say("fine"),
        _ => full(),
    };
    let mut bench =
        SessionBuilder::new((0..20).map(|_| ModelStep::Computed(Box::new(bounded))).collect());
    bench.limits = small(1_000_000);
    let mut stage = bench.start().await;
    let fine = Ending::Answered("fine".to_owned());
    assert_eq!(stage.play("hi").await.ending, fine);
    let log = format!("What is wrong here? {}", "word ".repeat(3000));
    let refused = stage.play(&log).await;
    assert!(matches!(refused.ending, Ending::Failed { .. }), "{:?}", refused.ending);
    assert_eq!(bench.model.requests().len(), 2);
    assert_eq!(stage.play("and now?").await.ending, fine);
    let asked = text(bench.model.requests().last().unwrap());
    for kept in ["hi\nfine\n", "They begin: What is wrong here?", "output:history", "and now?"] {
        assert!(asked.contains(kept), "{kept}: {asked}");
    }
    // The last message stays when the user requests a compaction; the next prompt is answered.
    assert!(matches!(stage.play(&log).await.ending, Ending::Failed { .. }));
    assert!(stage.session.compact().await.unwrap().is_none(), "what was said last stays");
    assert_eq!(stage.play("again").await.ending, fine);
    assert_eq!(compactions(&bench).len(), 2);
    end(&bench, stage).await;
    let replayed = replay(&bench.journal.records(), None);
    assert!(text(&replayed.messages).len() < 8000, "what is resumed fits as well");
}

#[tokio::test]
async fn provider_that_always_refuses_gets_two_requests_per_prompt() {
    let big = "word ".repeat(400);
    let mut steps = vec![echo(&big), echo(&big), echo(&big)];
    steps.extend((0..20).map(|_| full()));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(1_000_000);
    bench.limits.context_main.recent_turns = 1;
    let mut stage = bench.start().await;
    let outcome = stage.play("go").await;
    let Ending::Failed { cause, .. } = outcome.ending else { panic!("{:?}", outcome.ending) };
    assert!(cause.contains("made smaller once"), "{cause}");
    assert_eq!(bench.model.requests().len(), 5);
    for prompt in 1..=3 {
        let outcome = stage.play("again").await;
        assert!(matches!(outcome.ending, Ending::Failed { .. }));
        assert!(bench.model.requests().len() <= 5 + 2 * prompt);
    }
    let requests = bench.model.requests();
    let distinct = requests.windows(2).skip(3).all(|pair| text(&pair[0]) != text(&pair[1]));
    assert!(distinct, "never the same request twice");
    end(&bench, stage).await;
}

#[tokio::test]
async fn known_window_bounds_the_request() {
    let big = "word ".repeat(400);
    let mut steps: Vec<ModelStep> = (0..30).map(|_| echo(&big)).collect();
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(1_000_000);
    bench.limits.context_main.tokens_max = None;
    bench.context =
        ContextSettings { windows: Some(Arc::new(|_| Some(10_000))), ..bench.context.clone() };
    let mut stage = bench.start().await;
    stage.play("go").await;
    let used = stage.session.context().await.unwrap();
    assert_eq!((used.window, used.tokens_max, used.compacts_at), (Some(10_000), 7500, Some(5250)));
    assert!(used.total <= 5250 && used.tool_results > 0 && used.compactions > 0, "{used:?}");
    let sum = used.system + used.instructions + used.tools + used.messages + used.tool_results;
    assert_eq!(sum, used.total);
    end(&bench, stage).await;
}

#[tokio::test]
async fn disabled_compaction_drops_nothing() {
    let big = "word ".repeat(400);
    let mut steps: Vec<ModelStep> = (0..10).map(|_| echo(&big)).collect();
    steps.push(full());
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(2000);
    bench.limits.context_main.compacts = false;
    let mut stage = bench.start().await;
    let outcome = stage.play("go").await;
    assert!(matches!(outcome.ending, Ending::Failed { .. }), "{:?}", outcome.ending);
    assert_eq!(compactions(&bench), []);
    assert_eq!(bench.model.requests().len(), 11);
    end(&bench, stage).await;
}

/// A model that follows `steps` when it is asked for summaries.
fn summariser(steps: Vec<ModelStep>) -> (Arc<ScriptedModel>, ContextSettings) {
    let model = Arc::new(ScriptedModel::new(steps).named("small"));
    let provider = Arc::clone(&model) as Arc<dyn posse_actors::ports::Provider>;
    let compact = Fallback { provider, abilities: Abilities::default(), price: None };
    (model, ContextSettings { compact: Some(compact), ..ContextSettings::default() })
}

#[tokio::test]
async fn summary_model_has_its_own_line_in_the_costs() {
    let prompts = 8;
    let steps =
        (0..prompts).map(|nth| ModelStep::say(&format!("answer {nth}: {}", "so ".repeat(500))));
    let mut bench = SessionBuilder::new(steps.collect());
    bench.limits = small(2000);
    let (model, context) =
        summariser((0..8).map(|_| ModelStep::say("Goal: the red door")).collect());
    bench.context = context;
    let mut stage = bench.start().await;
    for nth in 0..prompts {
        stage.play(&format!("prompt {nth}")).await;
    }
    end(&bench, stage).await;
    let asked = model.requests();
    assert!(!asked.is_empty() && asked.len() == compactions(&bench).len(), "{}", asked.len());
    assert!(text(&asked[0]).contains("USER: prompt 0"), "{}", text(&asked[0]));
    let last = bench.model.requests().pop().unwrap();
    assert!(text(&last).contains("Summary: Goal: the red door"), "{}", text(&last));
    let records = bench.journal.records();
    let by = records.iter().find_map(|record| match &record.event {
        Event::ContextCompacted { summarised_by, .. } => summarised_by.clone(),
        _ => None,
    });
    assert_eq!(by.as_deref(), Some("small-1"));
    let lines = records.iter().filter(|record| {
        matches!(record.event, Event::ModelUsage { .. })
            && record.origin.as_ref().is_some_and(|origin| origin.agent == "compact")
    });
    assert_eq!(lines.count(), asked.len());
}

#[tokio::test]
async fn failed_summary_model_only_adds_a_warning() {
    let prompts = 6;
    let steps =
        (0..prompts).map(|nth| ModelStep::say(&format!("answer {nth}: {}", "so ".repeat(500))));
    let mut bench = SessionBuilder::new(steps.collect());
    bench.limits = small(2000);
    let rejected = || {
        let source = "no such model".into();
        ModelStep::Fail(String::new(), ProviderError::Rejected { source })
    };
    let (_, context) = summariser((0..8).map(|_| rejected()).collect());
    bench.context = context;
    let mut stage = bench.start().await;
    for nth in 0..prompts {
        let outcome = stage.play(&format!("prompt {nth}")).await;
        assert!(matches!(outcome.ending, Ending::Answered(_)), "{:?}", outcome.ending);
    }
    let seen = end(&bench, stage).await;
    assert!(!compactions(&bench).is_empty());
    let warned = seen.iter().any(|seen| {
        matches!(seen.event(), Event::Warning { message } if message.contains("no such model"))
    });
    assert!(warned);
    let last = bench.model.requests().pop().unwrap();
    assert!(text(&last).contains("The user asked: prompt 0"), "{}", text(&last));
}

#[tokio::test]
async fn interrupting_a_summary_ends_the_run_and_the_next_prompt_works() {
    let word = |nth: u32| format!("so {nth:05} ");
    let talk: String = (0..900).map(word).collect();
    let mut steps = vec![ModelStep::say(&talk), ModelStep::say(&talk), ModelStep::say(&talk)];
    steps.push(ModelStep::say("after"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(2000);
    let hangs = vec![ModelStep::Hang(String::new()), ModelStep::say("Goal: on")];
    let (model, context) = summariser(hangs);
    bench.context = context;
    let stage = bench.start().await;
    let mut interrupted = false;
    for prompt in ["one", "two", "three", "four"] {
        let running = stage.session.prompt(posse_actors::conversation::Prompt::text(prompt)).await;
        let mut outcome = std::pin::pin!(running.unwrap().outcome());
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => break outcome.unwrap(),
                () = tokio::task::yield_now() => {
                    if model.requests().len() == 1 && !interrupted {
                        interrupted = true;
                        stage.session.interrupt();
                    }
                }
            }
        };
        if interrupted && model.requests().len() == 1 {
            assert_eq!(outcome.ending, Ending::Interrupted);
        } else {
            assert!(matches!(outcome.ending, Ending::Answered(_)), "{:?}", outcome.ending);
        }
    }
    assert!(interrupted);
    assert_eq!(model.dropped(), 1);
    end(&bench, stage).await;
}

#[tokio::test]
async fn crash_after_a_compaction_resumes_from_the_compacted_history() {
    let word = |nth: usize| echo(&format!("{nth} {}", "word ".repeat(400)));
    let mut steps = vec![ModelStep::say("hello")];
    steps.extend((0..30).map(word));
    let fail = FailPoints::default();
    let armed = fail.clone();
    // The invocation crashes on a reply long after the compaction.
    steps.push(ModelStep::Computed(Box::new(move |_: &[Arc<Message>]| {
        armed.arm("AgentInvocation", "Replied", 1);
        echo("lost")
    })));
    steps.extend((30..40).map(word));
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(8000);
    bench.fail = fail;
    let mut stage = bench.start().await;
    stage.play("a prompt before, which is not there twice").await;
    let outcome = stage.play("go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
    let crashed = bench.journal.records().iter().any(|record| {
        matches!(&record.event, Event::ActorCrashed { actor, .. } if actor == "AgentInvocation")
    });
    assert!(crashed);
    let last = bench.model.requests().pop().unwrap();
    assert_eq!(text(&last).matches("which is not there twice").count(), 1, "{}", text(&last));
    let systems = last.iter().filter(|message| matches!(***message, Message::System { .. }));
    assert_eq!(systems.count(), 1);
}

/// Facts in answers, prompts and outputs, rules in prompts, and five compactions.
#[tokio::test]
async fn facts_and_rules_survive_five_compactions() {
    let facts: Vec<String> = (0..20).map(|nth| format!("fact-{nth}-{}", nth * 7919)).collect();
    let rules = [
        "Always answer in French.",
        "Never touch Cargo.lock.",
        "From now on every commit is signed.",
        "You must run the tests before you say that it works.",
        "Don't use unwrap in library code.",
    ];
    let filler = "nothing of interest here ".repeat(60);
    let mut steps = Vec::new();
    let mut prompts = Vec::new();
    for (nth, fact) in facts.iter().enumerate() {
        let rule = rules.get(nth / 4).filter(|_| nth % 4 == 0).copied().unwrap_or_default();
        // In a tool output, a user message, and a model reply.
        let (output, said, answer) = match nth % 3 {
            0 => (fact.as_str(), "", ""),
            1 => ("", fact.as_str(), ""),
            _ => ("", "", fact.as_str()),
        };
        steps.push(echo(&format!("{filler}{output}{filler}")));
        steps.push(ModelStep::say(&format!("{filler}{answer}")));
        prompts.push(format!("{rule}\n{filler}{said}"));
    }
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(9000);
    let mut stage = bench.start().await;
    for prompt in &prompts {
        let outcome = stage.play(prompt).await;
        assert!(matches!(outcome.ending, Ending::Answered(_)), "{:?}", outcome.ending);
    }
    let history = stage.session.history().await;
    end(&bench, stage).await;
    assert!(compactions(&bench).len() >= 5, "{:?}", compactions(&bench));
    let context = text(&history);
    for rule in rules {
        assert!(context.contains(rule), "{rule}: {context}");
    }
    // The ids in the context can be followed.
    let records = bench.journal.records();
    let readable = |id: &str| -> String {
        let said = |content: &[ContentPart]| text_of(content);
        let of = |record: &posse_actors::event::StoredRecord| match &record.event {
            Event::ToolCompleted { call_id, content, .. }
                if id == "history" || *call_id == CallId::new(id) =>
            {
                said(content)
            }
            Event::UserMessage { content, .. } if id == "history" => said(content),
            Event::ModelReply { message, .. } if id == "history" => {
                message.content.clone().unwrap_or_default()
            }
            _ => String::new(),
        };
        records.iter().map(of).collect()
    };
    let ids = context.split("output:").skip(1);
    let ids = ids.map(|rest| rest.split([']', ' ', ',']).next().unwrap_or_default());
    let reached: String = ids.map(readable).collect();
    for fact in &facts {
        assert!(context.contains(fact.as_str()) || reached.contains(fact.as_str()), "{fact}");
    }
}

#[tokio::test]
async fn reported_usage_moves_the_threshold() {
    // A tokenizer with twice as many tokens per byte.
    let step = |nth: usize| {
        ModelStep::Computed(Box::new(move |messages: &[Arc<Message>]| {
            let bytes: u64 = messages.iter().map(|m| posse_actors::context::tokens_of(m)).sum();
            let usage =
                Usage { input_tokens: Some(bytes * 2), output_tokens: Some(1), ..Usage::default() };
            let call = ToolCall {
                id: CallId::new("1"),
                provider_id: None,
                name: "echo".to_owned(),
                arguments: format!(r#"{{"text":"{nth} {}"}}"#, "word ".repeat(400)),
            };
            ModelStep::Reply(Completion {
                message: AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() },
                stop_reason: StopReason::ToolUse,
                usage: Some(usage),
                model: None,
            })
        }))
    };
    let mut steps: Vec<ModelStep> = (0..20).map(step).collect();
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(16_000);
    let mut stage = bench.start().await;
    stage.play("go").await;
    let used = stage.session.context().await.unwrap();
    assert!(used.calibrated, "{used:?}");
    end(&bench, stage).await;
    let seen = compactions(&bench);
    assert!(!seen.is_empty());
    let most = bench.model.requests().iter().map(|r| text(r).len()).max().unwrap();
    // 11,200 of its tokens are 22,400 bytes, plus one more turn.
    assert!(most < 32_000, "{most}");
}

#[test]
fn two_thousand_messages_fit_after_one_compaction() {
    let user = |text: String| Message::User { content: vec![ContentPart::text(text)] };
    let mut history = Vec::new();
    for nth in 0..500 {
        let call = ToolCall {
            id: CallId::new(format!("c{nth}")),
            provider_id: None,
            name: "read_file".to_owned(),
            arguments: format!(r#"{{"path":"src/file{}.rs"}}"#, nth % 50),
        };
        let said = |content: Option<String>, tool_calls: Vec<ToolCall>| {
            Message::Assistant(AssistantMessage { content, tool_calls, reasoning: None })
        };
        history.push(Arc::new(user(format!("prompt {nth}: {}", "word ".repeat(40)))));
        history.push(Arc::new(said(None, vec![call])));
        history.push(Arc::new(Message::Tool {
            tool_call_id: CallId::new(format!("c{nth}")),
            name: "read_file".to_owned(),
            content: vec![ContentPart::text("line of code\n".repeat(300))],
            is_error: false,
        }));
        history.push(Arc::new(said(Some("An answer. ".repeat(30)), Vec::new())));
    }
    let mut goal = CompactionGoal::quarter(&history, 6, 3000);
    goal.tokens_max = 10_000;
    // `benches/compaction.rs` measures the time.
    assert!(compact(&history, &goal).unwrap().tokens_after <= 10_000);
}

#[tokio::test]
async fn low_context_warning_is_shown_once_with_advice() {
    let mut steps: Vec<ModelStep> =
        (0..12).map(|nth| echo(&format!("{nth} {}", "word ".repeat(200)))).collect();
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = small(80);
    let mut stage = bench.start().await;
    let outcome = stage.play("Go.").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    let mut warnings: Vec<&String> = seen
        .iter()
        .filter_map(|one| match one.event() {
            Event::Warning { message } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    warnings.sort_unstable();
    assert!(warnings[0].starts_with("instructions and tools take "), "{warnings:?}");
    assert!(warnings[0].contains("raise context.main.maxContextTokens"), "{warnings:?}");
    assert!(warnings[1].starts_with("the context of build is "), "{warnings:?}");
}
