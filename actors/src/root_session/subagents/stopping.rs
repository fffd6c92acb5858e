//! Stopping of subagents: the deepest first, by a message. A subagent that does not end in time is
//! killed.

use std::time::Duration;

use tokio::task::JoinError;

use crate::agent_invocation;
use crate::conversation::InvocationId;
use crate::mailbox::{OwnedTask, spawn_task, tell};
use crate::outcome::Ending;
use crate::root_session::main_run::stop::Reach;
use crate::root_session::subagents::{Child, Subagents, SubagentsMsg};
use crate::root_session::{Msg, State};

/// Interval after which the subagents that were asked to stop and still run are killed. It begins
/// again whenever a subagent is asked, so each has at least this time.
const GRACE: Duration = Duration::from_secs(1);

/// A stop of subagents in progress, from the deepest upwards.
pub(super) struct StopInProgress {
    ids: Vec<InvocationId>,
    /// Ending with which the main agent is stopped when the subagents `ids` have ended; `None`: it
    /// is not stopped.
    main: Option<Ending>,
    grace: GracePeriod,
}

/// A running grace period. Dropping it stops its timer.
struct GracePeriod {
    /// Number of the period in the session.
    number: u64,
    _timer: OwnedTask,
}

impl Subagents {
    /// True if a stop is in progress that ends with the main agent.
    pub(super) fn stops_main(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| stopping.main.is_some())
    }

    /// Running subagents in the scope `reach`: all, or those for which the main agent `main` waits
    /// directly or indirectly.
    fn in_scope(&self, reach: Reach, main: Option<&InvocationId>) -> Vec<InvocationId> {
        let waited_for = |child: &&Child| {
            let mut child = *child;
            loop {
                if child.background {
                    return false;
                }
                if Some(&child.caller.invocation_id) == main {
                    return true;
                }
                let caller = &child.caller.invocation_id;
                match self.all.values().find(|above| above.id() == caller) {
                    Some(above) => child = above,
                    None => return false,
                }
            }
        };
        let live = self.all.values().filter(|child| child.is_live());
        live.filter(|child| reach == Reach::All || waited_for(child))
            .map(|child| child.id().clone())
            .collect()
    }
}

impl State {
    /// Begins to stop the subagents in the scope `reach`, then the main agent with `ending`.
    /// Returns false if there are no such subagents; then the caller has to stop the main agent
    /// itself.
    pub(crate) fn stop_children(&mut self, reach: Reach, ending: &Ending) -> bool {
        let main = self.main_run.id();
        let ids = self.subagents.in_scope(reach, main);
        self.begin_stop(ids, main.map(|_| ending.clone()))
    }

    /// Begins to stop all running subagents below `id`, which has ended.
    pub(super) fn stop_below(&mut self, id: &InvocationId) {
        let live = self.subagents.all.values().filter(|child| child.is_live());
        let below = live.filter(|child| self.subagents.is_below(child, id));
        self.begin_stop(below.map(|child| child.id().clone()).collect(), None);
    }

    /// Begins to stop the subagents for which the main invocation `id` was still waiting when it
    /// ended.
    pub(crate) fn stop_awaited(&mut self, id: &InvocationId) {
        self.begin_stop(self.subagents.in_scope(Reach::Foreground, Some(id)), None);
    }

    /// Begins to stop the subagents `ids`, then the main agent with the ending `main`, if it is
    /// set. A stop in progress is extended; an ending that is set already stays. Returns false if
    /// `ids` is empty; then the main agent is not stopped.
    fn begin_stop(&mut self, ids: Vec<InvocationId>, main: Option<Ending>) -> bool {
        if ids.is_empty() {
            return false;
        }
        if self.subagents.stopping.is_none() {
            let grace = self.grace_period();
            self.subagents.stopping = Some(StopInProgress { ids: Vec::new(), main: None, grace });
        }
        let Some(stopping) = &mut self.subagents.stopping else { return false };
        stopping.ids.extend(ids);
        if let Some(main) = main {
            stopping.main.get_or_insert(main);
        }
        self.continue_stop();
        true
    }

    /// Takes the next step of the stop in progress, if there is one: asks the deepest subagents
    /// that are left to stop, or, if none are left, the main agent.
    pub(super) fn continue_stop(&mut self) {
        loop {
            let Some(stopping) = &self.subagents.stopping else { return };
            let left = |child: &&mut Child| child.is_live() && stopping.ids.contains(child.id());
            let mut left: Vec<&mut Child> = self.subagents.all.values_mut().filter(left).collect();
            let Some(depth) = left.iter().map(|child| child.depth()).max() else { break };
            left.retain(|child| child.depth() == depth);
            let (mut gone, mut asked) = (None, false);
            for child in left {
                if child.stopping.is_some() {
                    continue;
                }
                child.stopping = Some(Ending::Interrupted);
                match &child.actor {
                    Some(actor) => {
                        asked = true;
                        tell(actor, agent_invocation::Msg::Stop(Ending::Interrupted));
                    }
                    // Its actor does not exist, so the session ends it.
                    None => gone = Some(child.id().clone()),
                }
            }
            if asked {
                // Each that is asked has the whole grace period.
                self.restart_grace_period();
            }
            match gone {
                Some(id) => self.conclude_child(&id, &Ending::Interrupted),
                None => return,
            }
        }
        let ending = self.subagents.stopping.take().and_then(|stopping| stopping.main);
        if let Some(ending) = ending {
            self.stop_main_run(ending);
        }
    }

    /// Kills the subagents that were asked to stop and still run, ends them as interrupted, and
    /// starts the timer for those above them.
    /// `period`: the grace period that is over; an earlier one has no effect.
    pub(super) fn stop_overdue(&mut self, period: u64) {
        let stopping = self.subagents.stopping.as_ref();
        let Some(stopping) = stopping.filter(|stopping| stopping.grace.number == period) else {
            return;
        };
        let told = |child: &&mut Child| {
            child.is_live() && child.stopping.is_some() && stopping.ids.contains(child.id())
        };
        let late: Vec<InvocationId> = self
            .subagents
            .all
            .values_mut()
            .filter(told)
            .map(|child| {
                if let Some(actor) = child.actor.take() {
                    actor.kill();
                }
                child.id().clone()
            })
            .collect();
        for id in late {
            self.conclude_child(&id, &Ending::Interrupted);
        }
        // Their ancestors have a grace period of their own.
        self.restart_grace_period();
    }

    fn restart_grace_period(&mut self) {
        if self.subagents.stopping.is_some() {
            let grace = self.grace_period();
            if let Some(stopping) = &mut self.subagents.stopping {
                stopping.grace = grace;
            }
        }
    }

    /// Starts a grace period, after which subagents that do not stop are killed.
    fn grace_period(&mut self) -> GracePeriod {
        self.subagents.grace_periods += 1;
        let number = self.subagents.grace_periods;
        // A timer that is dropped reports as well; it names no period.
        let overdue = move |slept: Result<(), JoinError>| {
            Msg::Subagents(SubagentsMsg::Overdue(slept.is_ok().then_some(number)))
        };
        let clock = &self.base.ports.clock;
        let timer = spawn_task(&self.base.me, clock.sleep(GRACE), overdue);
        GracePeriod { number, _timer: timer }
    }
}
