//! Fallback policy: chooses the next model to use among several. Pure; times are monotonic.
//!
//! It takes the first model in configured order that is suitable and not known to be unavailable.
//! If all are unavailable, it takes the one that is expected to recover first, if that is before
//! the end of patience.

use std::time::Duration;

use crate::limits::Limits;
use crate::ports::{Abilities, ProviderError};

/// Maximum number of doublings of the time for which a failed model is not tried again.
const REST_DOUBLINGS: u32 = 4;

/// Capabilities and context size that a request needs from a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) tools: bool,
    pub(crate) images: bool,
    /// Estimated tokens of the request.
    pub(crate) tokens: u64,
}

/// Capabilities and known availability of one model.
#[derive(Debug, Clone, Default)]
struct Candidate {
    abilities: Abilities,
    /// Time (monotonic) until which the model is unavailable; `Duration::MAX`: no end is known.
    /// `None`: it is available.
    away_until: Option<Duration>,
    /// Time (monotonic) before which this model is not tried again while a later one answers.
    rests_until: Duration,
    /// Number of failures since its last reply.
    failures: u32,
}

/// Fallback policy with the known availability of all models that may be used.
#[derive(Debug, Clone)]
pub(crate) struct FallbackPolicy {
    links: Vec<Candidate>,
    /// Index of the current model.
    at: usize,
}

/// Choice of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CandidateChoice {
    /// Use the model with the index `candidate`. `until` (monotonic): time up to which an attempt
    /// may be delayed before a fallback is preferred; `None`: no limit besides patience.
    Ask { candidate: usize, until: Option<Duration> },
    /// No model is expected to be available before the deadline. `next_try` (monotonic): earliest
    /// useful time of another attempt; `None` if unknown.
    GiveUp { next_try: Option<Duration> },
}

/// True if another model may be used after `error`. False if the context is too small, the
/// credentials or the request are rejected, the content is filtered, or the request was not sent
/// because of the budget or the journal.
pub(crate) fn may_fall_back(error: &ProviderError) -> bool {
    !matches!(
        error,
        ProviderError::ContextFull { .. }
            | ProviderError::Unauthorized { .. }
            | ProviderError::Filtered { .. }
            | ProviderError::Rejected { .. }
            | ProviderError::Unasked { .. }
    )
}

impl FallbackPolicy {
    /// Creates the policy for the configured model, which gets the index 0, and its fallbacks.
    /// `fallbacks`: capabilities of the fallbacks only, in configured order; their indices begin at 1.
    pub(crate) fn new(fallbacks: impl IntoIterator<Item = Abilities>) -> FallbackPolicy {
        let candidate = |abilities| Candidate { abilities, ..Candidate::default() };
        let links =
            std::iter::once(Candidate::default()).chain(fallbacks.into_iter().map(candidate));
        FallbackPolicy { links: links.collect(), at: 0 }
    }

    /// Index of the current model: the one that answered last, or the argument of a later `switch`;
    /// at first 0.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Reason why a model cannot serve a request with these needs; `None` if it can. The first
    /// model was chosen by the user and is always suitable.
    pub(crate) fn unsuitable_reason(&self, candidate: usize, needs: Needs) -> Option<&'static str> {
        let Abilities { tools, images, window } = self.links.get(candidate)?.abilities;
        if candidate == 0 {
            None
        } else if needs.tools && tools == Some(false) {
            Some("it calls no tools")
        } else if needs.images && images == Some(false) {
            Some("it sees no images")
        } else if window.is_some_and(|window| needs.tokens > window) {
            Some("the conversation does not fit into its context")
        } else {
            None
        }
    }

    /// Chooses the model to use at `now` for a request with these needs, whose patience ends at
    /// `deadline` (both monotonic). If only one model is suitable, `until` is `None`.
    pub(crate) fn choose(
        &self,
        needs: Needs,
        now: Duration,
        deadline: Duration,
        limits: &Limits,
    ) -> CandidateChoice {
        let fit: Vec<(usize, &Candidate)> = self
            .links
            .iter()
            .enumerate()
            .filter(|(nth, _)| self.unsuitable_reason(*nth, needs).is_none())
            .collect();
        let away = |candidate: &Candidate| candidate.away_until.filter(|until| *until > now);
        // A model that becomes available after the deadline is not ready.
        let soon = (now + limits.failover_wait).min(deadline);
        let ready = |candidate: &Candidate| away(candidate).is_none_or(|until| until <= soon);
        let rested =
            |nth: usize, candidate: &Candidate| nth >= self.at || candidate.rests_until <= now;
        let alone = fit.len() == 1;
        let chosen = fit
            .iter()
            .find(|(nth, candidate)| ready(candidate) && rested(*nth, candidate))
            .or_else(|| fit.iter().find(|(_, candidate)| ready(candidate)));
        if let Some((candidate, state)) = chosen {
            let from = away(state).unwrap_or(now);
            let until = (!alone).then_some(from + limits.failover_wait);
            return CandidateChoice::Ask { candidate: *candidate, until };
        }
        let back = fit.iter().filter_map(|(nth, candidate)| Some((away(candidate)?, *nth))).min();
        match back {
            Some((at, candidate)) if at <= deadline => {
                let until = (!alone).then_some(at + limits.failover_wait);
                CandidateChoice::Ask { candidate, until }
            }
            back => {
                let known = back.map(|(at, _)| at).filter(|at| *at != Duration::MAX);
                CandidateChoice::GiveUp { next_try: known }
            }
        }
    }

    /// Notes that a model replied, which makes it the current one. Returns the index of the
    /// previous model, if it was another.
    pub(crate) fn answered(&mut self, candidate: usize) -> Option<usize> {
        if let Some(state) = self.links.get_mut(candidate) {
            state.away_until = None;
            state.rests_until = Duration::ZERO;
            state.failures = 0;
        }
        (self.at != candidate).then(|| std::mem::replace(&mut self.at, candidate))
    }

    /// Notes that a model failed, and estimates until when it is unavailable. `next_try`
    /// (monotonic): the client's estimate of the time of the next useful attempt, if known.
    pub(crate) fn failed(
        &mut self,
        candidate: usize,
        error: &ProviderError,
        next_try: Option<Duration>,
        now: Duration,
        limits: &Limits,
    ) {
        let Some(state) = self.links.get_mut(candidate) else { return };
        let away_until = match (next_try, error) {
            (Some(at), _) => at,
            (None, ProviderError::QuotaExhausted { retry_after: Some(after), .. }) => now + *after,
            (None, ProviderError::QuotaExhausted { .. }) => Duration::MAX,
            (
                None,
                ProviderError::Broken { .. }
                | ProviderError::Empty { .. }
                | ProviderError::Repeating { .. }
                | ProviderError::NotTheProvider { .. },
            ) => now + limits.failback_after,
            (None, _) => now + limits.probe_interval,
        };
        state.away_until = Some(away_until);
        // A recovery probe can take as long as the silence timeout.
        let rest = limits.failback_after.saturating_mul(1 << state.failures.min(REST_DOUBLINGS));
        state.rests_until = now + rest;
        state.failures = state.failures.saturating_add(1);
    }

    /// Marks all models as available because the user wants an attempt, unless one of several
    /// models is available within `failover_wait`. Returns true if it did.
    pub(crate) fn retry_now(&mut self, now: Duration, limits: &Limits) -> bool {
        let soon = now + limits.failover_wait;
        let is_away =
            |candidate: &Candidate| candidate.away_until.is_some_and(|until| until > soon);
        let relents = self.links.len() == 1 || self.links.iter().all(is_away);
        if relents {
            self.links.iter_mut().for_each(|candidate| candidate.away_until = None);
        }
        relents
    }

    /// Makes the model with the index `candidate` the current one.
    pub(crate) fn switch(&mut self, candidate: usize) {
        self.at = candidate;
    }
}

#[cfg(test)]
mod tests;
