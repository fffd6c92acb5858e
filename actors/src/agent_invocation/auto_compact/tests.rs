//! Number of compactions, and survival of rejected requests.

use proptest::prelude::*;

use super::*;
use crate::conversation::{AssistantMessage, CallId, ContentPart, ToolCall};

/// One turn: a call whose output has about so many bytes, and perhaps an answer and a prompt.
fn turn(history: &mut Vec<Arc<Message>>, nth: usize, bytes: usize, prompts: bool) {
    let (id, name) = (CallId::new(format!("c{nth}")), "read_file".to_owned());
    let arguments = format!(r#"{{"path":"f{nth}"}}"#);
    let call = ToolCall { id: id.clone(), provider_id: None, name: name.clone(), arguments };
    let said = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
    history.push(Arc::new(Message::Assistant(said)));
    let content = vec![ContentPart::text("word ".repeat(bytes / 5))];
    let result = Message::Tool { tool_call_id: id, name, content, is_error: false };
    history.push(Arc::new(result));
    if prompts {
        let content = Some("so ".repeat(40));
        let said = AssistantMessage { content, ..AssistantMessage::default() };
        history.push(Arc::new(Message::Assistant(said)));
        let content = vec![ContentPart::text(format!("and {nth}? {}", "why ".repeat(40)))];
        history.push(Arc::new(Message::User { content }));
    }
}

/// Plays turns as an invocation would, and counts how often it made the history smaller, and
/// how much each time was gone.
fn play(budget: &ContextBudget, fixed: usize, turns: &[usize], prompts: bool) -> Vec<u64> {
    let (meter, settings) = (ContextMeter::default(), ContextSettings::default());
    let mut history = vec![
        Arc::new(Message::System { content: "x".repeat(fixed) }),
        Arc::new(Message::User { content: vec![ContentPart::text("Go.")] }),
    ];
    let mut freed = Vec::new();
    for (nth, bytes) in turns.iter().enumerate() {
        turn(&mut history, nth, *bytes, prompts);
        let reading = meter.read(&history, &[], budget, &settings, None);
        if !reading.is_due() {
            continue;
        }
        let stays = RetainedContent::default();
        let Some((_, compacted)) = shrink(conversation(&history), &reading, budget, &stays) else {
            meter.mark_incompressible();
            continue;
        };
        freed.push(compacted.tokens_before - compacted.tokens_after);
        history.truncate(1);
        history.extend(compacted.history);
        meter.compacted(&history);
    }
    freed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Each compaction frees at least a fifth of what the threshold leaves for the history, as long
    /// as single turns are small against that: N turns of a size need at most as many compactions
    /// as their total size exceeds that.
    #[test]
    fn small_budget_is_compacted_again_only_after_growth(
        tokens_max in 4_000u64..40_000,
        fixed in 0usize..4,
        share in 8usize..40,
        count in 40usize..160,
        prompts: bool,
    ) {
        let budget = ContextBudget {
            tokens_max: Some(tokens_max),
            summary_tokens: tokens_max / 20,
            ..ContextBudget::main()
        };
        let threshold = usize::try_from(budget.threshold(None, 0)).unwrap();
        // Up to three eighths of the threshold are instructions.
        let fixed = threshold * 4 / 8 * fixed / 4;
        let room = threshold - fixed / 4;
        let bytes = room * 4 / share;
        let freed = play(&budget, fixed, &vec![bytes; count], prompts);
        let least = u64::try_from(room / 5).unwrap();
        prop_assert!(freed.iter().all(|freed| *freed >= least), "{least}: {freed:?}");
        let added = u64::try_from(count * (bytes / 4 + 160)).unwrap();
        prop_assert!(freed.len() as u64 <= added / least + 1, "{freed:?}");
    }
}

#[test]
fn compaction_frees_a_minimum() {
    let budget = ContextBudget { tokens_max: Some(12_000), ..ContextBudget::child() };
    // Six turns of 1,500 tokens are above 8,400; three of them would not be far below.
    let freed = play(&budget, 0, &[6000; 60], false);
    assert!(freed.len() <= 20 && freed.iter().all(|freed| *freed >= 4200), "{freed:?}");
}

/// A provider that takes requests of so many tokens and no more, and a session with it.
struct Bounded {
    bound: u64,
    budget: ContextBudget,
    meter: ContextMeter,
    history: Vec<Arc<Message>>,
}

impl Bounded {
    fn new(bound: u64, fixed: usize) -> Bounded {
        Bounded {
            bound,
            budget: ContextBudget::main(),
            meter: ContextMeter::default(),
            history: vec![Arc::new(Message::System { content: "x".repeat(fixed) })],
        }
    }

    fn reading(&self) -> ContextReading {
        self.meter.read(&self.history, &[], &self.budget, &ContextSettings::default(), None)
    }

    fn apply(&mut self, compacted: CompactedHistory) {
        self.history.truncate(1);
        self.history.extend(compacted.history);
        self.meter.compacted(&self.history);
    }

    /// Sends a prompt of that many bytes through the steps of an invocation; returns true if it was
    /// answered.
    fn say(&mut self, bytes: usize) -> bool {
        let content = vec![ContentPart::text("word ".repeat(bytes / 5))];
        let prompt = Arc::new(Message::User { content });
        self.history.push(Arc::clone(&prompt));
        let unanswered = unanswered_before(&self.history, Some(&prompt));
        let stays = || RetainedContent { unanswered, ..RetainedContent::default() };
        let reading = self.reading();
        if reading.is_due() {
            match shrink(conversation(&self.history), &reading, &self.budget, &stays()) {
                Some((_, compacted)) => self.apply(compacted),
                None => self.meter.mark_incompressible(),
            }
        }
        if self.reading().total <= self.bound {
            return true;
        }
        let reading = self.reading();
        self.meter.refused();
        let unanswered = unanswered_before(&self.history, Some(&prompt));
        let stays = RetainedContent { unanswered, ..RetainedContent::default() };
        let smaller = fit_rejected(conversation(&self.history), &reading, &self.budget, stays);
        let Some(compacted) = smaller else { return false };
        self.apply(compacted);
        self.reading().total <= self.bound
    }

    /// Simulates a new process: content that is not in the history is lost.
    fn resume(&mut self) {
        self.meter = ContextMeter::default();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// After any sequence of rejected requests a small prompt is answered at the second attempt at
    /// the latest, as long as a reply and its outputs are small against the provider's limit.
    #[test]
    fn session_continues_after_a_refused_prompt(
        fixed in 0usize..12_000,
        room in 2_500u64..20_000,
        prompts in prop::collection::vec((0usize..120_000, 0usize..3_000, any::<bool>()), 1..12),
    ) {
        let mut session = Bounded::new(tokens(fixed) + room, fixed);
        for (nth, (said, output, resumes)) in prompts.into_iter().enumerate() {
            if resumes {
                session.resume();
            }
            // Small ones are as likely as large ones.
            let said = if nth % 2 == 0 { said } else { said / 40 };
            if session.say(said) {
                turn(&mut session.history, nth, output, false);
                let content = Some("so ".repeat(output / 6));
                let said = AssistantMessage { content, ..AssistantMessage::default() };
                session.history.push(Arc::new(Message::Assistant(said)));
            } else {
                if resumes {
                    session.resume();
                }
                let before = session.reading();
                prop_assert!(session.say(50) || session.say(50), "{before:?} {:?}", session.history);
                let content = Some("Yes.".to_owned());
                let said = AssistantMessage { content, ..AssistantMessage::default() };
                session.history.push(Arc::new(Message::Assistant(said)));
            }
        }
    }
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / 4).unwrap()
}

#[test]
fn incompressible_prompt_does_not_remove_earlier_turns() {
    let mut session = Bounded::new(8_000, 4_000);
    for _ in 0..3 {
        assert!(session.say(400));
        let content = Some("so ".repeat(500));
        let said = AssistantMessage { content, ..AssistantMessage::default() };
        session.history.push(Arc::new(Message::Assistant(said)));
    }
    let before = session.history.clone();
    assert!(!session.say(200_000));
    assert_eq!(session.history[..before.len()], before);
    assert!(session.say(50));
    assert_eq!(session.history[..before.len()], before, "only what was too large is left out");
}

#[test]
fn fixed_parts_do_not_trigger_compaction_at_each_turn() {
    // 2,000 tokens of instructions and tools, and a budget of 256.
    let budget = ContextBudget {
        tokens_max: Some(256),
        recent_turns: 2,
        recent_turns_min: 1,
        summary_tokens: 32,
        ..ContextBudget::main()
    };
    let freed = play(&budget, 8000, &[400; 25], false);
    assert!(freed.len() <= 6, "{freed:?}");
}
