//! Accounts as a table for display and as JSON for programs. Pure.

use serde_json::{Value, json};

use crate::cost::dollars;
use crate::ledger::accounts::{Account, Accounts};

const HEAD: [&str; 8] =
    ["", "REQUESTS", "READ", "CACHED", "WRITTEN", "THINKING", "RETRIES", "COST"];

impl Account {
    /// Cost in words, such as `at least $1.25 (1 request without a known price)`; `nothing` without
    /// attempts. Unknown cost is never shown as zero.
    pub fn cost_text(&self) -> String {
        let Account { requests, nano_usd, unpriced, .. } = *self;
        let known = match (requests, unpriced, nano_usd) {
            (0, _, _) => return "nothing".to_owned(),
            (_, 0, _) => return dollars(nano_usd),
            (_, _, 0) => "unknown".to_owned(),
            _ => format!("at least {}", dollars(nano_usd)),
        };
        let requests = if unpriced == 1 { "request" } else { "requests" };
        format!("{known} ({unpriced} {requests} without a known price)")
    }

    fn row(&self, name: String) -> [String; 8] {
        let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        [
            name,
            self.requests.to_string(),
            count(self.usage.input_tokens),
            count(self.usage.cached_input_tokens),
            count(self.usage.output_tokens),
            count(self.usage.reasoning_tokens),
            self.retries.to_string(),
            self.cost_text(),
        ]
    }

    fn json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["costUsd"] = self.cost().map_or(Value::Null, |nano| json!(crate::cost::usd(nano)));
        value
    }
}

impl Accounts {
    /// Table of the spending by model, by agent if there are several, and in total unless there is
    /// exactly one model. `clean` escapes names for a terminal.
    pub fn table(&self, clean: impl Fn(&str) -> String) -> String {
        let mut rows = vec![HEAD.map(str::to_owned)];
        for ((provider, model), account) in &self.models {
            rows.push(account.row(clean(&format!("{provider}/{model}"))));
        }
        let agents = self.agents.iter();
        for (path, account) in agents.filter(|_| self.agents.len() > 1) {
            rows.push(account.row(clean(&format!("agent {path}"))));
        }
        if self.models.len() != 1 {
            rows.push(self.total.row("all".to_owned()));
        }
        aligned(&rows)
    }

    /// Spending in total, by model and by agent as JSON.
    pub fn json(&self) -> Value {
        let named = |account: &Account, names: &[(&str, &str)]| {
            let mut value = account.json();
            for (member, name) in names {
                value[*member] = json!(name);
            }
            value
        };
        let models = self.models.iter().map(|((provider, model), account)| {
            named(account, &[("provider", provider), ("model", model)])
        });
        let agents =
            self.agents.iter().map(|(path, account)| named(account, &[("agentPath", path)]));
        let (models, agents): (Vec<Value>, Vec<Value>) = (models.collect(), agents.collect());
        json!({ "total": self.total.json(), "models": models, "agents": agents })
    }
}

/// Formats rows of cells as aligned lines: the first column is aligned to the left, the others to
/// the right, and the last one is not padded.
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}  "),
            last if last + 1 == N => cell.clone(),
            _ => format!("{cell:>width$}  "),
        });
        text.extend([cells.collect::<Vec<_>>().concat().trim_end(), "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_cost_is_never_zero() {
        let account = |requests, nano_usd, unpriced| Account {
            requests,
            nano_usd,
            unpriced,
            ..Account::default()
        };
        let table = [
            (account(0, 0, 0), "nothing"),
            (account(1, 0, 0), "$0.00"),
            (account(2, 0, 1), "unknown (1 request without a known price)"),
            (account(9, 20_000_000, 2), "at least $0.02 (2 requests without a known price)"),
            (account(9, 20_000_000, 0), "$0.02"),
        ];
        for (account, expected) in table {
            assert_eq!(account.cost_text(), expected);
        }
    }
}
