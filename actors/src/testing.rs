//! Implementations of the ports for tests: a scripted model, a journal in memory, a manual clock,
//! scripted tools, and a builder for sessions.
//!
//! All state belongs to one test, so tests can run in parallel.

mod clock;
mod journal;
mod model;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::agent_invocation::RequestOptions;
use crate::conversation::{CallId, InvocationId, Message, Prompt, SessionId};
use crate::event::{Announcement, Event, HookEvent, Origin, RecordId};
use crate::limits::Limits;
use crate::ports::{
    Action, AnswerSource, CallContext, CheckpointStore, Confinement, GrantStore, Hook,
    HookInvocation, HookReport, HookResult, Ids, NetworkAccess, NoCheckpoints, NoGrants, NoHooks,
    PermissionQuestion, Policy, PortFuture, Ports, Situation, Toolbox, Verdict,
};
use crate::root_session::{FailPoints, SessionHandle, SessionSettings, TurnOutcome};
use crate::subscription::Subscription;

pub use clock::{ManualClock, TokioClock};
pub use journal::MemoryStore;
pub use model::{ModelStep, ScriptedModel};
pub use tools::{
    AskingTool, ChangingTool, EchoTool, GatedTool, GuardedTool, HangingTool, PanickingTool,
    RunCounter, WritingTool,
};

/// Context of the call `call` of a main agent with the name `agent`.
pub fn call_of_main(
    session: impl Into<Arc<str>>,
    call: impl Into<Arc<str>>,
    agent: &str,
) -> CallContext {
    let origin = Origin {
        invocation_id: InvocationId::new("main"),
        parent_invocation_id: None,
        agent: agent.to_owned(),
        agent_path: agent.to_owned(),
    };
    CallContext {
        session_id: SessionId::new(session),
        call_id: CallId::new(call),
        agent: agent.to_owned(),
        origin: Arc::new(origin),
        by_user: false,
    }
}

/// Source of ids that count up, so that snapshots are stable.
#[derive(Debug)]
pub struct CountedIds {
    process: u32,
    next: AtomicU32,
}

impl Default for CountedIds {
    fn default() -> CountedIds {
        CountedIds::of(1)
    }
}

impl CountedIds {
    /// Source of ids for the process with the number `process`. Processes that use the same journal
    /// need different numbers.
    pub fn of(process: u32) -> CountedIds {
        CountedIds { process, next: AtomicU32::new(0) }
    }

    fn count(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Ids for CountedIds {
    fn new_id(&self, kind: &str) -> String {
        let what = match kind {
            "c" => "call",
            "i" => "inv",
            "q" => "question",
            _ => "message",
        };
        match (self.process, self.count()) {
            (1, count) => format!("{what}-{count}"),
            (process, count) => format!("{what}-{process}-{count}"),
        }
    }

    fn record(&self) -> RecordId {
        RecordId { process: self.process, count: self.count() }
    }
}

/// Confinement that the policies for tests return.
pub fn test_confinement() -> Confinement {
    Confinement {
        profile: "test".to_owned(),
        writable_roots: Vec::new(),
        network: NetworkAccess::Denied,
    }
}

/// Policy that calls a function for each decision.
pub struct PolicyFn<F>(pub F);

impl<F> Policy for PolicyFn<F>
where
    F: Fn(&Action, &Situation<'_>) -> Verdict + Send + Sync + 'static,
{
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        (self.0)(action, situation)
    }
}

impl<F> std::fmt::Debug for PolicyFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolicyFn")
    }
}

/// Hook that calls a function at the listed points, for all tools. If the function returns `None`,
/// the hook never ends.
pub struct HookFn<F>(pub &'static [HookEvent], pub F);

impl<F> Hook for HookFn<F>
where
    F: Fn(&HookInvocation) -> Option<HookResult> + Send + Sync + 'static,
{
    fn has_hook(&self, event: HookEvent, _: Option<&str>) -> bool {
        self.0.contains(&event)
    }

    fn fire(&self, occasion: HookInvocation) -> PortFuture<Vec<HookReport>> {
        let report = |says| HookReport {
            hook: "test".to_owned(),
            says,
            message: Some("so says the test".to_owned()),
            metadata: serde_json::Value::Null,
            duration: std::time::Duration::ZERO,
        };
        match (self.1)(&occasion) {
            Some(says) => Box::pin(std::future::ready(vec![report(says)])),
            None => Box::pin(std::future::pending()),
        }
    }
}

impl<F> std::fmt::Debug for HookFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookFn")
    }
}

/// Policy that allows everything.
pub fn allow_all() -> Arc<dyn Policy> {
    Arc::new(PolicyFn(|_: &Action, _: &Situation<'_>| Verdict::Allow(test_confinement())))
}

/// Policy that asks for every call, unless a grant whose operation is the name of the tool exists.
/// `--yes` covers all its requests.
pub fn ask_all() -> Arc<dyn Policy> {
    use crate::event::{Grant, Scope};

    Arc::new(PolicyFn(|action: &Action, situation: &Situation<'_>| {
        let covers = |grant: &Grant| grant.operation == action.tool;
        if situation.grants.iter().any(covers) {
            return Verdict::Allow(test_confinement());
        }
        let grant = Grant {
            operation: action.tool.clone(),
            target: String::new(),
            scope: Scope::Session,
            agent: None,
        };
        Verdict::Ask(PermissionQuestion {
            reason: format!("{} asks", action.tool),
            scopes: vec![Scope::Once, Scope::Session],
            grant: Some(grant),
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: true,
            rule: None,
            confinement: test_confinement(),
        })
    }))
}

/// Builder for a session with test ports. Change the fields under test, then call
/// [`start`](SessionBuilder::start).
pub struct SessionBuilder {
    /// Scripted model that [`start`](SessionBuilder::start) uses.
    pub model: Arc<ScriptedModel>,
    /// Provider that replaces the scripted model, and the one that is passed to
    /// [`start_with`](SessionBuilder::start_with); `None`: they are used.
    pub provider: Option<Arc<dyn crate::ports::Provider>>,
    /// Fallback models, in order of preference.
    pub fallbacks: Vec<crate::ports::Fallback>,
    /// Journal of the session, in memory; empty by default.
    pub journal: Arc<MemoryStore>,
    /// Tools of the session, all of which the main agent sees; by default only [`EchoTool`].
    pub tools: Toolbox,
    /// Permission policy; by default it allows everything.
    pub policy: Arc<dyn Policy>,
    /// Store of grants that outlive the session.
    pub grants: Arc<dyn GrantStore>,
    /// Store of checkpoints; by default none are taken.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// Hooks of the session; none by default.
    pub hooks: Arc<dyn Hook>,
    /// Source of answers to permission requests; by default a person, whose answers the test gives.
    pub asking: AnswerSource,
    /// Bounds of the session; by default [`Limits::default`].
    pub limits: Limits,
    /// Clock of the session; by default [`TokioClock`].
    pub clock: Arc<dyn crate::ports::Clock>,
    /// Pricing of the main model; `None` if unknown.
    pub price: Option<crate::cost::PriceLookup>,
    /// Budget of the session, also as the limits set for this session only; by default no limits.
    pub budget: crate::cost::Budget,
    /// Spending before the start, for a new session or a fork.
    pub accounts: crate::ledger::Accounts,
    /// State to resume or fork from; `None` for a new session.
    pub resumption: Option<crate::root_session::Resumption>,
    /// Working directory of the session, which need not exist.
    pub cwd: String,
    /// Number of the simulated process; must differ between processes that use the same journal.
    pub process: u32,
    /// Configuration of subagents; `None`: single-agent mode.
    pub delegation: Option<crate::delegation::Delegation>,
    /// Settings for context windows, summaries and titles.
    pub context: crate::context::ContextSettings,
    /// Panics to inject into actors; none by default.
    pub fail: FailPoints,
}

impl SessionBuilder {
    /// Creates a builder with a model that performs `steps` in order, with [`EchoTool`] as the only
    /// tool, and with a policy that allows everything.
    pub fn new(steps: Vec<ModelStep>) -> SessionBuilder {
        SessionBuilder {
            model: Arc::new(ScriptedModel::new(steps)),
            provider: None,
            fallbacks: Vec::new(),
            journal: Arc::default(),
            tools: Toolbox::default(),
            policy: allow_all(),
            grants: Arc::new(NoGrants),
            checkpoints: Arc::new(NoCheckpoints),
            hooks: Arc::new(NoHooks),
            asking: AnswerSource::Human,
            limits: Limits::default(),
            clock: Arc::new(TokioClock::default()),
            price: None,
            budget: crate::cost::Budget::default(),
            accounts: crate::ledger::Accounts::default(),
            resumption: None,
            cwd: "/project".to_owned(),
            process: 1,
            delegation: None,
            context: crate::context::ContextSettings::default(),
            fail: FailPoints::default(),
        }
        .tool(EchoTool::new())
    }

    /// Adds a tool to the session. If its name is taken, the existing tool stays.
    #[must_use]
    pub fn tool(mut self, tool: impl crate::ports::Tool) -> SessionBuilder {
        self.tools.register(Arc::new(tool)).ok();
        self
    }

    /// Starts the session, with a subscription from its first event.
    ///
    /// # Panics
    /// If the session does not start.
    pub async fn start(&self) -> RunningSession {
        self.start_with(Arc::clone(&self.model) as Arc<dyn crate::ports::Provider>).await
    }

    /// Starts the session with `provider` as the model, unless the field `provider` is set.
    ///
    /// # Panics
    /// If the session does not start.
    pub async fn start_with(&self, provider: Arc<dyn crate::ports::Provider>) -> RunningSession {
        let settings = SessionSettings {
            posse: "test".to_owned(),
            system_prompt: "You are a test.".to_owned(),
            tools: self.tools.iter().map(|tool| tool.spec().name.clone()).collect(),
            options: RequestOptions { stream: true, ..RequestOptions::default() },
            asking: self.asking,
            limits: self.limits.clone(),
            resumption: self.resumption.clone().map(Box::new),
            price: self.price.clone(),
            budget: self.budget,
            own_budget: self.budget,
            accounts: self.accounts.clone(),
            delegation: self.delegation.clone(),
            context: self.context.clone(),
            fail: self.fail.clone(),
            ..SessionSettings::new(SessionId::new("session"), self.cwd.clone(), "build")
        };
        let ports = Ports {
            provider: self.provider.clone().unwrap_or(provider),
            fallbacks: self.fallbacks.clone(),
            tools: Arc::new(self.tools.clone()),
            hooks: Arc::clone(&self.hooks),
            policy: Arc::clone(&self.policy),
            grants: Arc::clone(&self.grants),
            checkpoints: Arc::clone(&self.checkpoints),
            journal: Arc::clone(&self.journal) as Arc<dyn crate::ports::JournalStore>,
            clock: Arc::clone(&self.clock),
            ids: Arc::new(CountedIds::of(self.process)),
        };
        #[expect(clippy::expect_used, reason = "a test that cannot start has failed")]
        let session = SessionHandle::start(ports, settings).await.expect("the session starts");
        let events = session.subscribe();
        RunningSession { session, events, seen: Vec::new() }
    }
}

impl std::fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBuilder").finish_non_exhaustive()
    }
}

/// A running session with a subscription, and the events received so far.
#[derive(Debug)]
pub struct RunningSession {
    /// Handle of the running session.
    pub session: SessionHandle,
    /// Subscription to the session's events.
    pub events: Subscription,
    /// Announcements that [`until`](RunningSession::until) has received so far.
    pub seen: Vec<Arc<Announcement>>,
}

impl RunningSession {
    /// Sends a prompt and waits for its outcome.
    ///
    /// # Panics
    /// If the session is busy, or ends without an outcome.
    #[expect(clippy::expect_used, reason = "a test that gets no outcome has failed")]
    pub async fn play(&mut self, prompt: &str) -> TurnOutcome {
        let running = self.session.prompt(Prompt::text(prompt)).await.expect("not busy");
        running.outcome().await.expect("the session lives")
    }

    /// Waits for the first event that `wanted` accepts, and returns it. All events until then are
    /// added to `seen`.
    ///
    /// # Panics
    /// If the subscription ends before such an event.
    #[expect(clippy::expect_used, reason = "a test whose event never comes has failed")]
    pub async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Arc<Announcement> {
        loop {
            let announcement = self.events.next().await.expect("the event comes before the end");
            self.seen.push(Arc::clone(&announcement));
            if wanted(announcement.event()) {
                return announcement;
            }
        }
    }

    /// Ends the session as completed. Returns the announcements in `seen` and all later ones of the
    /// subscription.
    pub async fn end(mut self) -> Vec<Arc<Announcement>> {
        let ending = crate::root_session::SessionEnding {
            reason: crate::event::SessionEndReason::Completed,
            exit_code: 0,
            result: None,
            error: None,
        };
        self.session.end(ending).await;
        while let Some(announcement) = self.events.next().await {
            self.seen.push(announcement);
        }
        self.seen
    }
}

/// Reason why a provider would reject `history`; `None` if it is valid. Each call of a reply needs
/// exactly one result, right after the reply, in the order of the calls; no other results are
/// allowed; no call id repeats; and no reply may be empty.
pub fn history_error(history: &[Arc<Message>]) -> Option<String> {
    let mut ids = std::collections::HashSet::new();
    let mut owed: std::collections::VecDeque<CallId> = std::collections::VecDeque::new();
    for (nth, message) in history.iter().enumerate() {
        if let Message::Tool { tool_call_id, .. } = &**message {
            if owed.pop_front().as_ref() != Some(tool_call_id) {
                return Some(format!("message {nth} answers {tool_call_id} out of turn"));
            }
            continue;
        }
        if let Some(call) = owed.front() {
            return Some(format!("{call} has no result before message {nth}"));
        }
        if let Message::Assistant(said) = &**message {
            if said.content.as_deref().is_none_or(str::is_empty) && said.tool_calls.is_empty() {
                return Some(format!("message {nth} says nothing"));
            }
            for call in &said.tool_calls {
                if !ids.insert(call.id.clone()) {
                    return Some(format!("{} is there twice", call.id));
                }
                owed.push_back(call.id.clone());
            }
        }
    }
    owed.front().map(|call| format!("{call} has no result"))
}

/// Event types of `announcements`, such as `session.started`, for snapshots.
pub fn types(announcements: &[Arc<Announcement>]) -> Vec<String> {
    let kind = |announcement: &Arc<Announcement>| {
        let json = serde_json::to_value(announcement.event()).unwrap_or_default();
        json["type"].as_str().unwrap_or_default().to_owned()
    };
    announcements.iter().map(kind).collect()
}
