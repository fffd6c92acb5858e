//! Many invocations that share one provider, on a clock that is advanced by hand.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use tokio::sync::{oneshot, watch};

use super::*;
use crate::context::{ContextBudget, ContextMeter, ContextSettings};
use crate::conversation::{
    AssistantMessage, ContentPart, InvocationId, SessionId, StopReason, text_of,
};
use crate::cost::Budget;
use crate::event::SandboxTier;
use crate::ledger::BudgetHandle;
use crate::limits::Limits;
use crate::mailbox::{AllGone, SupervisedRef, spawn_child};
use crate::permission_coordinator::{GrantView, ModeView};
use crate::ports::{
    Abilities, AnswerSource, Clock, Completion, DeltaSender, NoGrants, NoHooks, PortFuture,
    Provider, ProviderError, ProviderInfo, Request, Tool, Toolbox,
};
use crate::provider_client::ProviderClient;
use crate::subscription::Feed;
use crate::testing::{
    CountedIds, ManualClock, MemoryStore, RunCounter, WritingTool, allow_all, history_error,
};
use crate::testing_seam::FailPoints;
use crate::transcript_writer::{self, Outbox, TranscriptWriter};

const MINUTE: Duration = Duration::from_mins(1);

/// Duration of a reply.
const REPLY: Duration = Duration::from_secs(2);

/// Calls that each invocation makes, and how many of them when the storm begins.
const CALLS: usize = 50;
const CALLS_BEFORE: u32 = 40;

const INVOCATIONS: usize = 8;

/// A model that wants one call after another, and is away for a while.
struct FlakyModel {
    clock: Arc<ManualClock>,
    storm: Range<Duration>,
    seen: Mutex<OutageRecord>,
}

#[derive(Default)]
struct OutageRecord {
    /// Times of requests during the outage.
    away: Vec<Duration>,
    /// Replies, by who was replied to and how many results that one had.
    replies: BTreeMap<(String, usize), u32>,
    flaws: Vec<String>,
}

impl FlakyModel {
    fn record<T>(&self, look: impl FnOnce(&mut OutageRecord) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Provider for FlakyModel {
    fn info(&self) -> ProviderInfo {
        let (profile, model) = ("weather".to_owned(), "w".to_owned());
        ProviderInfo { profile, model, endpoint: "nowhere".to_owned() }
    }

    fn complete(
        &self,
        request: Request,
        _: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let now = self.clock.monotonic();
        if self.storm.contains(&now) {
            self.record(|seen| seen.away.push(now));
            let error = ProviderError::Overloaded {
                kind: crate::ports::OverloadKind::Overload,
                retry_after: None,
                source: "529".into(),
            };
            return Box::pin(std::future::ready(Err(error)));
        }
        let said = |message: &Arc<Message>| match &**message {
            Message::User { content } => Some(text_of(content)),
            Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
        };
        let who = request.messages.iter().find_map(said).unwrap_or_default();
        let is_result = |message: &&Arc<Message>| matches!(***message, Message::Tool { .. });
        let results = request.messages.iter().filter(is_result).count();
        self.record(|seen| {
            seen.flaws.extend(history_error(&request.messages));
            *seen.replies.entry((who.clone(), results)).or_default() += 1;
        });
        let wait = self.clock.sleep(REPLY);
        Box::pin(async move {
            wait.await;
            let call = |nth: usize| ToolCall {
                id: CallId::new("1"),
                provider_id: None,
                name: "write".to_owned(),
                arguments: format!(r#"{{"text":"{who} {nth}"}}"#),
            };
            let goes_on = results < CALLS;
            let message = AssistantMessage {
                content: (!goes_on).then(|| format!("{who} is done")),
                tool_calls: if goes_on { vec![call(results)] } else { Vec::new() },
                ..AssistantMessage::default()
            };
            let stop_reason = if goes_on { StopReason::ToolUse } else { StopReason::EndTurn };
            Ok(Completion { message, stop_reason, usage: None, model: None })
        })
    }
}

/// Starts invocations, and survives them.
struct Keeper;

impl Actor for Keeper {
    type Msg = Args;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Args>, (): ()) -> StartResult<()> {
        Ok(())
    }

    async fn handle(&self, me: ActorRef<Args>, args: Args, (): &mut ()) -> HandlerResult {
        spawn_child(AgentInvocation, args, &me).await?;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Args>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> HandlerResult {
        assert!(!matches!(event, SupervisionEvent::ActorFailed(..)), "an invocation crashed");
        Ok(())
    }
}

/// State shared by all invocations.
struct Fleet {
    services: Arc<Services>,
    model_routes: ModelRoutes,
    tools: Arc<[ToolSpec]>,
    store: Arc<MemoryStore>,
    keeper: ActorRef<Args>,
}

impl Fleet {
    #[expect(clippy::too_many_lines, reason = "everything that a session would start")]
    async fn start(
        weather: &Arc<FlakyModel>,
        clock: &Arc<ManualClock>,
        calls: &RunCounter,
    ) -> Fleet {
        let limits = Arc::new(Limits {
            turns_max: 1000,
            patience: Duration::from_hours(24),
            delta_interval: Duration::ZERO,
            ..Limits::default()
        });
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let (session_id, ids) = (SessionId::new("s"), Arc::new(CountedIds::default()));
        let (writer, line) = watch::channel(None);
        let outbox = Arc::new(Outbox::new(session_id.clone()));
        let transcript = Transcript::new(
            Arc::clone(&outbox),
            line,
            Arc::clone(&clock),
            Arc::clone(&ids) as Arc<dyn crate::ports::Ids>,
        );
        let store = Arc::new(MemoryStore::default());
        let args = transcript_writer::Args {
            store: Arc::clone(&store) as Arc<dyn crate::ports::JournalStore>,
            clock: Arc::clone(&clock),
            feed: Feed::new(session_id.clone()),
            outbox,
            patience: limits.patience,
            fail: FailPoints::none(),
        };
        let spawned = Actor::spawn(None, TranscriptWriter, args).await;
        writer.send_replace(Some(spawned.unwrap().0));
        let args = provider_client::Args {
            providers: vec![Arc::clone(weather) as Arc<dyn Provider>],
            prices: vec![None],
            budget_handle: BudgetHandle::new(Budget::default(), 0, |_| ()),
            clock: Arc::clone(&clock),
            transcript: transcript.clone(),
            limits: Arc::clone(&limits),
            fail: FailPoints::none(),
            half_open: false,
        };
        let (client, _) = Actor::spawn(None, ProviderClient, args).await.unwrap();
        let client = SupervisedRef::new(watch::Sender::new(Some(client)).subscribe());
        let info = weather.info();
        let contact = ModelRoute { client, model: 0, info, abilities: Abilities::default() };
        let tool = WritingTool::new(calls.clone());
        let specs = vec![tool.spec().clone()];
        let mut tools = Toolbox::default();
        tools.register(Arc::new(tool)).ok();
        let book =
            GrantView::new(Vec::new(), Arc::new(NoGrants), Arc::clone(&clock), transcript.clone());
        let services = Services {
            session_id,
            tools: Arc::new(tools),
            hooks: Arc::new(NoHooks),
            policy: allow_all(),
            clock,
            ids,
            transcript,
            permissions: SupervisedRef::new(watch::Sender::new(None).subscribe()),
            book,
            mode: ModeView::default(),
            checkpoints: tool_call::Checkpoints::none(SessionId::new("s")),
            notices: tool_call::Notices::default(),
            todos: tool_call::TodoLists::default(),
            asking: AnswerSource::Nobody,
            tier: SandboxTier::None,
            cwd: "/project".to_owned(),
            limits,
            delegation_handle: None,
            fail: FailPoints::none(),
        };
        let (keeper, _) = Actor::spawn(None, Keeper, ()).await.unwrap();
        Fleet {
            services: Arc::new(services),
            model_routes: ModelRoutes::new(vec![contact]),
            tools: specs.into(),
            store,
            keeper,
        }
    }

    fn send_out(&self, who: usize) -> (oneshot::Receiver<InvocationOutcome>, AllGone) {
        let (presence, absence) = AliveToken::new();
        let (sender, outcome) = oneshot::channel();
        let content = vec![ContentPart::text(format!("agent {who}"))];
        let args = Args {
            origin: Arc::new(Origin {
                invocation_id: InvocationId::new(format!("i{who}")),
                parent_invocation_id: None,
                agent: "worker".to_owned(),
                agent_path: "build/worker".to_owned(),
            }),
            services: Arc::clone(&self.services),
            model_routes: self.model_routes.clone(),
            options: RequestOptions { stream: true, ..RequestOptions::default() },
            tools: Arc::clone(&self.tools),
            history: vec![Arc::new(Message::User { content })],
            resumed: Resumed::default(),
            time: None,
            tokens_max: None,
            fitter: ContextFitter {
                budget: ContextBudget::main(),
                settings: ContextSettings::default(),
                meter: ContextMeter::default(),
                summariser: None,
            },
            presence,
            report: Report::call(move |outcome: Result<InvocationOutcome, Lost>| {
                if let Ok(outcome) = outcome {
                    sender.send(outcome).ok();
                }
            }),
        };
        tell(&self.keeper, args);
        (outcome, absence)
    }
}

#[tokio::test]
async fn eight_invocations_wait_out_an_outage_and_repeat_nothing() {
    for seed in 1..4 {
        let clock = Arc::new(ManualClock::seeded(seed));
        // When it begins, each has more than forty calls behind it.
        let begins = REPLY * (CALLS_BEFORE + 2);
        let weather = Arc::new(FlakyModel {
            clock: Arc::clone(&clock),
            storm: begins..begins + 15 * MINUTE,
            seen: Mutex::default(),
        });
        let calls = RunCounter::default();
        let fleet = Fleet::start(&weather, &clock, &calls).await;
        let mut out: Vec<_> = (0..INVOCATIONS).map(|who| fleet.send_out(who)).collect();
        let mut done = Vec::new();
        let mut at_the_storm = None;
        while !out.is_empty() {
            for _ in 0..60 {
                tokio::task::yield_now().await;
            }
            out.retain_mut(|(outcome, _)| match outcome.try_recv() {
                Ok(outcome) => {
                    done.push(outcome);
                    false
                }
                Err(oneshot::error::TryRecvError::Empty) => true,
                Err(oneshot::error::TryRecvError::Closed) => panic!("seed {seed}: one is lost"),
            });
            let began = calls.began.load(std::sync::atomic::Ordering::SeqCst);
            if at_the_storm.is_none() && weather.record(|seen| !seen.away.is_empty()) {
                at_the_storm = Some(began);
            }
            if let Some(next) = clock.next_wake() {
                clock.advance(next);
            }
        }
        let enough = CALLS_BEFORE * u32::try_from(INVOCATIONS).unwrap();
        assert!(at_the_storm.unwrap() >= enough, "seed {seed}: {at_the_storm:?}");
        for InvocationOutcome { ending, history, .. } in &done {
            assert!(matches!(ending, Ending::Answered(text) if text.ends_with("is done")));
            let is_result = |message: &&Arc<Message>| {
                matches!(&***message, Message::Tool { is_error: false, .. })
            };
            assert_eq!(history.iter().filter(is_result).count(), CALLS, "no result is lost");
        }
        assert_eq!(done.len(), INVOCATIONS, "seed {seed}");
        let ran = calls.began.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(ran as usize, INVOCATIONS * CALLS, "seed {seed}: no call runs twice");
        let (away, replies, flaws) = weather.record(|seen| {
            (seen.away.clone(), std::mem::take(&mut seen.replies), std::mem::take(&mut seen.flaws))
        });
        assert_eq!(flaws, Vec::<String>::new());
        assert!(replies.values().all(|count| *count == 1), "seed {seed}: {replies:?}");
        assert_eq!(replies.len(), INVOCATIONS * (CALLS + 1));
        // Those that found out about it were on their way; who comes later is one at a time.
        let probes = &away[INVOCATIONS.min(away.len())..];
        let rare =
            probes.windows(2).all(|pair| pair[1].saturating_sub(pair[0]) >= Duration::from_secs(5));
        assert!(rare && probes.len() > 20, "seed {seed}: {probes:?}");
        let completed = |event: &Event| matches!(event, Event::ToolCompleted { .. });
        let recorded = fleet.store.events().iter().filter(|event| completed(event)).count();
        assert_eq!(recorded, INVOCATIONS * CALLS, "seed {seed}: each is recorded");
    }
}
