//! Model catalogue: limits, prices and capabilities. Used for selection and counting; an unknown
//! model is never rejected.
//!
//! A snapshot is built in; the user's configuration overrides it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use posse_actors::cost::TokenRates;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::failure::printable;
use crate::hex::hex;

const SNAPSHOT: &str = include_str!("models/snapshot.json");

/// One model of the catalogue: its name, its provider, and the data known about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Preset or profile that offers the model. `None` in [`Catalog::all`] for a model that only
    /// the configuration lists.
    pub provider: Option<String>,
    /// Name of the model at this provider. Without a provider, the key of the configuration:
    /// `MODEL` or `PROVIDER/MODEL`.
    pub model: String,
    /// Limits, prices and abilities.
    #[serde(flatten)]
    pub facts: Facts,
    /// True if the user's configuration has an entry for the model.
    #[serde(default)]
    pub configured: bool,
    /// True if that entry has at least one price.
    #[serde(skip)]
    pub own_prices: bool,
}

/// Limits, prices and abilities of a model. `None`: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// Maximum number of tokens of a request and its reply together.
    pub context_window: Option<u64>,
    /// Maximum number of tokens of a reply.
    pub max_output_tokens: Option<u64>,
    /// Price of a million input tokens, in micro-USD.
    pub input_price: Option<u64>,
    /// Price of a million input tokens read from the provider's cache, in micro-USD.
    pub cached_input_price: Option<u64>,
    /// Price of a million input tokens written to the provider's cache, in micro-USD.
    pub cache_write_price: Option<u64>,
    /// Price of a million output tokens, in micro-USD.
    pub output_price: Option<u64>,
    /// True if the model accepts images, false if it does not.
    pub vision: Option<bool>,
    /// True if the model calls tools, false if it does not.
    pub tools: Option<bool>,
    /// True if the model supports reasoning, false if it does not.
    pub reasoning: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Snapshot {
    dated: String,
    note: String,
    models: Vec<Model>,
}

/// Built-in data, parsed at first use.
static BUILT_IN: LazyLock<Snapshot> =
    LazyLock::new(|| serde_json::from_str(SNAPSHOT).unwrap_or_default());

/// Built-in data of a model, without the user's configuration. `None`: the model is unknown.
pub fn find(provider: &str, model: &str) -> Option<Model> {
    Catalog::default().find(provider, model)
}

/// Month of the built-in data, as `YYYY-MM`.
pub fn dated() -> &'static str {
    &BUILT_IN.dated
}

/// Model catalogue: built-in data, and data from the user's configuration, which take precedence.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    own: BTreeMap<String, Facts>,
}

impl Catalog {
    /// Creates the catalogue. `own`: the entries of `models` in the configuration, by `MODEL` or
    /// `PROVIDER/MODEL`. They have been checked before; an entry that is invalid all the same
    /// counts as empty.
    pub fn new(own: &BTreeMap<String, Map<String, Value>>) -> Catalog {
        let facts = |(name, fields): (&String, &Map<String, Value>)| {
            let facts = serde_json::from_value(Value::Object(fields.clone())).unwrap_or_default();
            (name.clone(), facts)
        };
        Catalog { own: own.iter().map(facts).collect() }
    }

    /// Data of a model: configured values (of `PROVIDER/MODEL`, then of `MODEL`), and the built-in
    /// ones for the rest. `None`: the model is unknown. If the snapshot does not have the name, a
    /// date suffix is ignored there: `gpt-5.1-2025-11-13` is `gpt-5.1`.
    pub fn find(&self, provider: &str, model: &str) -> Option<Model> {
        let named = |name: &str| {
            let fits =
                |known: &&Model| known.model == name && known.provider.as_deref() == Some(provider);
            BUILT_IN.models.iter().find(fits)
        };
        let built_in = named(model).or_else(|| named(undated(model)?));
        let own = self.configured_facts(provider, model);
        if built_in.is_none() && own.is_none() {
            return None;
        }
        let known = built_in.map(|known| known.facts.clone()).unwrap_or_default();
        Some(Model {
            provider: Some(provider.to_owned()),
            model: model.to_owned(),
            configured: own.is_some(),
            own_prices: own.as_ref().is_some_and(Facts::has_prices),
            facts: own.map_or(known.clone(), |own| own.or(&known)),
        })
    }

    /// All models of the snapshot, with configured values; after them the models that only the
    /// configuration lists.
    pub fn all(&self) -> Vec<Model> {
        let mut all: Vec<Model> = Vec::new();
        for known in &BUILT_IN.models {
            let provider = known.provider.as_deref().unwrap_or_default();
            all.extend(self.find(provider, &known.model));
        }
        let built_in = |name: &str| {
            all.iter().any(|known| {
                let provider = known.provider.as_deref().unwrap_or_default();
                known.model == name
                    || name.strip_prefix(provider).and_then(|n| n.strip_prefix('/'))
                        == Some(&known.model)
            })
        };
        let further =
            self.own.iter().filter(|(name, _)| !built_in(name)).map(|(name, facts)| Model {
                provider: None,
                model: name.clone(),
                facts: facts.clone(),
                configured: true,
                own_prices: facts.has_prices(),
            });
        let further: Vec<Model> = further.collect();
        all.extend(further);
        all
    }

    /// Data of a model in the user's configuration. `None`: there is none.
    pub fn configured_facts(&self, provider: &str, model: &str) -> Option<Facts> {
        let exact = self.own.get(&format!("{provider}/{model}"));
        match (exact, self.own.get(model)) {
            (Some(exact), Some(anywhere)) => Some(exact.clone().or(anywhere)),
            (Some(facts), None) | (None, Some(facts)) => Some(facts.clone()),
            (None, None) => None,
        }
    }
}

impl Facts {
    fn has_prices(&self) -> bool {
        let prices =
            [self.input_price, self.cached_input_price, self.cache_write_price, self.output_price];
        prices.iter().any(Option::is_some)
    }

    /// Returns these facts, with the values of `other` for those that are unknown.
    fn or(self, other: &Facts) -> Facts {
        Facts {
            context_window: self.context_window.or(other.context_window),
            max_output_tokens: self.max_output_tokens.or(other.max_output_tokens),
            input_price: self.input_price.or(other.input_price),
            cached_input_price: self.cached_input_price.or(other.cached_input_price),
            cache_write_price: self.cache_write_price.or(other.cache_write_price),
            output_price: self.output_price.or(other.output_price),
            vision: self.vision.or(other.vision),
            tools: self.tools.or(other.tools),
            reasoning: self.reasoning.or(other.reasoning),
        }
    }
}

/// Pricing of a model. `None`: its input or output price is unknown. The version is the date of the
/// snapshot, or a hash of the prices if some are configured.
pub fn rates(model: &Model) -> Option<TokenRates> {
    let Facts { input_price, output_price, cached_input_price, cache_write_price, .. } =
        model.facts;
    let (input, output) = (input_price?, output_price?);
    let (cached_input, cache_write) = (cached_input_price, cache_write_price);
    let version = if model.own_prices {
        let all = [Some(input), Some(output), cached_input, cache_write];
        let digest = Sha256::digest(format!("{all:?}").as_bytes());
        format!("own-{}", hex(&digest[..4]))
    } else {
        dated().to_owned()
    };
    Some(TokenRates { input, output, cached_input, cache_write, version })
}

/// Formats `models` as a table for people, or as JSON, with the date of the built-in data and a
/// note on it. The table omits the prices of the cache and shows unknown values as `?`.
pub fn list(models: &[Model], as_json: bool) -> String {
    let Snapshot { dated, note, .. } = &*BUILT_IN;
    if as_json {
        return format!("{:#}\n", json!({ "dated": dated, "note": note, "models": models }));
    }
    let head = ["PROVIDER", "MODEL", "CONTEXT", "REPLY", "$/M IN", "$/M OUT", "ABILITIES"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(models.iter().map(row));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Numbers are right-aligned. Writing to a string cannot fail.
            let _: std::fmt::Result = match column {
                2..=5 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let _: std::fmt::Result = writeln!(text, "\nAs of {dated}. {}", short_note(note));
    text
}

/// The note without the sentence on the unit of prices, because the table shows dollars.
fn short_note(note: &str) -> &str {
    note.split(" Prices are").next().unwrap_or(note)
}

fn row(model: &Model) -> [String; 7] {
    let facts = &model.facts;
    let abilities = [
        (facts.tools, "tools"),
        (facts.vision, "vision"),
        (facts.reasoning, "reasoning"),
        (Some(model.configured), "(configured)"),
    ];
    let has: Vec<&str> =
        abilities.iter().filter(|(has, _)| *has == Some(true)).map(|(_, name)| *name).collect();
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let price = |price: Option<u64>| price.map_or("?".to_owned(), dollars);
    [
        printable(model.provider.as_deref().unwrap_or("any")),
        printable(&model.model),
        count(facts.context_window),
        count(facts.max_output_tokens),
        price(facts.input_price),
        price(facts.output_price),
        has.join(" "),
    ]
}

/// Formats micro-USD as dollars, with two to six decimals: without superfluous zeros after the
/// second.
pub fn dollars(micro: u64) -> String {
    let (whole, rest) = (micro / 1_000_000, micro % 1_000_000);
    let digits = format!("{rest:06}");
    let kept = digits.trim_end_matches('0').len().max(2);
    format!("{whole}.{}", &digits[..kept])
}

/// Name of a model without its date suffix, such as `-2025-01-01`. `None`: the name has no such
/// suffix.
fn undated(model: &str) -> Option<&str> {
    let cut = model.len().checked_sub("-2025-01-01".len())?;
    let (name, date) = (model.get(..cut)?, model.get(cut..)?);
    let fits = date.bytes().enumerate().all(|(at, byte)| match at {
        0 | 5 | 8 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    (fits && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
