//! In every order of inputs the history stays valid for a provider.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::conversation::ContentPart;
use crate::testing::history_error;

fn bounds() -> LoopBounds {
    LoopBounds {
        tokens_max: None,
        turns_max: 25,
        parallel_calls_max: 8,
        calls_per_turn_max: 256,
        repeated_failures_max: 3,
        queued_messages_max: 64,
        delivery: QueueDelivery::default(),
        settles: false,
    }
}

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User { content: vec![ContentPart::text(text)] })
}

fn begun(bounds: LoopBounds) -> AgentLoop {
    let start = LoopStart { history: vec![user("go")], ..LoopStart::default() };
    let mut agent_loop = AgentLoop::new(bounds, start);
    assert_eq!(agent_loop.step(LoopInput::Begin), [Effect::AskModel]);
    agent_loop
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::new(id),
        provider_id: None,
        name: "tool".to_owned(),
        arguments: arguments.to_owned(),
    }
}

fn wants(calls: Vec<ToolCall>, alone: Vec<bool>) -> LoopInput {
    let message = AssistantMessage { tool_calls: calls, ..AssistantMessage::default() };
    LoopInput::Replied { message, alone, stop: StopReason::ToolUse, usage: None }
}

fn says(text: &str, stop: StopReason) -> LoopInput {
    let message =
        AssistantMessage { content: Some(text.to_owned()), ..AssistantMessage::default() };
    LoopInput::Replied { message, alone: Vec::new(), stop, usage: None }
}

fn queued(id: &str, kind: MessageKind) -> QueuedInput {
    QueuedInput { id: MessageId::new(id), kind, content: vec![ContentPart::text(id)] }
}

fn ended(id: &CallId, text: &str) -> LoopInput {
    LoopInput::CallEnded(id.clone(), ToolOutput::text(text))
}

fn started(effects: &[Effect]) -> Vec<CallId> {
    let mut ids = Vec::new();
    for effect in effects {
        if let Effect::Start(call) = effect {
            ids.push(call.id.clone());
        }
    }
    ids
}

fn finished(effects: &[Effect]) -> Option<&Ending> {
    effects.iter().find_map(|effect| {
        let Effect::Finish(ending) = effect else { return None };
        Some(ending)
    })
}

#[test]
fn answers_two_hundred_parallel_calls_in_their_order() {
    let mut agent_loop = begun(bounds());
    let calls: Vec<ToolCall> = (0..200).map(|nth| call(&format!("c{nth}"), "{}")).collect();
    let mut running = started(&agent_loop.step(wants(calls.clone(), vec![false; 200])));
    assert_eq!(running.len(), 8);
    let mut asked = false;
    while let Some(id) = running.pop() {
        let effects = agent_loop.step(ended(&id, id.as_str()));
        running.extend(started(&effects));
        assert!(running.len() <= 8);
        asked |= effects.contains(&Effect::AskModel);
    }
    assert!(asked);
    let results: Vec<&str> = agent_loop.history()[2..]
        .iter()
        .map(|message| {
            let Message::Tool { tool_call_id, .. } = &**message else { panic!("{message:?}") };
            tool_call_id.as_str()
        })
        .collect();
    let expected: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(results, expected);
    assert_eq!(history_error(agent_loop.history()), None);
}

#[test]
fn answers_calls_above_the_bound_without_running_them() {
    let mut agent_loop = begun(LoopBounds { calls_per_turn_max: 2, ..bounds() });
    let calls = (0..4).map(|nth| call(&format!("c{nth}"), "{}")).collect();
    let effects = agent_loop.step(wants(calls, vec![false; 4]));
    assert_eq!(started(&effects).len(), 2);
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Skip(..))).count(), 2);
    agent_loop.step(ended(&CallId::new("c1"), "x"));
    assert_eq!(agent_loop.step(ended(&CallId::new("c0"), "x")), [Effect::AskModel]);
    assert_eq!(history_error(agent_loop.history()), None);
}

#[test]
fn stops_a_model_that_makes_the_same_failing_call_three_times() {
    let mut agent_loop = begun(bounds());
    for nth in 0..3 {
        let id = CallId::new(format!("c{nth}"));
        agent_loop.step(wants(vec![call(id.as_str(), r#"{"a":1}"#)], vec![false]));
        let effects = agent_loop.step(LoopInput::CallEnded(id, ToolOutput::error("no")));
        match (nth, finished(&effects)) {
            (2, Some(Ending::Failed { class, cause })) => {
                assert_eq!(class, "loop");
                assert!(cause.starts_with("LOOP001"), "{cause}");
            }
            (0 | 1, None) => assert!(effects.contains(&Effect::AskModel)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(history_error(agent_loop.history()), None);
}

#[test]
fn different_failures_or_a_success_reset_the_repeat_counter() {
    let mut agent_loop = begun(bounds());
    let outcomes = [("a", true), ("a", true), ("b", true), ("a", true), ("a", false), ("a", true)];
    for (nth, (arguments, fails)) in outcomes.into_iter().enumerate() {
        let id = CallId::new(format!("c{nth}"));
        agent_loop.step(wants(vec![call(id.as_str(), arguments)], vec![false]));
        let output = if fails { ToolOutput::error("no") } else { ToolOutput::text("yes") };
        assert_eq!(agent_loop.step(LoopInput::CallEnded(id, output)), [Effect::AskModel]);
    }
}

#[test]
fn does_not_run_calls_of_a_reply_that_was_cut_off() {
    for stop in [StopReason::MaxTokens, StopReason::Error] {
        let mut agent_loop = begun(bounds());
        let message = AssistantMessage {
            tool_calls: vec![call("c", r#"{"path": "a"#)],
            ..AssistantMessage::default()
        };
        let input = LoopInput::Replied { message, alone: vec![true], stop, usage: None };
        let effects = agent_loop.step(input);
        assert!(matches!(&effects[..], [Effect::Skip(..), Effect::AskModel]), "{effects:?}");
        assert_eq!(history_error(agent_loop.history()), None);
    }
}

#[test]
fn replies_that_are_always_cut_off_end_the_run() {
    let usage = Usage { output_tokens: Some(4096), ..Usage::default() };
    let cut = |nth: u32| LoopInput::Replied {
        message: AssistantMessage {
            content: Some("I write".to_owned()),
            tool_calls: vec![call(&format!("c{nth}"), r#"{"path": "a"#)],
            ..AssistantMessage::default()
        },
        alone: vec![true],
        stop: StopReason::MaxTokens,
        usage: Some(usage),
    };
    let mut agent_loop = begun(bounds());
    // A whole reply in between begins the count again.
    for nth in 0..2 {
        assert_eq!(finished(&agent_loop.step(cut(nth))), None);
    }
    agent_loop.step(wants(vec![call("w", "{}")], vec![false]));
    agent_loop.step(ended(&CallId::new("w"), "x"));
    for nth in 3..5 {
        assert_eq!(finished(&agent_loop.step(cut(nth))), None);
    }
    let said = Some("I write".to_owned());
    let ending = Ending::Limited { limit: "maxTokens", value: 4096, said };
    let effects = agent_loop.step(cut(5));
    assert!(matches!(&effects[..], [Effect::Skip(..), Effect::Finish(_)]), "{effects:?}");
    assert_eq!(finished(&effects), Some(&ending));
    assert_eq!(history_error(agent_loop.history()), None);
}

#[test]
fn limit_of_a_reply_is_the_number_of_its_tokens() {
    for (output_tokens, value) in [(Some(512), 512), (None, 0)] {
        let usage = Some(Usage { output_tokens, ..Usage::default() });
        let message =
            AssistantMessage { content: Some("half".to_owned()), ..AssistantMessage::default() };
        let stop = StopReason::MaxTokens;
        let input = LoopInput::Replied { message, alone: Vec::new(), stop, usage };
        let said = Some("half".to_owned());
        let ending = Ending::Limited { limit: "maxTokens", value, said };
        assert_eq!(begun(bounds()).step(input), [Effect::Finish(ending)]);
    }
}

#[test]
fn each_end_reason_has_its_outcome() {
    let failed = |class: &str, cause: &str| Ending::Failed {
        class: class.to_owned(),
        cause: cause.to_owned(),
    };
    let said = Some("text".to_owned());
    for (stop, ending) in [
        (StopReason::EndTurn, Ending::Answered("text".to_owned())),
        (StopReason::MaxTokens, Ending::Limited { limit: "maxTokens", value: 0, said }),
        (
            StopReason::ContentFilter,
            failed("content_filter", "the provider withheld the reply (content filter)"),
        ),
        (StopReason::Error, failed("provider.broken_reply", "the reply made no sense")),
    ] {
        let mut agent_loop = begun(bounds());
        assert_eq!(agent_loop.step(says("text", stop)), [Effect::Finish(ending)]);
        assert_eq!(agent_loop.step(LoopInput::Begin), [], "nothing happens after the end");
    }
}

#[test]
fn continues_where_an_earlier_loop_stopped() {
    let answered = Arc::new(Message::Assistant(AssistantMessage {
        content: Some("done".to_owned()),
        ..AssistantMessage::default()
    }));
    let begin = |history: Vec<Arc<Message>>, queued: Vec<QueuedInput>| {
        let (pending, usage) = (Vec::new(), Usage::default());
        let start = LoopStart { history, pending, queued, turns: 1, usage };
        AgentLoop::new(bounds(), start).step(LoopInput::Begin)
    };
    let (steer, follow) = (queued("s", MessageKind::Steer), queued("f", MessageKind::FollowUp));
    let done = vec![user("go"), Arc::clone(&answered)];
    assert_eq!(
        begin(done.clone(), Vec::new()),
        [Effect::Finish(Ending::Answered("done".to_owned()))]
    );
    assert_eq!(
        begin(done, vec![follow.clone()]),
        [Effect::Deliver(follow.clone()), Effect::AskModel]
    );
    assert_eq!(begin(vec![user("go")], vec![follow.clone()]), [Effect::AskModel]);
    assert_eq!(
        begin(vec![user("go")], vec![follow, steer.clone()]),
        [Effect::Deliver(steer), Effect::AskModel]
    );
}

/// Ids of the messages that `effects` deliver.
fn delivered(effects: &[Effect]) -> Vec<&str> {
    let mut ids = Vec::new();
    for effect in effects {
        if let Effect::Deliver(message) = effect {
            ids.push(message.id.as_str());
        }
    }
    ids
}

#[test]
fn delivery_settings_decide_how_many_messages_enter_at_once() {
    let table = [
        (MessageKind::Steer, false, false, vec!["a", "b"], vec![]),
        (MessageKind::Steer, true, false, vec!["a"], vec!["b"]),
        (MessageKind::FollowUp, false, false, vec!["a"], vec!["b"]),
        (MessageKind::FollowUp, false, true, vec!["a", "b"], vec![]),
    ];
    for (kind, one_steering_message, all_follow_ups, first, second) in table {
        let delivery = QueueDelivery { one_steering_message, all_follow_ups };
        let mut agent_loop = begun(LoopBounds { delivery, ..bounds() });
        for id in ["a", "b"] {
            agent_loop.step(LoopInput::QueuedInput(queued(id, kind)));
        }
        assert_eq!(delivered(&agent_loop.step(answers("one"))), first, "{delivery:?}");
        let effects = agent_loop.step(answers("two"));
        assert_eq!(delivered(&effects), second, "{delivery:?}");
        assert_eq!(finished(&effects).is_some(), second.is_empty(), "{delivery:?}");
    }
}

#[test]
fn steering_message_that_waits_for_its_turn_skips_no_calls() {
    let delivery = QueueDelivery { one_steering_message: true, all_follow_ups: false };
    let mut agent_loop = begun(LoopBounds { delivery, ..bounds() });
    for id in ["a", "b"] {
        agent_loop.step(LoopInput::QueuedInput(queued(id, MessageKind::Steer)));
    }
    let skipped = agent_loop.step(wants(vec![call("c1", "{}")], vec![true]));
    assert_eq!((started(&skipped).len(), delivered(&skipped)), (0, vec!["a"]));
    let effects = agent_loop.step(wants(vec![call("c2", "{}")], vec![true]));
    assert_eq!((started(&effects), delivered(&effects)), (vec![CallId::new("c2")], vec![]));
    let effects = agent_loop.step(ended(&CallId::new("c2"), "done"));
    assert_eq!(delivered(&effects), ["b"]);
}

/// Next action of the test.
#[derive(Debug, Clone)]
enum LoopAction {
    Reply { calls: Vec<(bool, bool)>, text: bool, stop: u8 },
    CallEnds { which: usize, fails: bool },
    StrangerEnds,
    Queue { steers: bool },
    Unanswered,
    Settle { holds: bool },
    Stop,
}

fn happens() -> impl Strategy<Value = LoopAction> {
    let calls = prop::collection::vec((any::<bool>(), any::<bool>()), 0..12);
    prop_oneof![
        6 => (calls, any::<bool>(), 0..12_u8)
            .prop_map(|(calls, text, stop)| LoopAction::Reply { calls, text, stop }),
        20 => (any::<usize>(), any::<bool>())
            .prop_map(|(which, fails)| LoopAction::CallEnds { which, fails }),
        1 => Just(LoopAction::StrangerEnds),
        2 => any::<bool>().prop_map(|steers| LoopAction::Queue { steers }),
        1 => Just(LoopAction::Unanswered),
        4 => any::<bool>().prop_map(|holds| LoopAction::Settle { holds }),
        1 => Just(LoopAction::Stop),
    ]
}

/// Effects of a loop so far, with its invariants.
#[derive(Default)]
struct Observed {
    asking: bool,
    settling: bool,
    running: Vec<(CallId, bool)>,
    alone: HashSet<CallId>,
    owed: HashSet<CallId>,
    queued: HashSet<MessageId>,
    delivered: HashSet<MessageId>,
    finished: bool,
    ids: u32,
}

impl Observed {
    fn take(&mut self, effects: Vec<Effect>, agent_loop: &AgentLoop) {
        for effect in effects {
            assert!(!self.finished, "nothing happens after the end");
            match effect {
                Effect::AskModel => {
                    assert!(!self.asking, "one request at a time");
                    assert!(self.running.is_empty() && self.owed.is_empty());
                    assert_eq!(history_error(agent_loop.history()), None);
                    self.asking = true;
                }
                Effect::Start(call) => {
                    let alone = self.alone.contains(&call.id);
                    assert!(!self.running.iter().any(|(_, alone)| *alone), "beside an effect");
                    assert!(!alone || self.running.is_empty(), "an effect beside others");
                    self.running.push((call.id, alone));
                    assert!(self.running.len() <= bounds().parallel_calls_max);
                }
                Effect::Skip(call, _) => {
                    assert!(self.owed.remove(&call.id), "{} ends twice", call.id);
                }
                Effect::Deliver(queued) => {
                    assert!(self.queued.contains(&queued.id));
                    assert!(self.delivered.insert(queued.id), "delivered once");
                }
                Effect::Cancel(calls) => {
                    let running: HashSet<_> = self.running.iter().map(|(id, _)| id).collect();
                    assert_eq!(calls.iter().collect::<HashSet<_>>(), running);
                    self.asking = false;
                    self.settling = false;
                }
                Effect::Settle(_) => {
                    assert!(self.running.is_empty() && self.owed.is_empty() && !self.asking);
                    self.settling = true;
                }
                Effect::Finish(_) => {
                    assert!(self.running.is_empty() && self.owed.is_empty() && !self.asking);
                    assert!(!self.settling, "an answer that nobody has settled");
                    assert_eq!(history_error(agent_loop.history()), None);
                    self.finished = true;
                }
            }
        }
    }

    fn input(&mut self, happens: LoopAction) -> Option<LoopInput> {
        Some(match happens {
            LoopAction::Reply { calls, text, stop } => {
                if !std::mem::take(&mut self.asking) {
                    return None;
                }
                let stop = match (stop, calls.is_empty()) {
                    (0, _) => StopReason::ContentFilter,
                    (1, _) => StopReason::MaxTokens,
                    (2, _) => StopReason::Error,
                    (_, true) => StopReason::EndTurn,
                    (_, false) => StopReason::ToolUse,
                };
                let mut alone = Vec::new();
                let mut wanted = Vec::new();
                for (is_alone, same) in calls {
                    self.ids += 1;
                    let id = CallId::new(format!("c{}", self.ids));
                    if is_alone {
                        self.alone.insert(id.clone());
                    }
                    if stop != StopReason::ContentFilter {
                        self.owed.insert(id.clone());
                    }
                    alone.push(is_alone);
                    let arguments = if same { "{}".to_owned() } else { self.ids.to_string() };
                    wanted.push(call(id.as_str(), &arguments));
                }
                let content = text.then(|| "text".to_owned());
                let message =
                    AssistantMessage { content, tool_calls: wanted, ..AssistantMessage::default() };
                LoopInput::Replied { message, alone, stop, usage: None }
            }
            LoopAction::CallEnds { which, fails } => {
                if self.running.is_empty() {
                    return None;
                }
                let (id, _) = self.running.remove(which % self.running.len());
                assert!(self.owed.remove(&id));
                let output =
                    if fails { ToolOutput::error("no") } else { ToolOutput::text(id.as_str()) };
                LoopInput::CallEnded(id, output)
            }
            LoopAction::Settle { holds } => {
                if !std::mem::take(&mut self.settling) {
                    return None;
                }
                self.ids += 1;
                let held = holds.then(|| follow_up(&format!("m{}", self.ids)));
                self.queued.extend(held.iter().map(|held| held.id.clone()));
                LoopInput::Settled(held)
            }
            LoopAction::StrangerEnds => ended(&CallId::new("stranger"), "x"),
            LoopAction::Queue { steers } => {
                self.ids += 1;
                let kind = if steers { MessageKind::Steer } else { MessageKind::FollowUp };
                let message = queued(&format!("m{}", self.ids), kind);
                self.queued.insert(message.id.clone());
                LoopInput::QueuedInput(message)
            }
            LoopAction::Unanswered => {
                if !std::mem::take(&mut self.asking) {
                    return None;
                }
                LoopInput::Unanswered(Ending::Failed {
                    class: "x".to_owned(),
                    cause: "y".to_owned(),
                })
            }
            LoopAction::Stop => LoopInput::Stop(Ending::Interrupted),
        })
    }
}

proptest! {
    #[test]
    fn history_stays_valid_for_any_input(
        settles in any::<bool>(),
        one_at_once in any::<bool>(),
        all in prop::collection::vec(happens(), 1..120),
    ) {
        let delivery =
            QueueDelivery { one_steering_message: one_at_once, all_follow_ups: one_at_once };
        let mut agent_loop = begun(LoopBounds { delivery, settles, ..bounds() });
        let mut observed = Observed { asking: true, ..Observed::default() };
        for happens in all {
            if observed.finished {
                break;
            }
            let Some(input) = observed.input(happens) else { continue };
            let effects = agent_loop.step(input);
            observed.take(effects, &agent_loop);
        }
        // Nothing that was accepted is lost: it was delivered, or it is handed back.
        let mut kept: HashSet<_> = agent_loop.take_queue().into_iter().map(|kept| kept.id).collect();
        kept.extend(observed.delivered);
        prop_assert_eq!(kept, observed.queued);
    }
}

fn answers(text: &str) -> LoopInput {
    says(text, StopReason::EndTurn)
}

fn follow_up(id: &str) -> QueuedInput {
    queued(id, MessageKind::FollowUp)
}

#[test]
fn answer_ends_the_run_only_after_it_is_settled() {
    let settle = || Effect::Settle("done".to_owned());
    let finish = || vec![Effect::Finish(Ending::Answered("done".to_owned()))];
    let settling = || {
        let mut agent_loop = begun(LoopBounds { settles: true, ..bounds() });
        assert_eq!(agent_loop.step(answers("done")), [settle()]);
        agent_loop
    };
    assert_eq!(settling().step(LoopInput::Settled(None)), finish());

    let mut held = settling();
    let effects = held.step(LoopInput::Settled(Some(follow_up("held"))));
    assert_eq!(effects, [Effect::Deliver(follow_up("held")), Effect::AskModel]);
    assert_eq!(history_error(held.history()), None);
    assert_eq!(held.step(answers("done")), [settle()]);

    // A steering message in the meantime is not lost.
    let mut steered = settling();
    assert_eq!(steered.step(LoopInput::QueuedInput(follow_up("more"))), []);
    let effects = steered.step(LoopInput::Settled(None));
    assert_eq!(effects, [Effect::Deliver(follow_up("more")), Effect::AskModel]);

    let mut stopped = settling();
    let effects = stopped.step(LoopInput::Stop(Ending::Interrupted));
    assert_eq!(effects, [Effect::Cancel(Vec::new()), Effect::Finish(Ending::Interrupted)]);
    assert_eq!(stopped.step(LoopInput::Settled(Some(follow_up("late")))), []);

    // An answer that was there before a crash settles again.
    let mut history = vec![user("go")];
    history.push(Arc::new(Message::Assistant(AssistantMessage {
        content: Some("done".to_owned()),
        ..AssistantMessage::default()
    })));
    let start = LoopStart { history, ..LoopStart::default() };
    let mut again = AgentLoop::new(LoopBounds { settles: true, ..bounds() }, start);
    assert_eq!(again.step(LoopInput::Begin), [settle()]);
}
