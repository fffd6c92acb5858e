//! Records and messages for the end of an invocation and its calls. Pure.

use crate::conversation::{ToolCall, Usage};
use crate::cost::{BudgetRefusal, dollars};
use crate::event::{Event, ToolFailureClass};
use crate::outcome::{ATTEMPTS_SPENT, Ending, limit_text};
use crate::ports::{ProviderError, ToolOutput};
use crate::provider_client::{Unanswered, millis};
use crate::tool_call::Services;
use crate::transcript_writer::Unrecorded;

const NANO_IN_MICRO: u64 = 1000;

pub(crate) fn failed_event(call: &ToolCall, output: &ToolOutput, class: ToolFailureClass) -> Event {
    Event::ToolFailed {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: output.content.clone(),
        class,
        metadata: output.metadata.clone(),
        duration_ms: 0,
    }
}

/// Event that records the end of an invocation after `turns` replies.
pub(crate) fn ended_event(ending: &Ending, turns: u32, usage: Usage) -> Event {
    let failed = |class: &str, cause: String| Event::InvocationFailed {
        class: class.to_owned(),
        cause,
        turns,
        usage,
    };
    match ending {
        Ending::Answered(result) => {
            Event::InvocationCompleted { result: result.clone(), turns, usage }
        }
        Ending::Limited { limit, value, said: _ } => failed("limit", limit_text(limit, *value)),
        Ending::OverBudget(refused) => failed("limit", over_budget(refused)),
        Ending::Failed { class, cause } | Ending::Parked { class, cause, next_try_ms: _ } => {
            failed(class, cause.clone())
        }
        Ending::Interrupted => Event::InvocationCancelled { turns, usage },
    }
}

/// Event that records the limit that ended the invocation, with money in millionths of a dollar;
/// `None` if no limit did.
pub(super) fn limit_event(ending: &Ending) -> Option<Event> {
    match ending {
        Ending::Limited { limit, value, said: _ } => Some(Event::LimitReached {
            limit: (*limit).to_owned(),
            value: *value,
            spent: None,
            needed: None,
        }),
        Ending::OverBudget(BudgetRefusal { limit, cap, spent, needed }) => {
            // In the unit of the configuration.
            let unit = |amount: u64| match *limit {
                BudgetRefusal::MONEY | BudgetRefusal::AGENTS => amount.div_ceil(NANO_IN_MICRO),
                _ => amount,
            };
            Some(Event::LimitReached {
                limit: (*limit).to_owned(),
                value: unit(*cap),
                spent: Some(unit(*spent)),
                needed: Some(unit(*needed)),
            })
        }
        Ending::Answered(_)
        | Ending::Failed { .. }
        | Ending::Parked { .. }
        | Ending::Interrupted => None,
    }
}

/// Description of an exhausted budget in words.
fn over_budget(refused: &BudgetRefusal) -> String {
    let amount = |amount: u64| {
        if refused.is_money() { dollars(amount) } else { format!("{amount} tokens") }
    };
    format!(
        "the budget of {} ({}) is used up: {} are spent, and the next request could need {}",
        amount(refused.cap),
        refused.limit,
        amount(refused.spent),
        amount(refused.needed)
    )
}

pub(super) fn unanswered(error: &ProviderError) -> Ending {
    if let ProviderError::Unasked { class, source } = error {
        if let Some(refused) = source.downcast_ref::<BudgetRefusal>() {
            return Ending::OverBudget(refused.clone());
        }
        if *class == ProviderError::JOURNAL {
            return Ending::Failed { class: "journal".to_owned(), cause: source.to_string() };
        }
    }
    Ending::Failed { class: format!("provider.{}", error.class()), cause: error.chain() }
}

/// Ending of a run whose patience or attempts are exhausted. Without a time of another attempt,
/// `Limits::parked_pause` from now is used; for an exhausted quota the time is unknown.
pub(super) fn parked(failed: &Unanswered, services: &Services) -> Ending {
    let Unanswered { error, next_try, attempts } = failed;
    let Services { clock, limits, .. } = services;
    let wait = match (next_try, error) {
        (Some(at), _) => Some(at.saturating_sub(clock.monotonic())),
        // When it is back only the provider knows.
        (None, ProviderError::QuotaExhausted { .. }) => None,
        (None, _) => Some(limits.parked_pause),
    };
    let spent = attempts.map(|count| format!(" ({count} attempts: {ATTEMPTS_SPENT})"));
    Ending::Parked {
        class: format!("provider.{}", error.class()),
        cause: error.chain() + &spent.unwrap_or_default(),
        next_try_ms: wait.map(|wait| clock.wall_ms().saturating_add(millis(wait))),
    }
}

/// Ending of a run whose provider has no server at its address. No time of another attempt is
/// useful: a person has to start the server or to correct the address.
pub(super) fn no_server(error: &ProviderError) -> Ending {
    let class = format!("provider.{}", error.class());
    Ending::Parked { class, cause: error.chain(), next_try_ms: None }
}

pub(super) fn no_provider() -> Ending {
    let cause = "the part that reaches the provider crashed too often".to_owned();
    Ending::Failed { class: "parked".to_owned(), cause }
}

pub(super) fn unwritable(unrecorded: &Unrecorded) -> Ending {
    Ending::Failed { class: "journal".to_owned(), cause: unrecorded.cause.clone() }
}

pub(crate) fn hooked(why: String) -> Ending {
    Ending::Failed { class: "hook".to_owned(), cause: why }
}
