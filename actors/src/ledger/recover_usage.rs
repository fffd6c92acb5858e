//! Recovers spending from records behind damage in a journal, so that damage does not free budget.
//!
//! Records behind damage are not verified, so a session never resumes from them. Their usage is
//! counted nevertheless and recorded again on resume. If some records are unreadable, the known
//! cost is only a minimum. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::conversation::Usage;
use crate::cost::{Amount, Billing, UsageSource};
use crate::event::{Event, Origin, StoredRecord};
use crate::ledger::accounts::{Accounts, tokens};

/// Value of `Billing::outcome` for a usage record that was recovered from damage.
pub const LOST_REPLY: &str = "lost";

/// Records about usage and reservations behind the last verified record of a journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnverifiedRecords {
    /// Readable records about usage and reservations, in order, without duplicates.
    pub records: Vec<UnverifiedRecord>,
    /// Number of lines that cannot be read.
    pub unreadable: u64,
    /// Spending up to a record after the last verified one, from another file such as a checkpoint;
    /// `None` if there is no such file.
    pub floor: Option<Box<Accounts>>,
}

/// A readable record that is not verified.
#[derive(Debug, Clone, PartialEq)]
pub struct UnverifiedRecord {
    /// The record.
    pub record: StoredRecord,
    /// True if the hash of the record matches its content and, as far as known, the record before
    /// it.
    pub intact: bool,
}

/// A usage record that was recovered from behind damage; it is recorded again on resume.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveredUsage {
    /// Invocation of the attempt; `None` if unknown.
    pub origin: Option<Arc<Origin>>,
    /// The event `model.usage`.
    pub event: Event,
}

/// Recovered usage and reservation of one attempt, collected from several records.
#[derive(Default)]
struct RecoveredRequest {
    origin: Option<Arc<Origin>>,
    turn: u32,
    usage: Usage,
    billing: Option<Billing>,
    held: Option<Amount>,
    over: bool,
}

impl Accounts {
    /// Usage records that raise these accounts, which contain only verified records, to the minimum
    /// that was spent. An attempt with a reservation and without a usage record counts as its
    /// reservation, unless that was released. If lines are unreadable, missing attempt numbers are
    /// charged with the largest reservation found, as many as there are such lines, and one record
    /// of unknown cost is added.
    pub fn recover(&self, unproved: &UnverifiedRecords) -> Vec<RecoveredUsage> {
        let (requests, older) = found(&unproved.records);
        let worst = requests.values().filter_map(|request| request.held);
        let worst = worst.reduce(|a, b| Amount {
            nano_usd: a.nano_usd.max(b.nano_usd),
            tokens: a.tokens.max(b.tokens),
        });
        let named = requests.values().find_map(|request| request.billing.as_ref());
        let asked = match named {
            Some(billing) => (billing.provider.clone(), billing.model.clone()),
            None => self.asked().unwrap_or_default(),
        };
        let lost = |request: u64, charged| lost_reply(request, asked.clone(), charged);
        let mut salvaged = older;
        let highest = requests.last_key_value().map_or(self.last_request, |(number, _)| *number);
        // Missing record numbers: one record for each that could have been lost.
        let mut gaps = unproved.unreadable;
        let mut next = self.last_request + 1;
        for (number, request) in requests {
            let RecoveredRequest { origin, turn, usage, billing, held, over } = request;
            while next < number && gaps > 0 && worst.is_some() {
                salvaged.push(line(None, 0, Usage::default(), lost(next, worst)));
                (next, gaps) = (next + 1, gaps - 1);
            }
            next = next.max(number.saturating_add(1));
            match billing {
                Some(billing) => {
                    let billing = Billing { outcome: LOST_REPLY.to_owned(), ..billing };
                    salvaged.push(line(origin, turn, usage, billing));
                }
                None if over => (),
                None => salvaged.push(line(origin, turn, usage, lost(number, held))),
            }
        }
        let mut number = highest.max(self.last_request);
        if unproved.unreadable > 0 {
            number = number.saturating_add(1);
            salvaged.push(line(None, 0, Usage::default(), lost(number, None)));
        }
        if let Some(floor) = &unproved.floor {
            number = number.saturating_add(1).max(floor.last_request);
            salvaged.extend(self.up_to(floor, &salvaged, lost(number, None)));
        }
        salvaged
    }

    /// Usage record for the amount by which `floor` exceeds these accounts after `salvaged` has
    /// been added; `None` if there is none. `line`: the billing to fill in.
    fn up_to(
        &self,
        floor: &Accounts,
        salvaged: &[RecoveredUsage],
        line: Billing,
    ) -> Option<RecoveredUsage> {
        let mut so_far = self.clone();
        so_far.add_recovered(salvaged);
        let known = floor.total.nano_usd.saturating_sub(so_far.total.nano_usd);
        let (then, now) = (floor.spent(), so_far.spent());
        let nano_usd = then.nano_usd.saturating_sub(now.nano_usd);
        let tokens = then.tokens.saturating_sub(now.tokens);
        if (known, nano_usd, tokens) == (0, 0, 0) {
            return None;
        }
        let cost_nano_usd = (known > 0).then_some(known);
        let charged = Some(Amount { nano_usd, tokens });
        let billing = Billing { cost_nano_usd, charged, ..line };
        Some(self::line(None, 0, Usage::default(), billing))
    }
}

/// Attempts found in `records`, by number; and usage records of versions without attempt numbers.
fn found(records: &[UnverifiedRecord]) -> (BTreeMap<u64, RecoveredRequest>, Vec<RecoveredUsage>) {
    let mut requests: BTreeMap<u64, RecoveredRequest> = BTreeMap::new();
    let mut older = Vec::new();
    for UnverifiedRecord { record, intact } in records {
        let origin = record.origin.clone();
        #[expect(clippy::wildcard_enum_match_arm, reason = "only requests matter")]
        match &record.event {
            Event::ModelUsage { turn, usage, billing: Some(billing) } => {
                let counted = if *intact { billing.counted } else { UsageSource::Doubtful };
                let request = requests.entry(billing.request).or_default();
                (request.origin, request.turn, request.usage) = (origin, *turn, *usage);
                request.billing = Some(Billing { counted, ..(**billing).clone() });
            }
            Event::ModelUsage { turn, usage, billing: None } => {
                // A line of a version that knew no billing.
                let charged = Amount { nano_usd: 0, tokens: tokens(usage) };
                let billing = lost_reply(0, (String::new(), String::new()), Some(charged));
                older.push(line(origin, *turn, *usage, billing));
            }
            Event::BudgetReserved { request, nano_usd, tokens } => {
                let found = requests.entry(*request).or_default();
                found.origin = found.origin.take().or(origin);
                found.held = Some(Amount { nano_usd: *nano_usd, tokens: *tokens });
            }
            Event::BudgetReleased { request } => {
                requests.entry(*request).or_default().over = true;
            }
            _ => (),
        }
    }
    (requests, older)
}

fn line(origin: Option<Arc<Origin>>, turn: u32, usage: Usage, billing: Billing) -> RecoveredUsage {
    RecoveredUsage {
        origin,
        event: Event::ModelUsage { turn, usage, billing: Some(Box::new(billing)) },
    }
}

/// Billing of an attempt whose usage record is lost. `charged`: amount that counts against the
/// budget.
fn lost_reply(
    request: u64,
    (provider, model): (String, String),
    charged: Option<Amount>,
) -> Billing {
    Billing {
        request,
        provider,
        model,
        attempt: 1,
        outcome: LOST_REPLY.to_owned(),
        charged,
        ..Billing::default()
    }
}

#[cfg(test)]
mod tests;
