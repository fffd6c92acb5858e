//! Providers that are away: waiting, parking, and others that take over. On a clock that is
//! advanced by hand.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posse_actors::conversation::{ContentPart, Prompt};
use posse_actors::cost::{PriceLookup, TokenRates};
use posse_actors::event::{Announcement, Event, HookEvent};
use posse_actors::outcome::Ending;
use posse_actors::ports::{
    Abilities, Clock, Fallback, HookInvocation, HookPayload, HookResult, Provider, ProviderError,
};
use posse_actors::root_session::TurnOutcome;
use posse_actors::testing::{
    HookFn, ManualClock, ModelStep, RunCounter, RunningSession, ScriptedModel, SessionBuilder,
    WritingTool,
};

use crate::support::{count, end, soon};

const SECOND: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_mins(1);

fn busy(retry_after: Option<Duration>) -> ModelStep {
    ModelStep::Fail(
        String::new(),
        ProviderError::RateLimited { retry_after, source: "busy".into() },
    )
}

fn on_a_clock(bench: &mut SessionBuilder) -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::seeded(11));
    bench.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    bench.limits.delta_interval = Duration::ZERO;
    clock
}

fn fallback(
    name: &str,
    steps: Vec<ModelStep>,
    abilities: Abilities,
) -> (Arc<ScriptedModel>, Fallback) {
    let model = Arc::new(ScriptedModel::new(steps).named(name));
    let provider = Arc::clone(&model) as Arc<dyn Provider>;
    // Ten tokens read are 50 cents, two written 10.
    let price = Some(price(50_000_000_000));
    (model, Fallback { provider, abilities, price })
}

/// A million tokens read cost $50,000, as many written this many micro-USD.
fn price(output: u64) -> PriceLookup {
    let (input, cached_input, cache_write) = (50_000_000_000, None, None);
    PriceLookup::fixed(TokenRates {
        input,
        output,
        cached_input,
        cache_write,
        version: "test".to_owned(),
    })
}

/// Prompts, and lets time pass whenever nobody does anything.
async fn play(stage: &mut RunningSession, clock: &ManualClock, prompt: &str) -> TurnOutcome {
    let running = stage.session.prompt(Prompt::text(prompt)).await.unwrap();
    outlast(stage, clock, running.outcome()).await
}

async fn outlast(
    stage: &mut RunningSession,
    clock: &ManualClock,
    outcome: impl Future<Output = Option<TurnOutcome>>,
) -> TurnOutcome {
    let mut outcome = std::pin::pin!(outcome);
    soon("the run", async {
        let mut idle = 0;
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => return outcome.unwrap(),
                announcement = stage.events.next() => {
                    idle = 0;
                    stage.seen.push(announcement.unwrap());
                }
                () = tokio::task::yield_now() => {
                    idle += 1;
                    if let Some(next) = clock.next_wake().filter(|_| idle > 50) {
                        idle = 0;
                        clock.advance(next);
                    }
                }
            }
        }
    })
    .await
}

fn switches(seen: &[Arc<Announcement>]) -> Vec<String> {
    let switch = |seen: &Arc<Announcement>| match seen.event() {
        Event::ProviderFailover { from, to, class, skipped, .. } => {
            Some(format!("{from} > {to}: {class} {}", skipped.join("; ")).trim_end().to_owned())
        }
        _ => None,
    };
    seen.iter().filter_map(switch).collect()
}

#[tokio::test]
async fn outage_during_work_repeats_nothing() {
    let run_counter = RunCounter::default();
    let clock = Arc::new(ManualClock::seeded(11));
    let mut steps: Vec<ModelStep> = (0..40).map(|_| ModelStep::call("write", "{}")).collect();
    steps.push(ModelStep::Away(Arc::clone(&clock), 15 * MINUTE));
    steps.extend((0..10).map(|_| ModelStep::call("write", "{}")));
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps).tool(WritingTool::new(run_counter.clone()));
    bench.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    bench.limits.delta_interval = Duration::ZERO;
    bench.limits.turns_max = 100;
    bench.limits.patience = 24 * 60 * MINUTE;
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 50, "each call ran once");
    let probes = bench.model.probes();
    let rare = |pair: &[Duration]| pair[1].saturating_sub(pair[0]) >= 5 * SECOND;
    assert!(probes[2..].windows(2).all(rare), "{probes:?}");
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "tool.completed"), 50);
    assert!(count(&seen, "provider.waiting") > 5);
}

#[tokio::test]
async fn unattended_run_waits_out_an_outage_of_a_day() {
    let clock = Arc::new(ManualClock::seeded(11));
    let day = 24 * 60 * MINUTE;
    let mut bench = SessionBuilder::new(vec![
        ModelStep::call("echo", r#"{"text":"a"}"#),
        ModelStep::Away(Arc::clone(&clock), day.saturating_sub(MINUTE)),
        ModelStep::say("done"),
    ]);
    bench.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    bench.limits.delta_interval = Duration::ZERO;
    bench.limits.patience = day;
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
}

#[tokio::test]
async fn failover_within_two_seconds_and_failback() {
    let call = || ModelStep::call("echo", r#"{"text":"a"}"#);
    let mut bench = SessionBuilder::new(vec![busy(Some(3600 * SECOND)), ModelStep::say("back")]);
    let clock = on_a_clock(&mut bench);
    let (other, fallback) =
        fallback("other", vec![call(), ModelStep::say("done")], Abilities::default());
    bench.fallbacks = vec![fallback];
    bench.price = Some(price(0));
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    assert!(clock.monotonic() <= 2 * SECOND, "{:?}", clock.monotonic());
    assert_eq!((bench.model.requests().len(), other.requests().len()), (1, 2));
    clock.advance(3599 * SECOND);
    let again = play(&mut stage, &clock, "again").await;
    assert_eq!(again.ending, Ending::Answered("back".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(switches(&seen), ["scripted > other: rate_limited", "other > scripted: recovered"]);
    let asked: Vec<_> = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::ModelRequest { provider, .. } => Some(provider.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, ["scripted", "other", "other", "scripted"]);
    let Event::SessionEnded { cost_usd, .. } = seen.last().unwrap().event() else { panic!() };
    assert_eq!(*cost_usd, Some(1.7), "each at its own price");
}

#[tokio::test]
async fn hooks_see_the_model_and_review_fallback_replies() {
    let mut bench = SessionBuilder::new(vec![busy(Some(3600 * SECOND))]);
    let clock = on_a_clock(&mut bench);
    let script = vec![ModelStep::say("no good"), ModelStep::say("no better")];
    let (other, fallback) = fallback("other", script, Abilities::default());
    let models = [bench.model.info().model, other.info().model];
    bench.fallbacks = vec![fallback];
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let places = &[HookEvent::BeforeModelRequest, HookEvent::AfterModelResponse];
    bench.hooks =
        Arc::new(HookFn(places, move |occasion: &HookInvocation| match &occasion.moment {
            HookPayload::BeforeModelRequest { model, .. } => {
                telling.lock().unwrap().push(model.clone());
                Some(HookResult::Pass)
            }
            _ => Some(HookResult::Block),
        }));
    let mut stage = bench.start().await;
    for prompt in ["go", "again"] {
        let outcome = play(&mut stage, &clock, prompt).await;
        let class = match &outcome.ending {
            Ending::Failed { class, .. } => class.as_str(),
            ending => panic!("{ending:?}"),
        };
        assert_eq!(class, "hook");
    }
    let seen = end(&bench, stage).await;
    assert_eq!(*told.lock().unwrap(), models);
    assert_eq!(switches(&seen), ["scripted > other: rate_limited"]);
    let kept: Vec<_> = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::ModelReply { message, .. } => message.content.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(kept, Vec::<String>::new(), "what a hook discards is no reply");
}

#[tokio::test]
async fn request_error_never_fails_over() {
    for error in [
        ProviderError::ContextFull { source: "x".into() },
        ProviderError::Unauthorized { source: "x".into() },
        ProviderError::Filtered { source: "x".into() },
        ProviderError::Rejected { source: "x".into() },
        ProviderError::Unasked { class: ProviderError::REDIRECTED, source: "x".into() },
    ] {
        let class = format!("provider.{}", error.class());
        let mut bench = SessionBuilder::new(vec![ModelStep::Fail(String::new(), error)]);
        let clock = on_a_clock(&mut bench);
        let (other, fallback) = fallback("other", vec![ModelStep::say("no")], Abilities::default());
        bench.fallbacks = vec![fallback];
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, &clock, "go").await;
        assert!(
            matches!(&outcome.ending, Ending::Failed { class: actual, .. } if *actual == class)
        );
        let seen = end(&bench, stage).await;
        assert_eq!((other.requests().len(), switches(&seen).len()), (0, 0), "{class}");
    }
}

#[tokio::test]
async fn unsuitable_fallback_is_skipped_with_the_reason() {
    let mut bench = SessionBuilder::new(vec![busy(Some(3600 * SECOND))]);
    let clock = on_a_clock(&mut bench);
    let deaf = Abilities { tools: Some(false), ..Abilities::default() };
    let blind = Abilities { images: Some(false), ..Abilities::default() };
    let small = Abilities { window: Some(1000), ..Abilities::default() };
    let all = [("deaf", deaf), ("blind", blind), ("small", small), ("able", Abilities::default())];
    let all = all.map(|(name, abilities)| fallback(name, vec![ModelStep::say(name)], abilities));
    bench.fallbacks = all.iter().map(|(_, fallback)| fallback.clone()).collect();
    let mut stage = bench.start().await;
    let image =
        ContentPart::ImageUrl { url: "data:image/png;base64,AA==".to_owned(), detail: None };
    let prompt = Prompt { content: vec![ContentPart::text("see"), image] };
    let running = stage.session.prompt(prompt).await.unwrap();
    let outcome = outlast(&mut stage, &clock, running.outcome()).await;
    assert_eq!(outcome.ending, Ending::Answered("able".to_owned()));
    let seen = end(&bench, stage).await;
    insta::assert_snapshot!(switches(&seen).join("\n"), @"scripted > able: rate_limited deaf: it calls no tools; blind: it sees no images; small: the conversation does not fit into its context");
}

#[tokio::test]
async fn first_available_provider_answers_after_a_total_outage() {
    let clock = Arc::new(ManualClock::seeded(11));
    let away = |minutes: u32| ModelStep::Away(Arc::clone(&clock), minutes * MINUTE);
    let mut bench = SessionBuilder::new(vec![away(60), ModelStep::say("first")]);
    bench.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    bench.limits.delta_interval = Duration::ZERO;
    bench.limits.patience = 30 * MINUTE;
    let (other, fallback) =
        fallback("other", vec![away(20), ModelStep::say("second")], Abilities::default());
    bench.fallbacks = vec![fallback];
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert_eq!(outcome.ending, Ending::Answered("second".to_owned()));
    assert!(clock.monotonic() < 22 * MINUTE, "{:?}", clock.monotonic());
    for probes in [bench.model.probes(), other.probes()] {
        let rare = |pair: &[Duration]| pair[1].saturating_sub(pair[0]) >= 5 * SECOND;
        assert!(probes[3..].windows(2).all(rare), "{probes:?}");
    }
    end(&bench, stage).await;
}

#[tokio::test]
async fn run_parks_when_patience_ends_and_continues_on_request() {
    let quota = ProviderError::QuotaExhausted {
        retry_after: Some(5 * 60 * MINUTE),
        source: "the week is over".into(),
    };
    let mut bench = SessionBuilder::new(vec![
        ModelStep::call("echo", r#"{"text":"a"}"#),
        ModelStep::Fail(String::new(), quota),
        ModelStep::say("done"),
    ]);
    let clock = on_a_clock(&mut bench);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    let Ending::Parked { class, next_try_ms: Some(next), .. } = outcome.ending else {
        panic!("{outcome:?}")
    };
    assert_eq!(class, "provider.quota");
    assert!((5 * 3_600_000..=5 * 3_600_000 + 40_000).contains(&next), "{next}");
    assert!(clock.monotonic() < MINUTE, "it does not wait for what is beyond its patience");
    clock.advance(5 * 60 * MINUTE + MINUTE);
    let outcome = play(&mut stage, &clock, "go on").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "session.parked"), count(&seen, "tool.completed")), (1, 1));
}

#[tokio::test]
async fn parked_run_may_continue_automatically_once() {
    let mut bench = SessionBuilder::new(vec![
        busy(Some(60 * MINUTE)),
        ModelStep::call("echo", r#"{"text":"a"}"#),
        busy(Some(60 * MINUTE)),
        busy(Some(60 * MINUTE)),
        ModelStep::say("not asked for"),
    ]);
    let clock = on_a_clock(&mut bench);
    bench.limits.outwaits_once = true;
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert!(matches!(outcome.ending, Ending::Parked { .. }), "{outcome:?}");
    assert_eq!(bench.model.requests().len(), 4, "once for each reply");
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "session.parked"), 3);
}

#[tokio::test]
async fn silence_is_reported_and_can_be_interrupted() {
    let mut bench = SessionBuilder::new(vec![ModelStep::Hang(String::new())]);
    let clock = on_a_clock(&mut bench);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the hint", async {
        while count(&stage.seen, "provider.silent") < 2 {
            tokio::select! {
                biased;
                announcement = stage.events.next() => stage.seen.push(announcement.unwrap()),
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(100)),
            }
        }
    })
    .await;
    let silent: Vec<_> = stage
        .seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::ProviderSilent { silent_ms, .. } => Some(silent_ms / 1000),
            _ => None,
        })
        .collect();
    assert!(silent[0] >= 20 && silent[0] <= 21, "{silent:?}");
    stage.session.interrupt();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    end(&bench, stage).await;
}

#[tokio::test]
async fn broken_replies_are_retried_a_few_times_and_marked() {
    let cut = |text: &str| {
        let (partial, source) = (text.to_owned(), "cut at byte 7".into());
        ModelStep::Fail(text.to_owned(), ProviderError::Cut { partial, source })
    };
    let mut bench = SessionBuilder::new(vec![
        cut("one"),
        cut("two"),
        cut("three"),
        cut("four"),
        ModelStep::say("five"),
    ]);
    let clock = on_a_clock(&mut bench);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert_eq!(outcome.ending, Ending::Answered("five".to_owned()));
    let seen = end(&bench, stage).await;
    let partial: Vec<_> = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::ModelPartial { text, cause, .. } => Some((text.as_str(), cause.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(partial, [("one", "cut"), ("two", "cut"), ("three", "cut"), ("four", "cut")]);
    for request in bench.model.requests() {
        assert_eq!(request.len(), 2, "what broke off is not part of the history");
    }
}

#[tokio::test]
async fn client_that_always_crashes_is_skipped() {
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Panic,
        ModelStep::Panic,
        ModelStep::Panic,
        ModelStep::Panic,
    ]);
    let clock = on_a_clock(&mut bench);
    let (_, fallback) = fallback("other", vec![ModelStep::say("done")], Abilities::default());
    bench.fallbacks = vec![fallback];
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, &clock, "go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "session.parked"), switches(&seen).len()), (0, 1));
}

#[tokio::test]
async fn clock_jumps_do_not_change_waits() {
    const YEAR_MS: u64 = 365 * 24 * 3_600_000;
    let quota = ProviderError::QuotaExhausted {
        retry_after: Some(3600 * SECOND),
        source: "the day is over".into(),
    };
    let mut bench = SessionBuilder::new(vec![
        busy(Some(60 * SECOND)),
        ModelStep::call("echo", r#"{"text":"a"}"#),
        ModelStep::Fail(String::new(), quota),
    ]);
    let clock = on_a_clock(&mut bench);
    clock.set_ahead(50 * YEAR_MS);
    bench.limits.duration_max = Some(120 * SECOND);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::ProviderRetry { .. })).await;
    // A year ahead, a year back, to 1970, and where it was.
    for years in [51, 49, 0, 50] {
        clock.set_ahead(years * YEAR_MS);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.model.requests().len(), 1, "the wait is as long as it was");
        clock.advance(10 * SECOND);
    }
    clock.set_ahead(10 * YEAR_MS);
    let outcome = outlast(&mut stage, &clock, running.outcome()).await;
    let Ending::Parked { next_try_ms: Some(next), .. } = outcome.ending else {
        panic!("{outcome:?}")
    };
    let waited = clock.monotonic();
    assert!((60 * SECOND..100 * SECOND).contains(&waited), "{waited:?}");
    // When the next try is worth it is said by the clock that the user sees now.
    let away = next.saturating_sub(clock.wall_ms());
    assert!((3_600_000..=3_640_000).contains(&away), "{away}");
    let seen = end(&bench, stage).await;
    let records: Vec<u64> = bench.journal.records().iter().map(|record| record.record).collect();
    assert_eq!(records, (1..=records.len() as u64).collect::<Vec<_>>(), "in their order");
    assert_eq!(count(&seen, "limit.reached"), 0, "the time that passes counts, and no other");
}
