//! How large the conversation is, and making it smaller between prompts.

use std::sync::Arc;

use crate::agent_invocation::{Fitter, compacted_event};
use crate::compaction::{Compacted, Goal, compact};
use crate::context::{ContextUse, Meter, Reading};
use crate::conversation::Message;
use crate::root_session::{PromptError, RootSession, State};

impl RootSession {
    /// What the main agent may read.
    pub(super) fn fitter(&self, state: &State) -> Fitter {
        Fitter {
            budget: self.settings.limits.context_main.clone(),
            settings: self.settings.context.clone(),
            meter: state.meter.clone(),
            summariser: state.summariser.clone(),
        }
    }

    /// What an agent may read that works for another one.
    pub(super) fn child_fitter(&self, state: &State) -> Fitter {
        Fitter {
            budget: self.settings.limits.context_child.clone(),
            meter: Meter::default(),
            ..self.fitter(state)
        }
    }

    /// Makes the history shorter, between prompts.
    pub(super) fn compact(
        &self,
        keep: Option<String>,
        state: &mut State,
    ) -> Result<Option<Compacted>, PromptError> {
        if state.ending.is_some() {
            return Err(PromptError::Ended);
        }
        if state.main.is_some() {
            return Err(PromptError::Busy);
        }
        let budget = &self.settings.limits.context_main;
        let turns = budget.recent_turns_min;
        let quarter = Goal::quarter(&state.history, turns, budget.summary_tokens);
        let Some(compacted) = compact(&state.history, &Goal { keep, ..quarter }) else {
            return Ok(None);
        };
        self.drop_unfinished(state);
        let before = self.reading(state).total;
        state.history.clone_from(&compacted.history);
        state.meter.compacted(&self.told(state));
        self.ports.tools.iter().for_each(|tool| tool.history_shortened());
        let tokens = (before, self.reading(state).total);
        let event = compacted_event(compacted.clone(), tokens, "request", None);
        self.transcript.note(None, event);
        Ok(Some(compacted))
    }

    /// What the next request is made of; while one runs, what the last one was made of.
    pub(super) fn context(&self, state: &State) -> ContextUse {
        let (budget, settings) = (&self.settings.limits.context_main, &self.settings.context);
        let info = &self.provider_info;
        match state.main {
            Some(_) => state.meter.last(budget, settings, info),
            None => {
                self.reading(state);
                state.meter.last(budget, settings, info)
            }
        }
    }

    fn reading(&self, state: &State) -> Reading {
        let (budget, settings) = (&self.settings.limits.context_main, &self.settings.context);
        let info = Some(&self.provider_info);
        state.meter.read(&self.told(state), &self.specs, budget, settings, info)
    }

    /// The history with what the agent is told in front of it.
    fn told(&self, state: &State) -> Vec<Arc<Message>> {
        let system = Message::System { content: self.settings.system_prompt.clone() };
        let mut history = Vec::with_capacity(state.history.len() + 1);
        history.push(Arc::new(system));
        history.extend(state.history.iter().cloned());
        history
    }
}
