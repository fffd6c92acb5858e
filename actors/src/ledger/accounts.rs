//! Accounts: spending of a session by model and by agent, computed from its records. Deterministic
//! and without a clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::conversation::{InvocationId, Usage};
use crate::cost::{Amount, Billing, UsageSource};
use crate::event::{Event, Origin, StoredRecord};
use crate::ledger::RecoveredUsage;

/// Key for the spending of records that name no agent.
const NOBODY: &str = "";

/// Sum of usage and cost of a set of attempts: all of a session, or those of one model or one
/// agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Number of attempts on which a model worked or may have worked, retries included.
    pub requests: u64,
    /// Number of these attempts that were retries: not the first one of their model request.
    pub retries: u64,
    /// Number of these attempts without a complete reply.
    pub unanswered: u64,
    /// Known tokens of these attempts.
    pub usage: Usage,
    /// Known part of their cost, in billionths of a dollar.
    pub nano_usd: u64,
    /// Number of these attempts whose cost is unknown or only partly known; the real cost is higher
    /// than `nano_usd` by their unknown part.
    pub unpriced: u64,
}

impl Account {
    fn add(&mut self, usage: &Usage, billing: Option<&Billing>) {
        self.requests += 1;
        self.usage.add(usage);
        let cost = billing.and_then(|billing| billing.cost_nano_usd);
        self.nano_usd = self.nano_usd.saturating_add(cost.unwrap_or_default());
        let whole = billing.is_some_and(|billing| billing.counted == UsageSource::Reported);
        self.unpriced += u64::from(cost.is_none() || !whole);
        if let Some(billing) = billing {
            self.retries += u64::from(billing.attempt > 1);
            self.unanswered += u64::from(billing.outcome != "answered");
        }
    }

    /// Known cost in billionths of a dollar; `None` if no part is known.
    pub fn known_cost(&self) -> Option<u64> {
        (self.nano_usd > 0 || self.unpriced < self.requests).then_some(self.nano_usd)
    }

    /// Cost in billionths of a dollar; `None` if a part is unknown or there was no attempt.
    pub fn cost(&self) -> Option<u64> {
        (self.unpriced == 0 && self.requests > 0).then_some(self.nano_usd)
    }
}

/// Spending of a session: in total, by model and by agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// Sum of all attempts.
    pub total: Account,
    /// Spending by provider profile and model. A usage record without billing, from an earlier
    /// version, counts for the model that was requested last.
    #[serde(with = "pairs")]
    pub models: BTreeMap<(String, String), Account>,
    /// Spending by the path of the agent, such as `build/explore`; the path is empty for records
    /// that name no agent.
    pub agents: BTreeMap<String, Account>,
    /// Highest number of an attempt so far (`Billing::request`); 0 if there was none.
    pub last_request: u64,
    /// Amount of ended attempts that counts against the budget.
    spent: Amount,
    /// Reservations of attempts that have not ended, by attempt number.
    held: BTreeMap<u64, Amount>,
    /// Provider profile and model of the last model request; `None` before the first.
    asked: Option<(String, String)>,
    /// Model requests without a usage record yet, by invocation.
    #[serde(default)]
    waiting: BTreeMap<InvocationId, OpenRequest>,
}

/// A model request without a usage record yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenRequest {
    provider: String,
    model: String,
    agent: String,
}

/// Serialises the map of models as a list of pairs, because keys of JSON objects must be strings.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Account;

    type Models = BTreeMap<(String, String), Account>;

    pub(super) fn serialize<S: Serializer>(
        models: &Models,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(models)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Models, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

impl Accounts {
    /// Adds the next record of a session. Only records about model requests, usage, reservations,
    /// ends of invocations and resumes have an effect.
    pub fn push(&mut self, record: &StoredRecord) {
        self.follow(record.origin.as_deref(), &record.event);
    }

    /// Adds spending that was recovered from records behind damage in the journal.
    pub fn add_recovered(&mut self, recovered: &[RecoveredUsage]) {
        for RecoveredUsage { origin, event } in recovered {
            self.follow(origin.as_deref(), event);
        }
    }

    /// Adds the next event of a session, which belongs to the invocation `origin`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only requests matter")]
    pub fn follow(&mut self, origin: Option<&Origin>, event: &Event) {
        match event {
            Event::ModelRequest { provider, model, .. } => {
                self.asked = Some((provider.clone(), model.clone()));
                if let Some(origin) = origin {
                    let (provider, model) = (provider.clone(), model.clone());
                    let agent = origin.agent_path.clone();
                    let waiting = OpenRequest { provider, model, agent };
                    self.waiting.insert(origin.invocation_id.clone(), waiting);
                }
            }
            Event::SessionResumed { .. } => self.settle(),
            Event::ModelUsage { usage, billing, .. } => {
                if let Some(origin) = origin {
                    self.waiting.remove(&origin.invocation_id);
                }
                self.add(origin, usage, billing.as_deref());
            }
            Event::BudgetReserved { request, nano_usd, tokens } => {
                self.last_request = self.last_request.max(*request);
                let amount = Amount { nano_usd: *nano_usd, tokens: *tokens };
                self.held.insert(*request, amount);
            }
            Event::BudgetReleased { request } => {
                self.held.remove(request);
            }
            // The request failed before a model worked on it, or has its usage record.
            Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => {
                if let Some(origin) = origin {
                    self.waiting.remove(&origin.invocation_id);
                }
            }
            _ => (),
        }
    }

    /// Ends all model requests that still have no usage record, because their process died: each
    /// counts as one unanswered attempt of unknown cost.
    pub fn settle(&mut self) {
        for OpenRequest { provider, model, agent } in
            std::mem::take(&mut self.waiting).into_values()
        {
            let model = self.models.entry((provider, model)).or_default();
            let agent = self.agents.entry(agent).or_default();
            for account in [&mut self.total, model, agent] {
                account.requests += 1;
                account.unanswered += 1;
                account.unpriced += 1;
            }
        }
    }

    /// Adds the usage record of one attempt. Returns the amount of the attempt that counts against
    /// the budget.
    pub(crate) fn add(
        &mut self,
        origin: Option<&Origin>,
        usage: &Usage,
        billing: Option<&Billing>,
    ) -> Amount {
        let model = match billing {
            Some(billing) => (billing.provider.clone(), billing.model.clone()),
            None => self.asked.clone().unwrap_or_default(),
        };
        let agent = origin.map_or(NOBODY, |origin| origin.agent_path.as_str());
        self.total.add(usage, billing);
        self.models.entry(model).or_default().add(usage, billing);
        self.agents.entry(agent.to_owned()).or_default().add(usage, billing);
        let mut charged = Amount {
            nano_usd: billing.and_then(|billing| billing.cost_nano_usd).unwrap_or_default(),
            tokens: tokens(usage),
        };
        if let Some(billing) = billing {
            self.last_request = self.last_request.max(billing.request);
            self.held.remove(&billing.request);
            charged = billing.charged.unwrap_or(charged);
        }
        self.spent = self.spent.plus(charged);
        charged
    }

    /// Provider profile and model of the last model request; `None` if there was none.
    pub(crate) fn asked(&self) -> Option<(String, String)> {
        self.asked.clone()
    }

    /// Amount that counts against the budget. An attempt that has not ended counts as its
    /// reservation.
    pub fn spent(&self) -> Amount {
        self.held.values().fold(self.spent, |sum, held| sum.plus(*held))
    }
}

/// Known input and output tokens together.
pub(crate) fn tokens(usage: &Usage) -> u64 {
    let known = |tokens: Option<u64>| tokens.unwrap_or_default();
    known(usage.input_tokens).saturating_add(known(usage.output_tokens))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conversation::{InvocationId, SessionId};
    use crate::event::RecordId;

    fn record(path: &str, event: Event) -> StoredRecord {
        let origin = Origin {
            invocation_id: InvocationId::new(path),
            parent_invocation_id: None,
            agent: path.to_owned(),
            agent_path: path.to_owned(),
        };
        StoredRecord {
            v: 1,
            record: 1,
            id: RecordId { process: 1, count: 1 },
            ts: 0,
            session_id: SessionId::new("s"),
            origin: Some(Arc::new(origin)),
            event,
        }
    }

    fn usage(input: u64) -> Usage {
        Usage { input_tokens: Some(input), output_tokens: Some(1), ..Usage::default() }
    }

    fn line(request: u64, outcome: &str, cost: Option<u64>, charged: Option<Amount>) -> Event {
        let billing = Billing {
            request,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            answered_by: None,
            attempt: 2,
            outcome: outcome.to_owned(),
            counted: UsageSource::Reported,
            claimed: None,
            prices: None,
            cost_nano_usd: cost,
            charged,
        };
        Event::ModelUsage { turn: 1, usage: usage(10), billing: Some(Box::new(billing)) }
    }

    #[test]
    fn a_request_without_a_line_has_an_unknown_cost() {
        let asks = |turn| Event::ModelRequest {
            turn,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            messages: 1,
        };
        let resumed = Event::SessionResumed { records: 3, with: None, changed: Vec::new() };
        let mut accounts = Accounts::default();
        accounts.push(&record("build", asks(1)));
        accounts.push(&record("build", line(1, "answered", Some(100), None)));
        accounts.push(&record("build", asks(2)));
        accounts.push(&record("other", asks(1)));
        accounts.push(&record(
            "other",
            Event::InvocationCancelled { turns: 0, usage: Usage::default() },
        ));
        let of = |account: &Account| (account.requests, account.nano_usd, account.unpriced);
        assert_eq!(of(&accounts.total), (1, 100, 0), "it may still get its line");
        accounts.push(&record("build", resumed));
        assert_eq!(of(&accounts.total), (2, 100, 1));
        assert_eq!(of(&accounts.agents["build"]), (2, 100, 1));
        assert!(!accounts.agents.contains_key("other"));
        let before = accounts.clone();
        accounts.settle();
        assert_eq!(accounts, before, "each is counted once");
    }

    #[test]
    fn each_agent_and_each_model_has_its_own_account() {
        let asked = Event::ModelRequest {
            turn: 1,
            provider: "old".to_owned(),
            model: "o".to_owned(),
            messages: 1,
        };
        let charged = Some(Amount { nano_usd: 70, tokens: 700 });
        let records = [
            record("build", asked),
            // Of a version that knew no billing.
            record("build", Event::ModelUsage { turn: 1, usage: usage(5), billing: None }),
            record("build", line(1, "answered", Some(100), None)),
            record("build/explore", line(2, "cut", None, charged)),
            record("build", Event::BudgetReserved { request: 3, nano_usd: 30, tokens: 300 }),
            record("build", Event::BudgetReserved { request: 4, nano_usd: 40, tokens: 400 }),
            record("build", Event::BudgetReleased { request: 3 }),
        ];
        let mut accounts = Accounts::default();
        for record in &records {
            accounts.push(record);
        }
        let of = |account: &Account| (account.requests, account.nano_usd, account.unpriced);
        assert_eq!(of(&accounts.total), (3, 100, 2));
        assert_eq!(of(&accounts.agents["build"]), (2, 100, 1));
        assert_eq!(of(&accounts.agents["build/explore"]), (1, 0, 1));
        assert_eq!(of(&accounts.models[&("old".to_owned(), "o".to_owned())]), (1, 0, 1));
        assert_eq!(of(&accounts.models[&("p".to_owned(), "m".to_owned())]), (2, 100, 1));
        assert_eq!((accounts.total.retries, accounts.total.unanswered), (2, 1));
        assert_eq!(accounts.last_request, 4);
        // The fourth has no end: it counts at its worst.
        let spent = Amount { nano_usd: 100 + 70 + 40, tokens: 6 + 11 + 700 + 400 };
        assert_eq!(accounts.spent(), spent);
    }
}
