//! The accounts of many requests that end in every way there is, and a budget at its edges.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posse_actors::conversation::{AssistantMessage, CallId, StopReason, ToolCall, Usage};
use posse_actors::cost::{Budget, BudgetRefusal, ModelPricing, PriceLookup, TokenRates};
use posse_actors::event::{Event, StoredRecord};
use posse_actors::ledger::Accounts;
use posse_actors::outcome::Ending;
use posse_actors::ports::{
    Abilities, Completion, Delta, DeltaSender, Fallback, PortFuture, Provider, ProviderError,
    ProviderInfo, Request,
};
use posse_actors::replay::replay;
use posse_actors::root_session::FailPoints;
use posse_actors::testing::{ModelStep, SessionBuilder};

use crate::support::{end, soon};

/// Requests that a model works on, over all sessions.
const REQUESTS: u64 = 10_000;
const SESSIONS: u64 = 20;

fn rates(input: u64, output: u64) -> TokenRates {
    let (cached_input, cache_write) = (Some(input / 10), Some(input * 5 / 4));
    TokenRates { input, output, cached_input, cache_write, version: "test".to_owned() }
}

/// What a provider has counted itself.
#[derive(Debug, Default, Clone)]
struct Own {
    requests: u64,
    unanswered: u64,
    uncounted: u64,
    usage: Usage,
    /// Of what was counted, in pico-USD, by its own arithmetic.
    nano: u64,
}

/// A provider that keeps its own books, and does everything that providers do.
struct Merchant {
    name: &'static str,
    rates: TokenRates,
    dice: Mutex<u64>,
    left: Arc<AtomicU32>,
    own: Arc<Mutex<Own>>,
    fail: FailPoints,
}

impl Merchant {
    fn roll(&self, sides: u64) -> u64 {
        let mut state = self.dice.lock().unwrap();
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn usage(&self) -> Usage {
        let input = 1 + self.roll(50_000);
        let output = 1 + self.roll(8000);
        let maybe = |tokens| (self.roll(2) == 0).then_some(tokens);
        let cached = maybe(self.roll(input / 2 + 1));
        Usage {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cached_input_tokens: cached,
            reasoning_tokens: maybe(self.roll(output + 1)),
            cache_write_tokens: maybe(self.roll(input / 2 + 1)),
        }
    }

    /// Writes a request into its own books.
    fn book(&self, usage: Option<Usage>, answered: bool) {
        let mut own = self.own.lock().unwrap();
        own.requests += 1;
        own.unanswered += u64::from(!answered);
        let Some(usage) = usage else {
            own.uncounted += 1;
            return;
        };
        own.uncounted += u64::from(!answered);
        own.usage.add(&usage);
        let count = |tokens: Option<u64>| tokens.unwrap_or(0);
        let (cached, kept) = (count(usage.cached_input_tokens), count(usage.cache_write_tokens));
        let fresh = count(usage.input_tokens) - cached - kept;
        let TokenRates { input, output, .. } = self.rates;
        let pico = fresh * input
            + cached * (input / 10)
            + kept * (input * 5 / 4)
            + count(usage.output_tokens) * output;
        own.nano += pico.div_ceil(1000);
    }

    fn completion(&self, usage: Option<Usage>) -> Completion {
        let over = self.left.load(Ordering::SeqCst) == 0;
        let call = || ToolCall {
            id: CallId::new("1"),
            provider_id: None,
            name: "echo".to_owned(),
            arguments: r#"{"text":"a"}"#.to_owned(),
        };
        let message = AssistantMessage {
            content: Some("done".to_owned()),
            reasoning: None,
            tool_calls: if over { Vec::new() } else { vec![call()] },
        };
        let stop_reason = if over { StopReason::EndTurn } else { StopReason::ToolUse };
        Completion { message, stop_reason, usage, model: None }
    }

    /// What becomes of one request: what is counted on the way, and the end.
    fn act(&self) -> (Option<Usage>, Result<Completion, ProviderError>) {
        let worked = |usage, answered: bool| {
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).ok();
            self.book(usage, answered);
        };
        let source = || "on purpose".into();
        match self.roll(100) {
            0..8 => {
                let usage = self.usage();
                worked(Some(usage), false);
                let partial = "half".to_owned();
                (Some(usage), Err(ProviderError::Cut { partial, source: source() }))
            }
            8..12 => {
                worked(None, false);
                let partial = String::new();
                (None, Err(ProviderError::Broken { partial, source: source() }))
            }
            12..15 => {
                // In the middle of a reply.
                let usage = self.usage();
                worked(Some(usage), false);
                (
                    Some(usage),
                    Err(ProviderError::Overloaded {
                        kind: posse_actors::ports::OverloadKind::Overload,
                        retry_after: None,
                        source: source(),
                    }),
                )
            }
            15..22 => (
                None,
                Err(ProviderError::Overloaded {
                    kind: posse_actors::ports::OverloadKind::Overload,
                    retry_after: None,
                    source: source(),
                }),
            ),
            22..25 => {
                (None, Err(ProviderError::RateLimited { retry_after: None, source: source() }))
            }
            25..29 => {
                worked(None, true);
                (None, Ok(self.completion(None)))
            }
            roll => {
                let points = [
                    ("ProviderClient", "AttemptEnded"),
                    ("ProviderClient", "Complete"),
                    ("AgentInvocation", "Replied"),
                    ("AgentInvocation", "CallEnded"),
                ];
                if let Some((actor, kind)) = points.get(usize::try_from(roll - 29).unwrap()) {
                    self.fail.arm(actor, kind, 1);
                }
                let usage = self.usage();
                worked(Some(usage), true);
                (Some(usage), Ok(self.completion(Some(usage))))
            }
        }
    }
}

impl Provider for Merchant {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            profile: self.name.to_owned(),
            model: format!("{}-1", self.name),
            endpoint: self.name.to_owned(),
        }
    }

    fn complete(
        &self,
        _: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let (counted, result) = self.act();
        Box::pin(async move {
            if let Some(usage) = counted {
                deltas.send(Delta::Usage(usage)).await.ok();
            }
            result
        })
    }
}

/// One session of `requests`; returns its accounts, its records, and the books of its providers.
async fn session(seed: u64, requests: u32) -> (Accounts, Vec<StoredRecord>, [Own; 2], Usage) {
    let left = Arc::new(AtomicU32::new(requests));
    let mut bench = SessionBuilder::new(Vec::new());
    let merchant = |name, seed, rates| Merchant {
        name,
        rates,
        dice: Mutex::new(seed),
        left: Arc::clone(&left),
        own: Arc::default(),
        fail: bench.fail.clone(),
    };
    let first = Arc::new(merchant("first", seed, rates(3_000_000, 15_000_000)));
    let second = Arc::new(merchant("second", seed + 1000, rates(250_000, 2_000_000)));
    let price = |merchant: &Merchant| Some(PriceLookup::fixed(merchant.rates.clone()));
    bench.price = price(&first);
    bench.fallbacks = vec![Fallback {
        provider: Arc::clone(&second) as Arc<dyn Provider>,
        abilities: Abilities::default(),
        price: price(&second),
    }];
    bench.limits.turns_max = u32::MAX;
    bench.limits.restarts_max = u32::MAX;
    bench.limits.backoff_first = Duration::ZERO;
    bench.limits.backoff_max = Duration::ZERO;
    bench.limits.probe_interval = Duration::ZERO;
    bench.limits.failback_after = Duration::ZERO;
    bench.limits.cut_replies_max = 2;
    bench.limits.delta_interval = Duration::ZERO;
    bench.limits.events_buffered_max = 100_000;
    let provider = Arc::clone(&first) as Arc<dyn Provider>;
    let mut stage = bench.start_with(provider).await;
    let mut rounds = 0;
    while left.load(Ordering::SeqCst) > 0 {
        rounds += 1;
        assert!(rounds < 10_000, "it comes to an end");
        soon("a prompt", stage.play("go")).await;
    }
    // What was armed last may still be there.
    let accounts = stage.session.accounts().await.unwrap();
    let events = end(&bench, stage).await;
    let Event::SessionEnded { usage, .. } = events.last().unwrap().event() else { panic!() };
    let books = [&first, &second].map(|merchant| merchant.own.lock().unwrap().clone());
    (accounts, bench.journal.records(), books, *usage)
}

#[tokio::test]
async fn ten_thousand_requests_are_accounted_exactly() {
    let mut all = Own::default();
    let (mut retries, mut crashes) = (0, 0);
    for seed in 0..SESSIONS {
        let requests = u32::try_from(REQUESTS / SESSIONS).unwrap();
        let (accounts, records, books, ended) = session(seed, requests).await;
        let mut total = Own::default();
        for (name, own) in ["first", "second"].into_iter().zip(&books) {
            let key = (name.to_owned(), format!("{name}-1"));
            let account = accounts.models.get(&key).cloned().unwrap_or_default();
            assert_eq!(account.requests, own.requests, "{name}, seed {seed}");
            assert_eq!(account.usage, own.usage, "{name}, seed {seed}");
            assert_eq!(account.nano_usd, own.nano, "{name}, seed {seed}");
            total.usage.add(&own.usage);
            total.requests += own.requests;
            total.nano += own.nano;
            total.uncounted += own.uncounted;
            total.unanswered += own.unanswered;
        }
        assert_eq!(accounts.total.usage, total.usage);
        assert_eq!(
            (accounts.total.requests, accounts.total.nano_usd),
            (total.requests, total.nano)
        );
        // A crash can leave a reply unheard, which then has no answer but was counted.
        assert!(accounts.total.unpriced >= total.uncounted, "seed {seed}");
        assert!(accounts.total.unanswered >= total.unanswered, "seed {seed}");
        assert_eq!(ended, total.usage, "what the last record says");
        assert_eq!(accounts.agents["build"], accounts.total, "who asked");

        let mut read_back = Accounts::default();
        for record in &records {
            read_back.push(record);
        }
        assert_eq!(read_back.total, accounts.total, "what the journal says");
        assert_eq!((&read_back.models, &read_back.agents), (&accounts.models, &accounts.agents));
        assert_eq!(read_back.last_request, accounts.last_request);
        let replayed = replay(&records, None);
        assert_eq!((replayed.usage, replayed.accounts.total), (total.usage, read_back.total));
        retries += accounts.total.retries;
        let is_crash = |record: &&StoredRecord| matches!(record.event, Event::ActorCrashed { .. });
        crashes += records.iter().filter(is_crash).count();
        all.usage.add(&total.usage);
        all.requests += total.requests;
    }
    assert!(all.requests >= REQUESTS, "{all:?}");
    assert!(retries > 300 && crashes > 100, "{retries} retries, {crashes} crashes");
}

/// A dollar for a million tokens read, ten for a million written.
fn priced(output_max: u64) -> PriceLookup {
    let rates =
        TokenRates { cached_input: None, cache_write: None, ..rates(1_000_000, 10_000_000) };
    PriceLookup::new(move || ModelPricing {
        rates: Some(rates.clone()),
        output_max: Some(output_max),
    })
}

fn reply(usage: Usage, last: bool) -> ModelStep {
    let call = ToolCall {
        id: CallId::new("1"),
        provider_id: None,
        name: "echo".to_owned(),
        arguments: r#"{"text":"a"}"#.to_owned(),
    };
    let message = AssistantMessage {
        content: Some("done".to_owned()),
        reasoning: None,
        tool_calls: if last { Vec::new() } else { vec![call] },
    };
    let stop_reason = if last { StopReason::EndTurn } else { StopReason::ToolUse };
    ModelStep::Reply(Completion { message, stop_reason, usage: Some(usage), model: None })
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() }
}

fn refused(ending: &Ending) -> &BudgetRefusal {
    let Ending::OverBudget(refused) = ending else { panic!("{ending:?}") };
    refused
}

#[tokio::test]
async fn run_ends_before_a_request_could_exceed_the_budget() {
    // Each reply costs half a cent, and could cost five.
    let steps = (0..40).map(|_| reply(usage(1000, 400), false)).collect();
    let mut bench = SessionBuilder::new(steps);
    bench.price = Some(priced(5000));
    bench.budget = Budget { nano_usd: Some(100_000_000), tokens: None };
    bench.limits.turns_max = 100;
    let mut stage = bench.start().await;
    let outcome = soon("the run", stage.play("go")).await;
    let refused = refused(&outcome.ending).clone();
    assert_eq!((refused.limit, refused.cap), (BudgetRefusal::MONEY, 100_000_000));
    assert!(refused.spent <= 100_000_000 && refused.needed > refused.left(), "{refused:?}");
    let asked = u64::try_from(bench.model.requests().len()).unwrap();
    assert_eq!(refused.spent, asked * 5_000_000, "each request is counted, and none was refused");
    assert!(asked > 5, "what was held is given back: {asked}");
    let accounts = stage.session.accounts().await.unwrap();
    assert_eq!(accounts.total.nano_usd, refused.spent);
    let seen = end(&bench, stage).await;
    let limit = seen.iter().find_map(|seen| match seen.event() {
        Event::LimitReached { limit, value, spent, needed } => {
            Some((limit.clone(), *value, *spent, needed.is_some()))
        }
        _ => None,
    });
    let expected = (BudgetRefusal::MONEY.to_owned(), 100_000, Some(asked * 5000), true);
    assert_eq!(limit, Some(expected), "in the unit of the configuration");
}

#[tokio::test]
async fn reservation_is_durable_before_the_request() {
    let mut bench = SessionBuilder::new(vec![reply(usage(10, 5), true)]);
    bench.price = Some(priced(5000));
    bench.budget = Budget { nano_usd: Some(1_000_000_000), tokens: None };
    bench.journal.block_writes();
    let mut stage = bench.start().await;
    let running = stage.session.prompt(posse_actors::conversation::Prompt::text("go")).await;
    let outcome = running.unwrap().outcome();
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.model.requests().len(), 0, "no ledger, no request");
    bench.journal.release();
    soon("the run", outcome).await.unwrap();
    assert_eq!(bench.model.requests().len(), 1);
    stage.seen.clear();
    end(&bench, stage).await;
    let events = bench.journal.events();
    let at = |kind: fn(&Event) -> bool| events.iter().position(kind).unwrap();
    let reserved = at(|event| matches!(event, Event::BudgetReserved { .. }));
    assert!(reserved < at(|event| matches!(event, Event::ModelReply { .. })));
}

#[tokio::test]
async fn open_reservation_counts_as_spent_after_a_crash() {
    let mut bench = SessionBuilder::new(vec![ModelStep::Hang("half".to_owned())]);
    bench.price = Some(priced(5000));
    bench.budget = Budget { nano_usd: Some(1_000_000_000), tokens: None };
    let mut stage = bench.start().await;
    let running = stage.session.prompt(posse_actors::conversation::Prompt::text("go")).await;
    stage.until(|event| matches!(event, Event::TextDelta { .. })).await;
    // As if the process had been killed here.
    let mut accounts = Accounts::default();
    bench.journal.records().iter().for_each(|record| accounts.push(record));
    let held = accounts.spent();
    assert!(held.nano_usd > 50_000_000, "{held:?}");
    assert_eq!(accounts.total.requests, 0);
    // Another process goes on.
    let mut next = SessionBuilder::new(vec![reply(usage(10, 5), true)]);
    next.price = Some(priced(5000));
    next.budget = Budget { nano_usd: Some(held.nano_usd + 10_000_000), tokens: None };
    next.accounts = accounts;
    let mut resumed = next.start().await;
    let outcome = soon("the run", resumed.play("go")).await;
    assert_eq!(refused(&outcome.ending).spent, held.nano_usd);
    assert_eq!(next.model.requests().len(), 0);
    end(&next, resumed).await;
    // Stopped in time, the request has its line, and is counted at its worst.
    stage.session.interrupt();
    let outcome = soon("the end", running.unwrap().outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    let accounts = stage.session.accounts().await.unwrap();
    assert_eq!((accounts.total.requests, accounts.total.unanswered), (1, 1));
    assert_eq!((accounts.total.unpriced, accounts.spent()), (1, held));
    end(&bench, stage).await;
    let mut read_back = Accounts::default();
    bench.journal.records().iter().for_each(|record| read_back.push(record));
    assert_eq!(read_back.spent(), held, "once, and not twice");
}

#[tokio::test]
async fn token_budget_needs_no_price() {
    let steps = (0..40).map(|_| reply(usage(1000, 1000), false)).collect();
    let mut bench = SessionBuilder::new(steps);
    bench.budget = Budget { nano_usd: None, tokens: Some(20_000) };
    bench.limits.turns_max = 100;
    let mut stage = bench.start().await;
    let outcome = soon("the run", stage.play("go")).await;
    let refused = refused(&outcome.ending).clone();
    assert_eq!((refused.limit, refused.cap), (BudgetRefusal::TOKENS, 20_000));
    let asked = u64::try_from(bench.model.requests().len()).unwrap();
    assert_eq!(refused.spent, asked * 2000);
    assert!(asked >= 4, "{asked}");
    end(&bench, stage).await;
}

#[tokio::test]
async fn cost_budget_is_refused_without_a_price() {
    let mut bench = SessionBuilder::new(vec![ModelStep::say("never")]);
    bench.budget = Budget { nano_usd: Some(1_000_000_000), tokens: None };
    let mut stage = bench.start().await;
    let outcome = soon("the run", stage.play("go")).await;
    let Ending::Failed { class, cause } = &outcome.ending else { panic!("{outcome:?}") };
    assert_eq!(class, "provider.budget");
    assert!(cause.contains("no price is known for script-1"), "{cause}");
    assert_eq!(bench.model.requests().len(), 0);
    end(&bench, stage).await;
}

#[tokio::test]
async fn implausible_usage_is_recorded_separately() {
    let claims = [usage(0, 0), usage(1_000_000_000, 5)];
    for claimed in claims {
        let mut bench = SessionBuilder::new(vec![reply(claimed, true)]);
        bench.price = Some(priced(5000));
        bench.budget = Budget { nano_usd: Some(1_000_000_000), tokens: None };
        let mut stage = bench.start().await;
        soon("the run", stage.play("go")).await;
        let accounts = stage.session.accounts().await.unwrap();
        assert_eq!((accounts.total.usage, accounts.total.unpriced), (Usage::default(), 1));
        let spent = accounts.spent().nano_usd;
        assert!((50_000_000..60_000_000).contains(&spent), "its own estimate: {spent}");
        let seen = end(&bench, stage).await;
        let Event::SessionEnded { cost_usd, unpriced_requests, .. } = seen.last().unwrap().event()
        else {
            panic!()
        };
        assert_eq!((*cost_usd, *unpriced_requests), (None, 1));
        let billed = bench.journal.events().into_iter().find_map(|event| match event {
            Event::ModelUsage { billing, .. } => billing,
            _ => None,
        });
        assert_eq!(billed.unwrap().claimed, Some(claimed));
    }
}
