//! Which of several models is asked next. Pure; times are monotonic.
//!
//! The first that is fit and not known to be away is asked; the user's order counts. When all are
//! away, the one that is back first is waited for.

use std::time::Duration;

use crate::limits::Limits;
use crate::ports::{Abilities, ProviderError};

/// How often the rest of a model that stays away is doubled.
const REST_DOUBLINGS: u32 = 4;

/// What a request needs of whoever answers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) tools: bool,
    pub(crate) images: bool,
    /// Tokens of the request, at a guess.
    pub(crate) tokens: u64,
}

/// What is known of one model.
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

/// What is known of the models that may be asked.
#[derive(Debug, Clone)]
pub(crate) struct FallbackPolicy {
    links: Vec<Candidate>,
    /// The one that answers, or is meant to.
    at: usize,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CandidateChoice {
    /// Ask this one. `until`: not for longer than that, if it is away.
    Ask { link: usize, until: Option<Duration> },
    /// Nobody will answer in time. Trying again is worth it then, if that is known.
    GiveUp { next_try: Option<Duration> },
}

/// What an error means for whoever walks the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FallbackVerdict {
    /// Another model may answer.
    Next,
    /// Another model would be told the same, or must not be.
    Final,
}

/// Whether another model may be asked. What is wrong with the request, the credentials or what
/// was said is never passed on.
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

    /// Whom to ask now. A patience that ends is the client's business as long as nobody else may
    /// be asked.
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

    /// It answered. Returns who was asked before, if that is another one.
    pub(crate) fn answered(&mut self, link: usize) -> Option<usize> {
        if let Some(state) = self.links.get_mut(link) {
            state.away_until = None;
            state.rests_until = Duration::ZERO;
            state.failures = 0;
        }
        (self.at != link).then(|| std::mem::replace(&mut self.at, link))
    }

    /// It did not answer. `next_try`: what its client says about asking again.
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
        // Looking whether it is back may cost as long as nobody answers.
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
