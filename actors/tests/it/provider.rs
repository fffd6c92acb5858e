//! Attempts, waits and broken replies, on a clock that is advanced by hand.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::{AssistantMessage, CallId, Message, Prompt, StopReason, ToolCall};
use posse_actors::event::{Announcement, Event};
use posse_actors::outcome::Ending;
use posse_actors::ports::{Clock, Completion, ProviderError};
use posse_actors::testing::{ManualClock, ModelStep, RunningSession, SessionBuilder, types};

use crate::support::{count, end, play, quick, soon};

const SECOND: Duration = Duration::from_secs(1);

fn busy(retry_after: Option<Duration>) -> ModelStep {
    ModelStep::Fail(
        String::new(),
        ProviderError::Overloaded {
            kind: posse_actors::ports::OverloadKind::Overload,
            retry_after,
            source: "busy".into(),
        },
    )
}

fn by_hand(steps: Vec<ModelStep>) -> (SessionBuilder, Arc<ManualClock>) {
    let mut bench = SessionBuilder::new(steps);
    let clock = Arc::new(ManualClock::default());
    bench.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    (bench, clock)
}

fn waits(seen: &[Arc<Announcement>]) -> Vec<u64> {
    let wait = |seen: &Arc<Announcement>| match seen.event() {
        Event::ProviderRetry { wait_ms, .. } => Some(*wait_ms),
        _ => None,
    };
    seen.iter().filter_map(wait).collect()
}

/// Plays one prompt; each wait is let pass as soon as somebody sleeps.
async fn wait_out(bench: &SessionBuilder, clock: &ManualClock) -> (Ending, Vec<Arc<Announcement>>) {
    let mut stage = bench.start().await;
    let ending = run_prompt(bench, &mut stage, clock).await;
    let seen = end(bench, stage).await;
    (ending, seen)
}

/// Runs one prompt and advances the clock by each announced wait.
async fn run_prompt(
    bench: &SessionBuilder,
    stage: &mut RunningSession,
    clock: &ManualClock,
) -> Ending {
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let mut outcome = std::pin::pin!(running.outcome());
    soon("the run", async {
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => return outcome.unwrap().ending,
                announcement = stage.events.next() => {
                    let announcement = announcement.unwrap();
                    if let Event::ProviderRetry { wait_ms, .. } = announcement.event() {
                        while clock.sleepers() == 0 {
                            tokio::task::yield_now().await;
                        }
                        let wait = Duration::from_millis(*wait_ms);
                        clock.advance(wait.saturating_sub(Duration::from_millis(1)));
                        let before = bench.model.requests().len();
                        for _ in 0..50 {
                            tokio::task::yield_now().await;
                        }
                        assert_eq!(bench.model.requests().len(), before, "not before its time");
                        clock.advance(Duration::from_millis(1));
                    }
                    stage.seen.push(announcement);
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn each_prompt_at_a_missing_server_fails_equally_soon() {
    let missing = || {
        let source = "nothing listens".into();
        ModelStep::Fail(String::new(), ProviderError::NoServer { source })
    };
    let (bench, clock) = by_hand((0..6).map(|_| missing()).collect());
    let mut stage = bench.start().await;
    let mut times = Vec::new();
    for nth in 1..=2 {
        let before = clock.monotonic();
        let ending = run_prompt(&bench, &mut stage, &clock).await;
        assert!(matches!(ending, Ending::Failed { .. } | Ending::Parked { .. }), "{ending:?}");
        assert_eq!(bench.model.requests().len(), 3 * nth);
        times.push(clock.monotonic().saturating_sub(before));
    }
    assert_eq!(times[0], times[1], "the circuit breaker delayed the second prompt");
    end(&bench, stage).await;
}

#[tokio::test]
async fn reply_that_repeats_itself_is_stopped_and_retried_twice() {
    let pieces = || (0..2000).map(|_| "I am sorry. ".to_owned()).collect::<Vec<_>>();
    let (bench, clock) = by_hand((0..9).map(|_| ModelStep::Say(pieces())).collect());
    let (ending, seen) = wait_out(&bench, &clock).await;
    let Ending::Failed { class, cause } = &ending else { panic!("{ending:?}") };
    assert_eq!(class, "provider.repeating_reply");
    assert!(cause.contains("scripted: the same 12 bytes came"), "{cause}");
    assert_eq!((bench.model.requests().len(), waits(&seen).len()), (3, 2));
    // The part that had arrived is kept; it is much shorter than the whole reply.
    let kept: Vec<usize> = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::ModelPartial { text, .. } => Some(text.len()),
            _ => None,
        })
        .collect();
    assert!(kept.len() == 3 && kept.iter().all(|bytes| (4096..8192).contains(bytes)), "{kept:?}");

    // The next attempt may be better.
    let steps = vec![ModelStep::Say(pieces()), ModelStep::say("Here it is.")];
    let (bench, clock) = by_hand(steps);
    let (ending, _) = wait_out(&bench, &clock).await;
    assert_eq!(ending, Ending::Answered("Here it is.".to_owned()));
}

#[tokio::test]
async fn backoff_grows_until_patience_ends() {
    let (mut bench, clock) = by_hand((0..10).map(|_| busy(None)).collect());
    bench.limits.patience = 60 * SECOND;
    let (ending, seen) = wait_out(&bench, &clock).await;
    // 1 + 2 + 5 + 8 + 16 is 32; another 30 would be more than the minute, at whose end it is tried
    // for the last time. That many failures in a row are looked into no more often than every five
    // seconds.
    assert_eq!(waits(&seen), [1000, 2000, 5000, 8000, 16000, 28000]);
    let next_try_ms = Some(60_000 + 30_000);
    let class = "provider.overloaded".to_owned();
    let cause = "the provider is overloaded: busy".to_owned();
    assert_eq!(ending, Ending::Parked { class: class.clone(), cause: cause.clone(), next_try_ms });
    let parked = Event::SessionParked { cause, class: Some(class), next_try_ms };
    assert_eq!(seen.iter().filter(|seen| *seen.event() == parked).count(), 1);
    assert!(count(&seen, "provider.waiting") >= 6);
    assert_eq!(bench.model.requests().len(), 7);
}

#[tokio::test]
async fn wait_reports_a_countdown() {
    let (mut bench, clock) = by_hand(vec![busy(Some(20 * SECOND)), ModelStep::say("done")]);
    bench.limits.patience = 60 * SECOND;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let mut outcome = std::pin::pin!(running.outcome());
    let mut left = Vec::new();
    soon("the run", async {
        loop {
            tokio::select! {
                biased;
                _ = &mut outcome => return,
                announcement = stage.events.next() => {
                    if let Event::ProviderWaiting { wait_ms, patience_left_ms, class, cause, .. } =
                        announcement.unwrap().event()
                    {
                        assert_eq!((class.as_str(), *patience_left_ms), ("overloaded", 40_000));
                        assert!(cause.ends_with("busy"), "{cause}");
                        left.push(*wait_ms);
                    }
                }
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(100)),
            }
        }
    })
    .await;
    assert!(left.is_sorted_by(|a, b| a > b) && left.len() > 5, "{left:?}");
    assert_eq!(left[0], 20_000);
    stage.end().await;
}

#[tokio::test]
async fn crash_of_the_client_does_not_reset_patience() {
    let (mut bench, clock) = by_hand((0..20).map(|_| busy(Some(20 * SECOND))).collect());
    bench.limits.patience = 60 * SECOND;
    bench.fail.arm("ProviderClient", "AttemptEnded", 2);
    let (ending, seen) = wait_out(&bench, &clock).await;
    assert!(matches!(ending, Ending::Parked { .. }), "{ending:?}");
    assert_eq!(bench.fail.left(), 0);
    assert_eq!(waits(&seen), [20_000, 20_000, 20_000], "a minute in all");
}

#[tokio::test]
async fn retry_after_of_the_provider_is_honoured() {
    let (bench, clock) =
        by_hand(vec![busy(Some(7 * SECOND)), busy(Some(3600 * SECOND)), ModelStep::say("done")]);
    let (ending, seen) = wait_out(&bench, &clock).await;
    assert_eq!(ending, Ending::Answered("done".to_owned()));
    assert_eq!(waits(&seen), [7000, 30000]);
}

#[tokio::test]
async fn permanent_error_fails_at_once() {
    for error in [
        ProviderError::ContextFull { source: "x".into() },
        ProviderError::Unauthorized { source: "x".into() },
        ProviderError::Filtered { source: "x".into() },
        ProviderError::Rejected { source: "x".into() },
    ] {
        let class = format!("provider.{}", error.class());
        let bench = SessionBuilder::new(vec![
            ModelStep::Fail(String::new(), error),
            ModelStep::say("fine"),
        ]);
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        let Ending::Failed { class: actual, .. } = outcome.ending else {
            panic!("{class}: {outcome:?}")
        };
        assert_eq!(actual, class);
        // The session goes on.
        let next = play(&mut stage, "again", &[]).await.unwrap();
        assert_eq!(next.ending, Ending::Answered("fine".to_owned()));
        end(&bench, stage).await;
    }
}

#[tokio::test]
async fn broken_reply_is_recorded_and_retried() {
    let broken = |text: &str, partial: &str| {
        let (partial, source) = (partial.to_owned(), "cut at byte 7".into());
        ModelStep::Fail(text.to_owned(), ProviderError::Broken { partial, source })
    };
    for (text, partial) in [("half", "half"), ("", "half")] {
        let mut bench = SessionBuilder::new(vec![broken(text, partial), ModelStep::say("done")]);
        bench.limits = quick();
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
        let seen = end(&bench, stage).await;
        let kept = |event: &Event| matches!(event, Event::ModelPartial { text, cause, .. } if text == "half" && cause == "broken_reply");
        assert_eq!(seen.iter().filter(|seen| kept(seen.event())).count(), 1);
        let sent = bench.model.requests();
        assert_eq!(sent[0].len(), sent[1].len(), "the same turn again");
    }
}

#[tokio::test]
async fn garbage_is_retried_within_patience() {
    let broken = || {
        let (partial, source) = (String::new(), "garbage".into());
        ModelStep::Fail(String::new(), ProviderError::Broken { partial, source })
    };
    let garbage = |count: usize| (0..count).map(|_| broken());
    let mut bench = SessionBuilder::new(garbage(6).chain([ModelStep::say("after all")]).collect());
    bench.limits = quick();
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("after all".to_owned()));
    assert_eq!(bench.model.requests().len(), 7);
    end(&bench, stage).await;
    // Patience ends it.
    let (mut bench, clock) = by_hand(garbage(200).collect());
    bench.limits.patience = 60 * SECOND;
    let (ending, _) = wait_out(&bench, &clock).await;
    assert!(
        matches!(&ending, Ending::Failed { class, .. } if class == "provider.broken_reply"),
        "{ending:?}"
    );
    let made = bench.model.requests().len();
    assert!((4..100).contains(&made), "{made}");
}

#[tokio::test]
async fn empty_reply_is_asked_for_again_in_one_piece() {
    let empty = || {
        let source = "nothing came".into();
        ModelStep::Fail(String::new(), ProviderError::Empty { source })
    };
    let steps = vec![empty(), empty(), empty(), ModelStep::say("done")];
    let mut bench = SessionBuilder::new(steps);
    bench.limits = quick();
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    assert_eq!(bench.model.streamed(), [true, false, true, false]);
    end(&bench, stage).await;
}

#[tokio::test]
async fn reply_without_text_and_calls_is_requested_again() {
    let call = || ModelStep::call("echo", r#"{"text":"a"}"#);
    // At the beginning of a run, and after calls.
    for (before, text) in [(false, ""), (false, " \n"), (true, "")] {
        let steps = before.then(call).into_iter();
        let steps =
            steps.chain([ModelStep::say(text), ModelStep::say(text), ModelStep::say("yes")]);
        let mut bench = SessionBuilder::new(steps.collect());
        bench.limits = quick();
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("yes".to_owned()), "{before} {text:?}");
        let streamed = bench.model.streamed();
        assert_eq!(streamed[usize::from(before)..], [true, false, true], "{before} {text:?}");
        end(&bench, stage).await;
    }
}

#[tokio::test]
async fn run_whose_last_reply_stays_empty_fails() {
    let call = || ModelStep::call("echo", r#"{"text":"a"}"#);
    for before in [false, true] {
        let steps = before.then(call).into_iter();
        let (mut bench, clock) =
            by_hand(steps.chain((0..200).map(|_| ModelStep::say(""))).collect());
        bench.limits.patience = 60 * SECOND;
        let (ending, _) = wait_out(&bench, &clock).await;
        assert!(
            matches!(&ending, Ending::Failed { class, cause }
                if class == "provider.empty_reply" && cause.contains("no text and no tool call")),
            "{before} {ending:?}"
        );
    }
}

/// Steps, whether the user has set a patience, attempts, class of the ending, and whether it takes longer than
/// the attempts at a missing server may take.
type AbsenceRow = (Vec<ModelStep>, bool, Option<usize>, &'static str, bool);

#[tokio::test]
async fn missing_server_ends_a_run_early_only_at_its_beginning() {
    let missing = || {
        let source = "nothing listens".into();
        ModelStep::Fail(String::new(), ProviderError::NoServer { source })
    };
    let foreign = || {
        let source = "an HTML page".into();
        ModelStep::Fail(String::new(), ProviderError::NotTheProvider { source })
    };
    let many = |step: &dyn Fn() -> ModelStep| (0..60).map(|_| step()).collect::<Vec<_>>();
    let after_a_call = |steps: Vec<ModelStep>| {
        std::iter::once(ModelStep::call("echo", r#"{"text":"a"}"#)).chain(steps).collect()
    };
    let unreachable = "provider.unreachable";
    let table: Vec<AbsenceRow> = vec![
        (many(&missing), false, Some(3), unreachable, false),
        (many(&missing), true, None, unreachable, true),
        (after_a_call(many(&missing)), false, None, unreachable, true),
        (many(&foreign), false, Some(3), "provider.not_the_provider", false),
        (many(&foreign), true, None, "provider.not_the_provider", true),
        (after_a_call(many(&foreign)), false, None, "provider.not_the_provider", true),
    ];
    for (row, (steps, patient, attempts, expected, waits)) in table.into_iter().enumerate() {
        let (mut bench, clock) = by_hand(steps);
        bench.limits.patience = 120 * SECOND;
        // A run that ends early because no server was found must not wait for the next attempt.
        bench.limits.outwaits_once = !waits;
        if patient {
            bench.limits.absent_attempts_max = None;
        }
        let (ending, seen) = wait_out(&bench, &clock).await;
        let class = match &ending {
            Ending::Parked { class, .. } | Ending::Failed { class, .. } => class.as_str(),
            other => panic!("row {row}: {other:?}"),
        };
        assert_eq!(class, expected, "row {row}");
        // The countdown shows the patience for such attempts, and none before the last one.
        let left = seen.iter().filter_map(|seen| match seen.event() {
            Event::ProviderWaiting { patience_left_ms, .. } => Some(*patience_left_ms),
            _ => None,
        });
        let left: Vec<u64> = left.collect();
        let is_short = left.iter().all(|left| *left <= 15_000);
        assert_eq!(is_short, attempts.is_some(), "row {row}: {left:?}");
        assert_eq!(left.last(), Some(&0), "row {row}: {left:?}");
        if let Some(attempts) = attempts {
            assert_eq!(bench.model.requests().len(), attempts, "row {row}");
        }
        let passed = clock.monotonic();
        assert_eq!(passed > 15 * SECOND, waits, "row {row}: {passed:?}");
    }
}

#[tokio::test]
async fn deltas_precede_their_reply_and_match_it() {
    let pieces: Vec<String> = (0..2000).map(|nth| format!("{nth} ")).collect();
    let mut bench = SessionBuilder::new(vec![ModelStep::Say(pieces.clone())]);
    bench.limits = quick();
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    let kinds = types(&seen);
    let reply = kinds.iter().position(|kind| kind == "model.text").unwrap();
    let last = kinds.iter().rposition(|kind| kind == "model.text.delta").unwrap();
    assert!(last < reply);
    let text: String = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::TextDelta { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, pieces.concat());
    assert!(count(&seen, "model.text.delta") < 1000, "joined");
}

#[tokio::test]
async fn repeated_and_empty_call_ids_become_unique() {
    let call = |id: &str| ToolCall {
        id: CallId::new(id),
        provider_id: None,
        name: "echo".to_owned(),
        arguments: format!(r#"{{"text":"{id}"}}"#),
    };
    let reply = || {
        ModelStep::Reply(Completion {
            message: AssistantMessage {
                tool_calls: vec![call("same"), call("same"), call("")],
                ..AssistantMessage::default()
            },
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: None,
        })
    };
    let bench = SessionBuilder::new(vec![reply(), reply(), ModelStep::say("done")]);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "tool.completed"), 6);
    let sent = bench.model.requests().pop().unwrap();
    let theirs: Vec<_> = sent
        .iter()
        .filter_map(|message| match &**message {
            Message::Assistant(said) => Some(&said.tool_calls),
            _ => None,
        })
        .flatten()
        .map(|call| call.provider_id.as_deref())
        .collect();
    assert_eq!(theirs, [Some("same"), Some("same"), None].repeat(2));
}

#[tokio::test]
async fn invalid_calls_are_answered_and_not_run() {
    let bench = SessionBuilder::new(vec![
        ModelStep::call("nothing", "{}"),
        ModelStep::call("echo", "{not json"),
        ModelStep::call("echo", r#"{"text": ["a"]}"#),
        ModelStep::say("done"),
    ]);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "tool.started"), count(&seen, "tool.failed")), (0, 3));
}

#[tokio::test]
async fn withheld_reply_ends_the_turn_and_runs_nothing() {
    let call = ToolCall {
        id: CallId::new("1"),
        provider_id: None,
        name: "echo".to_owned(),
        arguments: "{}".to_owned(),
    };
    let message = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
    let (stop_reason, usage, model) = (StopReason::ContentFilter, None, None);
    let reply = ModelStep::Reply(Completion { message, stop_reason, usage, model });
    let bench = SessionBuilder::new(vec![reply, ModelStep::say("fine")]);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert!(matches!(&outcome.ending, Ending::Failed { class, .. } if class == "content_filter"));
    play(&mut stage, "again", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "model.content_filter"), count(&seen, "tool.requested")), (1, 0));
}

#[tokio::test]
async fn stops_at_the_turn_limit() {
    let mut bench = SessionBuilder::new(
        (0..9).map(|nth| ModelStep::calls("echo", &[&nth.to_string()])).collect(),
    );
    bench.limits.turns_max = 3;
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Limited { limit: "maxTurns", value: 3, said: None });
    assert_eq!((outcome.turns, outcome.usage.input_tokens), (3, Some(30)));
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "limit.reached"), 1);
}

#[tokio::test]
async fn turn_and_token_limits_hold_across_a_crash() {
    let mut bench = SessionBuilder::new(
        (0..9).map(|nth| ModelStep::calls("echo", &[&nth.to_string()])).collect(),
    );
    bench.limits.turns_max = 3;
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    bench.fail.arm("AgentInvocation", "CallEnded", 1);
    let outcome = play(&mut stage, "again", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Limited { limit: "maxTurns", value: 3, said: None });
    assert_eq!((outcome.turns, outcome.usage.input_tokens), (3, Some(30)));
    end(&bench, stage).await;
    assert_eq!(bench.fail.left(), 0);
}

/// Plays one prompt until it waits for the provider, and stops it.
async fn stop_the_wait(stage: &mut RunningSession) {
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let waits = |event: &Event| matches!(event, Event::ProviderWaiting { .. });
    soon("the wait", stage.until(waits)).await;
    stage.session.interrupt();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
}

fn limited(wait: Duration) -> ModelStep {
    let retry_after = Some(wait);
    let error = ProviderError::RateLimited { retry_after, source: "too many".into() };
    ModelStep::Fail(String::new(), error)
}

#[tokio::test]
async fn requested_retry_runs_at_once_and_its_result_counts() {
    let hour = 3600 * SECOND;
    let steps = vec![limited(hour), limited(hour), limited(hour), ModelStep::say("done")];
    let (mut bench, clock) = by_hand(steps);
    // More than what is asked: it is waited for, and not parked.
    bench.limits.patience = 3 * hour;
    bench.limits.retry_after_max = 2 * hour;
    let mut stage = bench.start().await;
    for tries in 1..=3 {
        stop_the_wait(&mut stage).await;
        assert_eq!(bench.model.requests().len(), tries, "one for each prompt, and no more");
    }
    let outcome = stage.play("now?").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    assert_eq!(clock.monotonic(), Duration::ZERO, "nobody waited");
    end(&bench, stage).await;
}

#[tokio::test]
async fn parked_run_is_retried_on_request_and_reports_its_reason_once() {
    let hour = 3600 * SECOND;
    let (mut bench, clock) = by_hand(vec![limited(hour), limited(hour), ModelStep::say("done")]);
    bench.limits.patience = 60 * SECOND;
    bench.limits.retry_after_max = 2 * hour;
    let mut stage = bench.start().await;
    for tries in 1..=2 {
        let outcome = stage.play("go").await;
        let cause = "the provider limits the rate of requests: too many".to_owned();
        let class = "provider.rate_limited".to_owned();
        let next_try_ms = Some(3_600_000);
        assert_eq!(outcome.ending, Ending::Parked { class, cause, next_try_ms });
        assert_eq!(bench.model.requests().len(), tries);
    }
    let outcome = stage.play("now?").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    assert_eq!(clock.monotonic(), Duration::ZERO);
    end(&bench, stage).await;
}
