//! Token estimate of a growing history. Only new messages are counted.

use std::sync::Arc;

use crate::context::weights::{of_bytes, of_tools, tokens_of};
use crate::context::{ContextBudget, ContextSettings, REMOTE_WINDOW, assumed_window, part};
use crate::conversation::Message;
use crate::event::ContextUse;
use crate::guarded::Guarded;
use crate::ports::{ProviderInfo, ToolSpec};

/// Minimum estimate in tokens for a calibration; in smaller requests the provider's own overhead
/// dominates.
const TELLING: u64 = 500;

/// Plausible ratios of reported to estimated tokens; a ratio outside is ignored.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.4..=3.0;

/// Fraction of a rejected request size that is assumed to fit.
const REFUSED: f64 = 0.8;

/// Divisor for the minimum growth between two compactions: a request must grow by 1 / `PAUSE` of
/// the larger of `threshold` and `fixed` in [`ContextReading`]. Each compaction makes the provider
/// process the whole history again.
const PAUSE: u64 = 4;

/// Divisor for the smallest room of tool results: a full context still leaves a sixteenth of the
/// budget for them, so that the agent can go on, and is compacted before the next request.
const ROOM_MIN: u64 = 16;

/// Size of a request in tokens up to which only a window in the settings matters, because no other
/// one is smaller.
const SMALL: u64 = 4000;

/// Fraction of the context budget from which on the agent and the user are told that it is nearly
/// full.
const FULL: f64 = 0.75;

/// Fraction of the context window from which on an empty reply means that the request is too long.
/// Below 1, because the estimate is rough and the reply needs space, too.
const NEAR: f64 = 0.75;

/// Token estimate and compaction state of one history. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct ContextMeter(Arc<Guarded<MeterState>>);

#[derive(Default)]
struct MeterState {
    /// Number of counted messages; `last` is the last of them.
    counted: usize,
    last: Option<Arc<Message>>,
    /// Estimated tokens of the system messages. The next three fields: those of other messages, of
    /// tool results, and of the descriptions of tools.
    system: u64,
    messages: u64,
    results: u64,
    tools: Option<u64>,
    /// Ratio of reported to estimated tokens; `None` before a plausible report.
    ratio: Option<f64>,
    /// The last model whose window was looked up, with the window. The lookup for another model
    /// resets `ratio` and `refused`, because that model counts differently.
    window: Option<(ProviderInfo, Option<u64>)>,
    /// Window that is assumed for the last model of a reading if its window is unknown.
    assumed: Option<u64>,
    /// Smallest size in tokens that a provider rejected.
    refused: Option<u64>,
    /// Size in tokens after the last compaction, or when compaction was last found useless.
    floor: Option<u64>,
    compactions: u32,
    /// True if the user was warned that prompt and tools leave too little space.
    told: bool,
    /// True if the user was told which context window is assumed, or was reported by the server.
    told_window: bool,
    /// True if the context was nearly full at the last report to the agent and the user.
    told_full: bool,
}

/// Estimated size of a request and its limits, in calibrated tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ContextReading {
    /// Size of the request.
    pub(crate) total: u64,
    /// Part of `total` that is not conversation: system prompt and tools.
    pub(crate) fixed: u64,
    /// Size above which the history is compacted: the threshold of the budget, or 80 % of the
    /// smallest rejected size if that is lower.
    pub(crate) threshold: u64,
    pub(crate) window: Option<u64>,
    /// Size after the last compaction, or when compaction was last found useless; `None` before.
    pub(crate) floor: Option<u64>,
    /// Smallest size that the provider rejected; `None` if it rejected none.
    pub(crate) refused: Option<u64>,
    /// Ratio of reported to estimated tokens; 1 if unknown.
    pub(crate) ratio: f64,
}

impl ContextReading {
    /// True if the history should be compacted: it exceeds the threshold and has grown enough since
    /// the last compaction.
    pub(crate) fn is_due(&self) -> bool {
        let pause = self.threshold.max(self.fixed) / PAUSE;
        let grown = |floor: u64| self.total >= floor.saturating_add(pause);
        self.total > self.threshold && self.floor.is_none_or(grown)
    }

    /// True if system prompt and tools take more than half of the threshold.
    pub(crate) fn is_cramped(&self) -> bool {
        self.fixed > self.threshold / 2
    }

    /// Converts `tokens` from the provider's count to the uncalibrated estimate.
    pub(crate) fn guessed(&self, tokens: u64) -> u64 {
        part(tokens, 1.0 / self.ratio)
    }
}

impl ContextMeter {
    /// Returns true at the first call and false later, so that the lack of space is reported once.
    pub(crate) fn take_first_report(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().told, true)
    }

    /// Tokens of the last reading and of its budget, if it takes at least the fraction [`FULL`] of the
    /// budget. `Some` once, and again when it had become smaller in between.
    pub(crate) fn take_full_report(
        &self,
        budget: &ContextBudget,
        settings: &ContextSettings,
        info: Option<&ProviderInfo>,
    ) -> Option<(u64, u64)> {
        let mut measured = self.0.lock();
        let window = info.and_then(|info| measured.window(info, settings));
        let tokens_max = budget.tokens_max(window, measured.assumed());
        let total = measured.total();
        let is_full = total >= part(tokens_max, FULL);
        let was_told = std::mem::replace(&mut measured.told_full, is_full);
        (is_full && !was_told).then_some((total, tokens_max))
    }

    /// Returns true at the first call and false later, so that the assumed or reported context window
    /// is announced once.
    pub(crate) fn take_window_report(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().told_window, true)
    }

    /// Counts the new messages of `history` and returns the size of the request. The tools are
    /// counted at the first call only. Without `info` the context window counts as unknown; while
    /// the request is small and uncalibrated, also one that the settings do not contain.
    pub(crate) fn read(
        &self,
        history: &[Arc<Message>],
        tools: &[ToolSpec],
        budget: &ContextBudget,
        settings: &ContextSettings,
        info: Option<&ProviderInfo>,
    ) -> ContextReading {
        let mut measured = self.0.lock();
        measured.count(history);
        let spoken = measured.system + measured.messages + measured.results;
        let tools = *measured.tools.get_or_insert_with(|| of_tools(tools));
        let window = match info {
            // Before the first request, the model table may not be loaded yet.
            Some(info) if spoken + tools > SMALL || measured.ratio.is_some() => {
                measured.window(info, settings)
            }
            Some(info) => settings.configured_window(info),
            None => None,
        };
        measured.assumed = info.map(assumed_window);
        let ratio = measured.ratio.unwrap_or(1.0);
        ContextReading {
            total: part(spoken + tools, ratio),
            fixed: part(measured.system + tools, ratio),
            threshold: measured.threshold(budget, window),
            window,
            floor: measured.floor,
            refused: measured.refused,
            ratio,
        }
    }

    /// Tokens that the budget leaves for the results of one reply after the last reading,
    /// uncalibrated: so few that they and the latest turns, which compaction keeps, fit together.
    /// Looks up the context window of `info`.
    pub(crate) fn room(
        &self,
        budget: &ContextBudget,
        settings: &ContextSettings,
        info: Option<&ProviderInfo>,
    ) -> u64 {
        let mut measured = self.0.lock();
        let window = info.and_then(|info| measured.window(info, settings));
        let tokens_max = budget.tokens_max(window, measured.assumed());
        let ratio = measured.ratio.unwrap_or(1.0);
        let fixed = part(measured.system + measured.tools.unwrap_or_default(), ratio);
        let turns = u64::try_from(budget.recent_turns_min).unwrap_or(u64::MAX).saturating_add(1);
        let share = tokens_max.saturating_sub(fixed) / turns;
        let room = tokens_max.saturating_sub(measured.total()).min(share);
        part(room.max(tokens_max / ROOM_MIN), 1.0 / ratio)
    }

    /// Calibrates the estimate with `tokens`, the provider's count for the last reading.
    /// Implausible counts are ignored.
    pub(crate) fn reported(&self, tokens: u64) {
        let mut measured = self.0.lock();
        let guessed = measured.guessed();
        if guessed < TELLING {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counts of tokens")]
        let ratio = tokens as f64 / guessed as f64;
        if BELIEVED.contains(&ratio) {
            measured.ratio = Some(ratio);
        }
    }

    /// True if the window of `info` is known and the last reading takes at least the fraction
    /// [`NEAR`] of it. Always looks up the window; another model than before resets the
    /// calibration.
    pub(crate) fn is_near_window(&self, settings: &ContextSettings, info: &ProviderInfo) -> bool {
        let mut measured = self.0.lock();
        let window = measured.window(info, settings);
        window.is_some_and(|window| measured.total() >= part(window, NEAR))
    }

    /// Size of the last reading and the window of `info`, if the window is known and smaller. For a
    /// small request only a window in the settings counts as known.
    pub(crate) fn excess(
        &self,
        settings: &ContextSettings,
        info: &ProviderInfo,
    ) -> Option<(u64, u64)> {
        let mut measured = self.0.lock();
        let is_small = measured.guessed() <= SMALL && measured.ratio.is_none();
        let window = if is_small {
            settings.configured_window(info)
        } else {
            measured.window(info, settings)
        };
        let total = measured.total();
        window.filter(|window| total > *window).map(|window| (total, window))
    }

    /// Notes that a provider rejected the last reading for its size.
    pub(crate) fn refused(&self) {
        let mut measured = self.0.lock();
        let total = measured.total();
        measured.refused = Some(measured.refused.map_or(total, |known| known.min(total)));
    }

    /// Notes that a compaction replaced the history by `history`: counts it anew, and delays the next
    /// compaction until the request has grown.
    pub(crate) fn compacted(&self, history: &[Arc<Message>]) {
        let mut measured = self.0.lock();
        measured.counted = 0;
        measured.last = None;
        measured.count(history);
        measured.compactions = measured.compactions.saturating_add(1);
        measured.floor = Some(measured.total());
    }

    /// Notes that `history` replaces the history without a compaction: counts it anew.
    pub(crate) fn replaced(&self, history: &[Arc<Message>]) {
        let mut measured = self.0.lock();
        measured.counted = 0;
        measured.last = None;
        measured.count(history);
    }

    /// Notes that compaction does not help at the current size, so that it is not tried again until
    /// the history has grown.
    pub(crate) fn mark_incompressible(&self) {
        let mut measured = self.0.lock();
        measured.floor = Some(measured.total());
    }

    /// Composition of the last reading by parts, for display and scripts. Always looks up the
    /// context window of `info`; another model than before resets the calibration.
    pub(crate) fn last(
        &self,
        budget: &ContextBudget,
        settings: &ContextSettings,
        info: &ProviderInfo,
    ) -> ContextUse {
        let mut measured = self.0.lock();
        // An explicit query loads the model table.
        let window = measured.window(info, settings);
        measured.assumed = Some(assumed_window(info));
        let threshold = measured.threshold(budget, window);
        let ratio = measured.ratio.unwrap_or(1.0);
        let told = of_bytes(settings.instructions_bytes).min(measured.system);
        let scaled = |tokens: u64| part(tokens, ratio);
        let (system, instructions) = (scaled(measured.system - told), scaled(told));
        let tools = scaled(measured.tools.unwrap_or_default());
        let (messages, tool_results) = (scaled(measured.messages), scaled(measured.results));
        ContextUse {
            system,
            instructions,
            tools,
            messages,
            tool_results,
            total: system + instructions + tools + messages + tool_results,
            compacts_at: budget.compacts.then_some(threshold),
            tokens_max: budget.tokens_max(window, measured.assumed()),
            window,
            calibrated: measured.ratio.is_some(),
            compactions: measured.compactions,
        }
    }
}

impl MeterState {
    fn count(&mut self, history: &[Arc<Message>]) {
        let known = self.counted.checked_sub(1).and_then(|last| history.get(last));
        let same =
            known.zip(self.last.as_ref()).is_some_and(|(known, last)| Arc::ptr_eq(known, last));
        if !same {
            (self.counted, self.system, self.messages, self.results) = (0, 0, 0, 0);
        }
        for message in &history[self.counted..] {
            let tokens = tokens_of(message);
            match &**message {
                Message::System { .. } => self.system += tokens,
                Message::User { .. } | Message::Assistant(_) => self.messages += tokens,
                Message::Tool { .. } => self.results += tokens,
            }
        }
        self.counted = history.len();
        self.last = history.last().cloned();
    }

    fn threshold(&self, budget: &ContextBudget, window: Option<u64>) -> u64 {
        let refused = self.refused.map_or(u64::MAX, |refused| part(refused, REFUSED));
        budget.threshold(window, self.assumed()).min(refused)
    }

    /// Before the first reading with a known model, that of a remote one.
    fn assumed(&self) -> u64 {
        self.assumed.unwrap_or(REMOTE_WINDOW)
    }

    fn guessed(&self) -> u64 {
        self.system + self.messages + self.results + self.tools.unwrap_or_default()
    }

    /// The calibrated estimate of the whole request.
    fn total(&self) -> u64 {
        part(self.guessed(), self.ratio.unwrap_or(1.0))
    }

    fn window(&mut self, info: &ProviderInfo, settings: &ContextSettings) -> Option<u64> {
        match &self.window {
            Some((known, Some(window))) if known == info => return Some(*window),
            // The server may have reported it meanwhile.
            Some((known, None)) if known == info => (),
            // Another model counts in other tokens and takes other sizes.
            Some(_) => (self.ratio, self.refused) = (None, None),
            None => (),
        }
        let window = settings.window(info);
        self.window = Some((info.clone(), window));
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ContentPart;

    fn user(bytes: usize) -> Arc<Message> {
        Arc::new(Message::User { content: vec![ContentPart::text("x".repeat(bytes))] })
    }

    fn budget() -> ContextBudget {
        ContextBudget { tokens_max: Some(48_000), ..ContextBudget::main() }
    }

    fn info(model: &str) -> ProviderInfo {
        ProviderInfo { profile: "p".to_owned(), model: model.to_owned(), endpoint: String::new() }
    }

    fn read(meter: &ContextMeter, history: &[Arc<Message>]) -> ContextReading {
        let settings = ContextSettings::default();
        meter.read(history, &[], &budget(), &settings, Some(&info("a")))
    }

    #[test]
    fn incremental_count_equals_the_full_count() {
        let (meter, whole) = (ContextMeter::default(), ContextMeter::default());
        let mut history = Vec::new();
        for bytes in [10, 4000, 3, 0, 9999] {
            history.push(user(bytes));
            read(&meter, &history);
        }
        assert_eq!(read(&meter, &history), read(&whole, &history));
        // Another history of the same length is counted from the beginning.
        let other: Vec<_> = history.iter().map(|_| user(8)).collect();
        assert_eq!(read(&meter, &other).total, 5 * 6);
        assert_eq!(read(&meter, &other[..2]).total, 2 * 6);
    }

    #[test]
    fn plausible_reported_usage_corrects_the_estimate() {
        let meter = ContextMeter::default();
        let history = [user(40_000)];
        assert_eq!(read(&meter, &history).total, 10_004);
        for nonsense in [0, 10, 1_000_000_000] {
            meter.reported(nonsense);
            assert_eq!(read(&meter, &history).total, 10_004);
        }
        meter.reported(13_005);
        assert_eq!(read(&meter, &history).total, 13_005);
        let grown = [Arc::clone(&history[0]), user(40_000)];
        assert_eq!(read(&meter, &grown).total, 26_010);
        assert!((20_006..=20_008).contains(&read(&meter, &grown).guessed(26_010)));
    }

    #[test]
    fn refused_size_is_not_reached_again_and_a_new_model_resets_the_meter() {
        let meter = ContextMeter::default();
        let history = [user(80_000)];
        let before = read(&meter, &history);
        assert_eq!((before.total, before.threshold), (20_004, 33_600));
        meter.refused();
        assert_eq!(read(&meter, &history).threshold, 16_003);
        let settings = ContextSettings {
            windows: Some(Arc::new(|info| (info.model == "b").then_some(16_000))),
            ..ContextSettings::default()
        };
        let budget = budget();
        let other = meter.read(&history, &[], &budget, &settings, Some(&info("b")));
        assert_eq!((other.window, other.threshold), (Some(16_000), 8400));
    }

    #[test]
    fn window_that_was_unknown_is_looked_up_again_and_keeps_the_calibration() {
        let reported = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let seen = Arc::clone(&reported);
        let lookup = move |_: &ProviderInfo| {
            Some(seen.load(std::sync::atomic::Ordering::Relaxed)).filter(|window| *window > 0)
        };
        let settings =
            ContextSettings { windows: Some(Arc::new(lookup)), ..ContextSettings::default() };
        let (meter, budget, history) = (ContextMeter::default(), budget(), [user(80_000)]);
        let read = || meter.read(&history, &[], &budget, &settings, Some(&info("a")));
        assert_eq!(read().window, None);
        meter.reported(26_000);
        reported.store(16_000, std::sync::atomic::Ordering::Relaxed);
        let reading = read();
        assert_eq!((reading.window, reading.total), (Some(16_000), 26_000));
        // A known window stays.
        reported.store(99_000, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(read().window, Some(16_000));
    }

    #[test]
    fn three_quarters_of_a_known_window_are_near_it() {
        let settings = |window: Option<u64>| ContextSettings {
            windows: Some(Arc::new(move |_| window)),
            ..ContextSettings::default()
        };
        // 4,004 tokens by estimate; window, tokens that the provider reported, and whether near.
        let table = [
            (None, None, false),
            (Some(4096), None, true),
            (Some(5338), None, true),
            (Some(5344), None, false),
            (Some(100_000), None, false),
            // Calibrated to 8,008 tokens.
            (Some(10_600), Some(8008), true),
            (Some(10_700), Some(8008), false),
        ];
        for (window, reported, near) in table {
            let (meter, settings) = (ContextMeter::default(), settings(window));
            let budget = ContextBudget::main();
            meter.read(&[user(16_000)], &[], &budget, &settings, Some(&info("a")));
            if let Some(tokens) = reported {
                meter.reported(tokens);
            }
            assert_eq!(
                meter.is_near_window(&settings, &info("a")),
                near,
                "{window:?} {reported:?}"
            );
        }
    }

    #[test]
    fn request_exceeds_only_a_known_smaller_window() {
        type Row = (usize, Option<u64>, Option<u64>, Option<u64>, Option<(u64, u64)>);
        // Bytes, window of the settings, any other window, reported tokens, and the excess.
        let table: [Row; 9] = [
            (16_000, None, None, None, None),
            (16_000, None, Some(4004), None, None),
            (16_000, None, Some(4003), None, Some((4004, 4003))),
            (16_000, None, Some(5000), Some(5001), Some((5001, 5000))),
            // A small request is compared with a window of the settings only.
            (8000, None, Some(1000), None, None),
            (8000, Some(1000), None, None, Some((2004, 1000))),
            (8000, Some(2500), None, None, None),
            (8000, None, Some(1000), Some(2004), Some((2004, 1000))),
            (0, Some(1000), Some(1000), None, None),
        ];
        for row in table {
            let (bytes, configured, other, reported, expected) = row;
            let settings = ContextSettings {
                windows: Some(Arc::new(move |_| other)),
                configured_windows: Some(Arc::new(move |_| configured)),
                ..ContextSettings::default()
            };
            let meter = ContextMeter::default();
            let history = [user(bytes)];
            meter.read(&history, &[], &ContextBudget::main(), &settings, Some(&info("a")));
            if let Some(tokens) = reported {
                meter.reported(tokens);
            }
            assert_eq!(meter.excess(&settings, &info("a")), expected, "{row:?}");
        }
    }
}
