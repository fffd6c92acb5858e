//! Stopping of the current run, of subagents and of calls.

use crate::agent_invocation;
use crate::conversation::Usage;
use crate::mailbox::tell;
use crate::outcome::Ending;
use crate::ports::BackgroundScope;
use crate::root_session::State;
use crate::root_session::main_run::MainRun;

/// Scope of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The main agent, and the subagents that it waits for, directly or through other subagents.
    Foreground,
    /// The main agent, all subagents, and all background work of calls.
    All,
}

impl MainRun {
    /// Asks the current invocation to stop with `ending`, unless it was asked already: the first
    /// ending counts. If the invocation crashes meanwhile, it ends instead of being restarted.
    fn stop(&mut self, ending: Ending) {
        if let Some(main) = &mut self.invocation {
            let ending = main.stopping.get_or_insert(ending).clone();
            if let Some(actor) = &main.actor {
                tell(actor, agent_invocation::Msg::Stop(ending));
            }
        }
    }
}

impl State {
    /// Begins to stop the current work in the scope `reach`: the tool call of the user, the request
    /// for a summary, with `Reach::All` background work (unless the session is ending), then
    /// subagents, finally the main agent with `ending`.
    pub(crate) fn stop(&mut self, reach: Reach, ending: Ending) {
        if let Some(own) = &mut self.main_run.own_call {
            own.stop();
        }
        self.give_up_summary();
        if reach == Reach::All && !self.end.is_ending() {
            self.base.release(&BackgroundScope::All);
        }
        if !self.stop_children(reach, &ending) {
            self.stop_main_run(ending);
        }
    }

    /// Asks the main agent to stop with `ending`. A run that still waits for hooks ends at once.
    pub(crate) fn stop_main_run(&mut self, ending: Ending) {
        match self.main_run.invocation.take_if(|main| main.admitting.is_some()) {
            // Its actor does not exist, so the session ends it.
            Some(main) => self.conclude(main, ending, 0, Usage::default()),
            None => self.main_run.stop(ending),
        }
    }
}
