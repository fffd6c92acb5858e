//! Fallback policy: chooses which of several models is used next. Pure; times are monotonic.
//!
//! The first suitable model that is not known to be unavailable is used, in configured order. If
//! all are unavailable, the one that recovers first is waited for.

use std::time::Duration;

use crate::limits::Limits;
use crate::ports::{Abilities, ProviderError};

/// Maximum number of doublings of the recovery wait of a model.
const REST_DOUBLINGS: u32 = 4;

/// Capabilities that a request needs from a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) tools: bool,
    pub(crate) images: bool,
    /// Tokens of the request, at a guess.
    pub(crate) tokens: u64,
}

/// Known state of one model.
#[derive(Debug, Clone, Default)]
struct Candidate {
    abilities: Abilities,
    /// Not before this. `None`: it may be asked.
    away_until: Option<Duration>,
    /// While another one answers, it is not asked before this.
    rests_until: Duration,
    /// Failures since it answered last.
    failures: u32,
}

/// State of all models that may be used.
#[derive(Debug, Clone)]
pub(crate) struct FallbackPolicy {
    links: Vec<Candidate>,
    /// The one that answers, or is meant to.
    at: usize,
}

/// Decision of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CandidateChoice {
    /// Ask this one. `until`: not for longer than that, if it is away.
    Ask { link: usize, until: Option<Duration> },
    /// No model will answer in time. `next_try`: earliest useful time of another attempt, if known.
    GiveUp { next_try: Option<Duration> },
}

/// Effect of an error on the choice of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FallbackVerdict {
    /// Another model may answer.
    Next,
    /// Another model would fail in the same way, or must not receive the request.
    Final,
}

/// Decides whether another model may be used. Errors of the request, the credentials or the content
/// are never passed on.
pub(crate) fn verdict(error: &ProviderError) -> FallbackVerdict {
    match error {
        ProviderError::Overloaded { .. }
        | ProviderError::RateLimited { .. }
        | ProviderError::Unreachable { .. }
        | ProviderError::Cut { .. }
        | ProviderError::Broken { .. }
        | ProviderError::NotTheProvider { .. }
        | ProviderError::QuotaExhausted { .. } => FallbackVerdict::Next,
        ProviderError::ContextFull { .. }
        | ProviderError::Unauthorized { .. }
        | ProviderError::Filtered { .. }
        | ProviderError::Rejected { .. }
        | ProviderError::Unasked { .. } => FallbackVerdict::Final,
    }
}

impl FallbackPolicy {
    /// `fallbacks`: what those can do that come after the first.
    pub(crate) fn new(fallbacks: impl IntoIterator<Item = Abilities>) -> FallbackPolicy {
        let link = |abilities| Candidate { abilities, ..Candidate::default() };
        let links = std::iter::once(Candidate::default()).chain(fallbacks.into_iter().map(link));
        FallbackPolicy { links: links.collect(), at: 0 }
    }

    /// The one that answered last, or is meant to answer.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Why a model cannot be asked this. The first one was chosen by the user, and can.
    pub(crate) fn unfit(&self, link: usize, needs: Needs) -> Option<&'static str> {
        let Abilities { tools, images, window } = self.links.get(link)?.abilities;
        if link == 0 {
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

    /// Model to use now. If there is no alternative, the client alone decides when patience ends.
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
            .filter(|(nth, _)| self.unfit(*nth, needs).is_none())
            .collect();
        let away = |link: &Candidate| link.away_until.filter(|until| *until > now);
        let soon = now + limits.failover_wait;
        let ready = |link: &Candidate| away(link).is_none_or(|until| until <= soon);
        let rested = |nth: usize, link: &Candidate| nth >= self.at || link.rests_until <= now;
        let alone = fit.len() == 1;
        let chosen = fit
            .iter()
            .find(|(nth, link)| ready(link) && rested(*nth, link))
            .or_else(|| fit.iter().find(|(_, link)| ready(link)));
        if let Some((link, state)) = chosen {
            let from = away(state).unwrap_or(now);
            let until = (!alone).then_some(from + limits.failover_wait);
            return CandidateChoice::Ask { link: *link, until };
        }
        let back = fit.iter().filter_map(|(nth, link)| Some((away(link)?, *nth))).min();
        match back {
            Some((at, link)) if at <= deadline => {
                let until = (!alone).then_some(at + limits.failover_wait);
                CandidateChoice::Ask { link, until }
            }
            back => {
                let known = back.map(|(at, _)| at).filter(|at| *at != Duration::MAX);
                CandidateChoice::GiveUp { next_try: known }
            }
        }
    }

    /// Records a reply. Returns the model used before, if it is another one.
    pub(crate) fn answered(&mut self, link: usize) -> Option<usize> {
        if let Some(state) = self.links.get_mut(link) {
            state.away_until = None;
            state.rests_until = Duration::ZERO;
            state.failures = 0;
        }
        (self.at != link).then(|| std::mem::replace(&mut self.at, link))
    }

    /// Records a failure. `next_try`: the client's estimate for the next useful attempt.
    pub(crate) fn failed(
        &mut self,
        link: usize,
        error: &ProviderError,
        next_try: Option<Duration>,
        now: Duration,
        limits: &Limits,
    ) {
        let Some(state) = self.links.get_mut(link) else { return };
        let away_until = match (next_try, error) {
            (Some(at), _) => at,
            (None, ProviderError::QuotaExhausted { retry_after: Some(after), .. }) => now + *after,
            (None, ProviderError::QuotaExhausted { .. }) => Duration::MAX,
            (None, ProviderError::Broken { .. } | ProviderError::NotTheProvider { .. }) => {
                now + limits.failback_after
            }
            (None, _) => now + limits.probe_interval,
        };
        state.away_until = Some(away_until);
        // A recovery probe can take as long as the silence timeout.
        let rest = limits.failback_after.saturating_mul(1 << state.failures.min(REST_DOUBLINGS));
        state.rests_until = now + rest;
        state.failures = state.failures.saturating_add(1);
    }

    /// The user asks for a try now: those who are away may be asked all the same, unless another
    /// one can be. Returns whether they may.
    pub(crate) fn retry_now(&mut self, now: Duration, limits: &Limits) -> bool {
        let soon = now + limits.failover_wait;
        let is_away = |link: &Candidate| link.away_until.is_some_and(|until| until > soon);
        let relents = self.links.len() == 1 || self.links.iter().all(is_away);
        if relents {
            self.links.iter_mut().for_each(|link| link.away_until = None);
        }
        relents
    }

    /// From now on this one is meant to answer.
    pub(crate) fn switch(&mut self, link: usize) {
        self.at = link;
    }
}

#[cfg(test)]
mod tests;
