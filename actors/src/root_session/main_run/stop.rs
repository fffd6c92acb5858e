//! Stop of the running or queued work.

use crate::agent_invocation;
use crate::mailbox::tell;
use crate::outcome::Ending;
use crate::ports::BackgroundScope;
use crate::root_session::main_run::MainRun;
use crate::root_session::{RootSession, State};

/// Scope of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::root_session) enum Reach {
    /// The main agent, and the subagents it waits for.
    Foreground,
    /// All subagents.
    All,
}

impl MainRun {
    /// Tells the main invocation to end. If it crashes meanwhile, it ends as well.
    fn stop(&mut self, ending: Ending) {
        if let Some(main) = &mut self.invocation {
            let ending = main.stopping.get_or_insert(ending).clone();
            if let Some(actor) = &main.actor {
                tell(actor, agent_invocation::Msg::Stop(ending));
            }
        }
    }
}

impl RootSession {
    /// Stops the running or queued work, subagents first.
    pub(in crate::root_session) fn stop(&self, reach: Reach, ending: Ending, state: &mut State) {
        if let Some(own) = &mut state.main_run.own_call {
            own.stop();
        }
        self.give_up_summary(state);
        if reach == Reach::All && !state.end.is_ending() {
            self.release(&BackgroundScope::All);
        }
        if !self.stop_children(reach, &ending, state) {
            self.stop_main_run(ending, state);
        }
    }

    /// Stops a run, or the wait before it, that has no invocation left.
    pub(in crate::root_session) fn stop_main_run(&self, ending: Ending, state: &mut State) {
        match state.main_run.invocation.take_if(|main| main.admitting.is_some()) {
            // Its actor does not exist, so the session ends it.
            Some(main) => self.refuse(main, ending, state),
            None => state.main_run.stop(ending),
        }
    }
}
